//! The memory of a mutant subject from one acquire to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::subject::Ask;

/// An acquire that is under way for as long as this lives.
pub(super) struct UnderWay(Arc<Mutex<Vec<Ask>>>, Ask);

impl UnderWay {
    pub(super) fn new(all: &Arc<Mutex<Vec<Ask>>>, ask: &Ask) -> Self {
        all.lock().unwrap_or_else(PoisonError::into_inner).push(ask.clone());
        Self(all.clone(), ask.clone())
    }

    /// The first of those before it.
    pub(super) fn first(&self, of: impl Fn(&Ask) -> bool) -> Option<Ask> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all[..all.len() - 1].iter().find(|other| of(other)).cloned()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = |ask: &Ask| (&ask.name, &ask.label, &ask.reentry) == (&self.1.name, &self.1.label, &self.1.reentry);
        if let Some(index) = all.iter().position(own) {
            all.remove(index);
        }
    }
}

/// When the holds of each name have lasted for their maximum, for the mutant that forgets whose it was.
#[derive(Debug, Default)]
pub(super) struct Maxima(Mutex<HashMap<String, Instant>>);

impl Maxima {
    pub(super) fn of(&self, ask: &Ask) -> Option<Instant> {
        let mut maxima = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(maximum) = ask.maximum {
            maxima.insert(ask.name.clone(), Instant::now() + maximum);
        }
        maxima.get(&ask.name).copied()
    }
}
