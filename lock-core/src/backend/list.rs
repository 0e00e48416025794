//! Pages of names.

use crate::name::LockName;

/// A position in the list of names, and the prefix of the names listed: see [`Locker::list`](crate::Locker::list).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFrom {
    prefix: String,
    after: Option<String>,
}

/// A page of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListPage {
    /// Names with a hold or a queue, in no particular order. A page may be empty with more to come.
    pub names: Vec<LockName>,
    /// The beginning of the next page. `None`: this was the last one.
    pub next: Option<ListFrom>,
}

impl ListFrom {
    /// From the beginning, all names.
    pub fn all() -> Self {
        Self::default()
    }

    /// From the beginning, the names with this prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            after: None,
        }
    }

    /// Returns the prefix of the listed names.
    pub fn name_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the position that the backend noted at the end of the previous page. `None`: the list begins.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// For a backend: the page after this one, with whatever text it needs to go on.
    #[must_use]
    pub fn go_on_after(&self, note: impl Into<String>) -> Self {
        Self {
            prefix: self.prefix.clone(),
            after: Some(note.into()),
        }
    }
}

impl ListPage {
    /// These names, and where the next page begins.
    pub fn new(names: impl IntoIterator<Item = LockName>, next: Option<ListFrom>) -> Self {
        Self {
            names: names.into_iter().collect(),
            next,
        }
    }
}
