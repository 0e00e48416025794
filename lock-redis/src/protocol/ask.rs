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
            label: (request.label())
                .map_or_else(String::new, |label| [" ", &label].concat())
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
    use std::borrow::Cow;

    use lock_core::LockName;
    use lock_core::backend::Mode;
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    fn request() -> RequestOptions {
        RequestOptions::new(LockName::new("a").expect("a valid name"), Terms::new(TTL))
    }

    /// The arguments of a request, which has an entry or may have one.
    fn ask(options: RequestOptions, may_exist: bool) -> Ask<'static> {
        let (request, _control) = options.start();
        let entry = Entry {
            inbox: "inbox",
            lifetime: Duration::from_secs(2),
            may_exist,
        };
        let keys = Keys::new("", request.name());
        Ask::new(&request, &keys, TTL, "100", entry).expect("a mode of ours")
    }

    /// The arguments behind the holder id.
    fn texts(ask: &Ask<'_>) -> Vec<String> {
        ask.arguments.all().into_iter().skip(1).map(Cow::into_owned).collect()
    }

    #[test]
    fn only_a_request_that_waits_enters_the_queue() {
        let waits = ask(request(), false);
        assert_eq!((waits.inbox(), waits.may_have_entry()), (Some("inbox"), false));
        let again = ask(request(), true);
        assert_eq!((again.inbox(), again.may_have_entry()), (Some("inbox"), true));
        let [not_waiting, not_either] = [false, true].map(|may_exist| ask(request().waits(false), may_exist));
        for one in [&not_waiting, &not_either] {
            assert_eq!((one.inbox(), one.may_have_entry()), (None, false));
        }
        assert_eq!(texts(&waits.without_queue()), texts(&not_waiting));
    }

    /// It has to come through however full the memory is.
    #[test]
    fn one_that_may_have_an_entry_confirms() {
        let script = |may_exist| ask(request(), may_exist).script();
        assert!(std::ptr::eq(script(true), &*CONFIRM) && std::ptr::eq(script(false), &*ACQUIRE));
    }

    /// Then the script needs no more than the lock's key and the fence.
    #[test]
    fn a_plain_request_is_exclusive_with_any_token_and_without_an_entry() {
        let is_plain = |ask: Ask<'_>| ask.arguments.is_plain == YES;
        let token = FencingToken::new(7).expect("a token");
        assert!(is_plain(ask(request(), false)) && is_plain(ask(request().waits(false), true)));
        assert!(!is_plain(ask(request(), true)));
        assert!(!is_plain(ask(request().mode(Mode::Shared), false)));
        assert!(!is_plain(ask(request().token_above(token), false)));
        assert!(!is_plain(ask(request().token_at_least(token), false)));
    }

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
