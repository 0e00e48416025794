//! A request for a grant, as the scripts take it.

use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{FencingToken, Result};

use crate::names::Keys;

use super::arguments::{AcquireArguments, YES};
use super::{ACQUIRE, CONFIRM, Script, millis, mode};

/// One of the scripts [`ACQUIRE`] and [`CONFIRM`], and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) arguments: AcquireArguments<'a>,
    /// True if it asks for a grant that it did not have before.
    pub(crate) is_fresh: bool,
}

/// The queue entry of a request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The channel on which the asker is woken.
    pub(crate) inbox: &'a str,
    /// The time for which the entry lasts without a refresh.
    pub(crate) lifetime: Duration,
    /// True if there may be such an entry already.
    pub(crate) may_exist: bool,
}

impl<'a> Ask<'a> {
    /// For a hold of this TTL. A request that does not wait ignores its entry.
    ///
    /// # Errors
    /// Unsupported, for an unknown mode.
    pub(crate) fn new(
        request: &AcquireRequest,
        keys: &Keys,
        ttl: Duration,
        grace: &'a str,
        entry: Entry<'a>,
    ) -> Result<Self> {
        let arguments = AcquireArguments {
            holder: request.holder().to_string().into(),
            ttl: millis(ttl).into(),
            label: request
                .label()
                .map_or_else(String::new, |label| format!(" {label}"))
                .into(),
            purpose_at: keys.purpose_at().to_string().into(),
            floor: floor(request.token_floor(), request.token_at_least()).into(),
            mode: mode::of(request)?,
            grace: grace.into(),
            ..AcquireArguments::default()
        };
        let arguments = match request.waits() {
            true => AcquireArguments {
                inbox: entry.inbox.into(),
                lifetime: millis(entry.lifetime).into(),
                may_have_entry: if entry.may_exist { YES } else { "" }.into(),
                ..arguments
            },
            false => arguments,
        };
        let is_plain =
            arguments.mode == mode::EXCLUSIVE && arguments.floor == NO_FLOOR && arguments.may_have_entry != YES;
        let is_plain = if is_plain { YES } else { "" }.into();
        Ok(Self {
            arguments: AcquireArguments { is_plain, ..arguments },
            is_fresh: !request.reinstates(),
        })
    }

    pub(crate) fn script(&self) -> &'static Script {
        match self.may_have_entry() {
            true => &CONFIRM,
            false => &ACQUIRE,
        }
    }

    /// The channel on which the asker is woken. `None`: it does not enter the queue if the name is taken.
    pub(crate) fn inbox(&self) -> Option<&str> {
        Some(&*self.arguments.inbox).filter(|inbox| !inbox.is_empty())
    }

    pub(crate) fn may_have_entry(&self) -> bool {
        self.arguments.may_have_entry == YES
    }

    /// The same of a request that does not enter the queue.
    pub(crate) fn without_queue(&self) -> Self {
        let mut ask = self.clone();
        let arguments = &mut ask.arguments;
        for of_entry in [
            &mut arguments.inbox,
            &mut arguments.lifetime,
            &mut arguments.may_have_entry,
        ] {
            *of_entry = "".into();
        }
        ask
    }
}

/// Any token will do.
const NO_FLOOR: &str = "0";

/// The token that a grant has to exceed; or, after `=`, the one that it has to reach without the server's clock.
fn floor(above: Option<FencingToken>, at_least: Option<FencingToken>) -> String {
    let above = above.map_or(0, FencingToken::as_u64);
    match at_least {
        Some(token) => format!("={}", token.as_u64().max(above.saturating_add(1))),
        None => above.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_says_whether_the_clock_counts() {
        let token = FencingToken::new;
        assert_eq!(floor(None, None), "0");
        assert_eq!(floor(token(7), None), "7");
        assert_eq!(floor(None, token(7)), "=7");
        assert_eq!(floor(token(7), token(7)), "=8");
        assert_eq!(floor(token(7), token(9)), "=9");
    }
}
