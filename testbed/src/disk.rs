//! A disk that a test fills.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Error;
use crate::preload::Preload;

/// The disk of a server, as the server sees it. Clones are the same disk.
///
/// A small library is compiled with `cc` and loaded into the server before all others.
#[derive(Debug, Clone)]
pub struct Disk(Arc<Preload>);

impl Disk {
    /// One with room.
    ///
    /// # Errors
    /// [`Error::Io`] where there is no C compiler `cc`, or it fails.
    pub fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Preload::new("disk", include_bytes!("disk.c"))?)))
    }

    /// Leaves no room for anything, or makes room again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn fill(&self, full: bool) -> Result<(), Error> {
        self.0.set(0, &[full.into()])
    }

    /// Tries new names of 400 bytes until there is no room for one: returns that name, and the error.
    pub async fn first_refused<E>(&self, mut tries: impl AsyncFnMut(&str) -> Result<(), E>) -> (String, E) {
        for number in 0..2000 {
            let name = format!("{number:0400}");
            if let Err(error) = tries(&name).await {
                return (name, error);
            }
        }
        panic!("there is room for 2000 names of 400 bytes");
    }

    /// What a server must find in its environment to write to it, beside the library.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        ("POLYLOCK_DISK", self.0.page())
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.0.library()
    }
}
