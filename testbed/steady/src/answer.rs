use std::fmt::Debug;

/// What a look or a run may yield: `bool`, `Option`, or `Result`.
pub trait Answer {
    /// What is there once it is so.
    type Value;

    /// The value, once it is so.
    ///
    /// # Errors
    /// With what is there instead.
    fn into_value(self) -> Result<Self::Value, String>;
}

impl Answer for bool {
    type Value = ();

    fn into_value(self) -> Result<(), String> {
        match self {
            true => Ok(()),
            false => Err("no".to_owned()),
        }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn into_value(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Debug> Answer for Result<T, E> {
    type Value = T;

    fn into_value(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}
