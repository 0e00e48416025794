//! A case: its name, what it does to the server, and its function.

use std::pin::Pin;

use crate::context::{Cx, RawCx};
use crate::harness::ServerUse;
use crate::rules;
use crate::verdict::Verdict;

/// One case of the suite.
#[derive(Debug)]
#[non_exhaustive]
pub struct Case {
    /// Its name, which is its test's.
    pub name: &'static str,
    /// The topic of the case: the name of its file.
    pub topic: &'static str,
    /// The effect of the case on the server.
    pub server: ServerUse,
    /// The [id](lock_core::Guarantee::id) of the guarantee that a backend keeps only if it passes this case.
    pub guarantee: Option<&'static str>,
    pub(crate) body: Body,
}

impl Case {
    /// The sentence of `lock-core`'s docs that it checks.
    pub fn rule(&self) -> &'static str {
        rules::of(self.topic)
    }
}

/// A case as a function.
#[derive(Debug)]
pub(crate) enum Body {
    Raw(RawBody),
    /// As `Raw`, and it names the modes in which it asks.
    Modes(RawBody),
    Subject(SubjectBody),
}

pub(crate) type RawBody = for<'a> fn(&'a RawCx) -> Running<'a>;
pub(crate) type SubjectBody = for<'a> fn(&'a Cx) -> Running<'a>;
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;
