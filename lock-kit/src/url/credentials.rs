//! The parameters of a URL that give the source of the password.

use lock_core::{CredentialSource, Error, Result};

use super::misconfigured;

/// The parameters `password_file` and `password_env` of a backend's URL.
///
/// # Examples
/// ```
/// # use lock_core::CredentialSource;
/// # use lock_kit::url::PasswordParameters;
/// let mut parameters = PasswordParameters::default();
/// assert!(parameters.read("password_file", "/run/secrets/redis")?);
/// assert!(!parameters.read("prefix", "shop")?);
/// assert_eq!(parameters.source(), Some(CredentialSource::file("/run/secrets/redis")));
/// # Ok::<(), lock_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct PasswordParameters {
    source: Option<CredentialSource>,
}

impl PasswordParameters {
    /// Takes a parameter, and returns whether it is one of these.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) if it has no value, and for a second one.
    pub fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        let source = match name {
            "password_file" => CredentialSource::file(value),
            "password_env" => CredentialSource::env(value),
            _ => return Ok(false),
        };
        if value.is_empty() {
            return Err(misconfigured(format!(
                "{name} in the URL has no value: write its name behind the `=`"
            )));
        }
        if self.source.is_some() {
            return Err(misconfigured(
                "the URL says twice where the password is: leave one of password_file and password_env",
            ));
        }
        self.source = Some(source);
        Ok(true)
    }

    /// Returns the source of the password, if one of the parameters was read.
    pub fn source(self) -> Option<CredentialSource> {
        self.source
    }
}

/// The error for a configuration that has a password, and says besides where one is.
pub fn two_passwords(server: &str) -> Error {
    let message = format!(
        "the password of {server} is given in two ways: leave it out of the configuration, or leave out where to find it \
         (password_file, password_env, with_credentials)"
    );
    misconfigured(message)
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    #[test]
    fn the_parameters_of_a_password_are_taken_and_others_left() {
        for (name, source) in [
            ("password_file", CredentialSource::file("/run/pw")),
            ("password_env", CredentialSource::env("/run/pw")),
        ] {
            let mut read = PasswordParameters::default();
            assert!(!read.read("prefix", "").unwrap());
            assert!(read.read(name, "/run/pw").unwrap());
            assert_eq!(read.source(), Some(source));
        }
        assert_eq!(PasswordParameters::default().source(), None);
        let two = two_passwords("the Redis");
        assert_eq!(two.kind(), ErrorKind::Misconfigured);
        assert!(
            two.to_string()
                .starts_with("the password of the Redis is given in two ways"),
            "{two}"
        );
    }

    #[test]
    fn one_place_is_enough() {
        for (parameters, said) in [
            (&[("password_env", "")][..], "password_env in the URL has no value"),
            (&[("password_env", "A"), ("password_file", "b")], "says twice"),
            (&[("password_env", "A"), ("password_env", "A")], "says twice"),
        ] {
            let mut read = PasswordParameters::default();
            let refused = parameters.iter().find_map(|(name, value)| read.read(name, value).err());
            let refused = refused.expect(said);
            assert_eq!(refused.kind(), ErrorKind::Misconfigured);
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }
}
