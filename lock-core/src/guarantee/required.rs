//! The guarantees that an application requires, and those that an operator vouches for.

use super::{Guarantee, Verdict};
use crate::error::{Error, ErrorKind, Result};

/// Each is there once, in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Required {
    guarantees: Vec<Guarantee>,
    trusted: Vec<Guarantee>,
}

impl Required {
    pub(crate) fn require(&mut self, guarantees: impl IntoIterator<Item = Guarantee>) {
        add(&mut self.guarantees, guarantees);
    }

    pub(crate) fn trust(&mut self, guarantees: impl IntoIterator<Item = Guarantee>) {
        add(&mut self.trusted, guarantees);
    }

    /// # Errors
    /// [`ErrorKind::Misconfigured`] with all that the server does not keep, and with all that is not known and not vouched for.
    pub(crate) fn check(&self, verdict: impl Fn(Guarantee) -> Verdict) -> Result<()> {
        let misses: Vec<String> = (self.guarantees.iter())
            .filter_map(|guarantee| self.miss(*guarantee, verdict(*guarantee)))
            .collect();
        if misses.is_empty() {
            return Ok(());
        }
        let message = format!(
            "this lock server does not keep what the application requires: {}",
            misses.join(", ")
        );
        Err(Error::new(ErrorKind::Misconfigured, message))
    }

    fn miss(&self, guarantee: Guarantee, verdict: Verdict) -> Option<String> {
        match verdict {
            Verdict::Yes => None,
            Verdict::No { because, instead } => Some(format!("{guarantee} ({because}: {instead})")),
            Verdict::Unknown { .. } if self.trusted.contains(&guarantee) => None,
            Verdict::Unknown { because, instead } => Some(format!(
                "{guarantee} (not known, as {because}: {instead}; or vouch for it by trusting={guarantee})"
            )),
        }
    }
}

fn add(list: &mut Vec<Guarantee>, more: impl IntoIterator<Item = Guarantee>) {
    for guarantee in more {
        if !list.contains(&guarantee) {
            list.push(guarantee);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn verdict(guarantee: Guarantee) -> Verdict {
        match guarantee {
            Guarantee::Failover => Verdict::no("replicas=0 loses holds", "set replicas=1"),
            Guarantee::ServerCrash => Verdict::unknown("INFO is forbidden", "permit it"),
            _ => Verdict::Yes,
        }
    }

    fn required(guarantees: &[Guarantee], trusted: &[Guarantee]) -> Result<()> {
        let mut required = Required::default();
        required.require(guarantees.iter().copied());
        required.trust(trusted.iter().copied());
        required.check(verdict)
    }

    #[test]
    fn what_is_kept_is_no_miss() {
        required(&[], &[]).unwrap();
        required(&[Guarantee::Fifo, Guarantee::Ttl(Duration::from_secs(1))], &[]).unwrap();
    }

    #[test]
    fn all_misses_are_in_one_message() {
        let all = [
            Guarantee::Fifo,
            Guarantee::Failover,
            Guarantee::ServerCrash,
            Guarantee::Failover,
        ];
        let error = required(&all, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert_eq!(
            error.to_string(),
            "this lock server does not keep what the application requires: failover (replicas=0 loses holds: set replicas=1), \
             server-crash (not known, as INFO is forbidden: permit it; or vouch for it by trusting=server-crash)"
        );
    }

    #[test]
    fn an_operator_vouches_for_what_is_not_known_and_for_nothing_else() {
        required(&[Guarantee::ServerCrash], &[Guarantee::ServerCrash]).unwrap();
        let error = required(&[Guarantee::Failover], &[Guarantee::Failover]).unwrap_err();
        assert!(error.to_string().contains("set replicas=1"), "{error}");
        required(&[Guarantee::ServerCrash], &[Guarantee::Failover]).unwrap_err();
    }
}
