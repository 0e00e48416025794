//! Credentials that change while a client lives.

use std::future::ready;
use std::sync::{Arc, Mutex};

use lock_core::{CredentialSource, Credentials, Error};

/// What a client gives at its next connection.
#[derive(Clone)]
pub(crate) struct Known(Arc<Mutex<State>>);

struct State {
    credentials: Result<Credentials, Error>,
    asked: usize,
}

impl Known {
    pub(crate) fn new(credentials: Credentials) -> Self {
        let credentials = Ok(credentials);
        Self(Arc::new(Mutex::new(State { credentials, asked: 0 })))
    }

    pub(crate) fn set(&self, credentials: Result<Credentials, Error>) {
        self.0.lock().unwrap().credentials = credentials;
    }

    /// For how many connections it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }

    pub(crate) fn source(&self) -> CredentialSource {
        let known = self.clone();
        CredentialSource::ask(move || {
            let mut state = known.0.lock().unwrap();
            state.asked += 1;
            ready(state.credentials.clone())
        })
    }
}
