//! Requests for many names that go out in one script call, and the reply to each.

use std::borrow::Cow;

use redis::Value;

use super::arguments::{GrantTogetherArguments, RenewTogetherArguments, YES};
use super::mode::EXCLUSIVE;
use super::{END_TOGETHER, GRANT_TOGETHER, RENEW_TOGETHER, Script};

/// A call of a script, by texts of its own.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) script: &'static Script,
    /// Keys, then arguments.
    text: String,
    ends: Vec<u32>,
    keys: usize,
}

/// The requests that one script call can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Acquires for which the grant of a free name is all.
    Grant,
    Renew,
    /// Ends for which it is all to delete the lock's key.
    End,
}

impl Request {
    pub(crate) fn new(script: &'static Script, keys: &[&str], arguments: &[&str]) -> Self {
        let texts = || keys.iter().chain(arguments);
        let mut text = String::with_capacity(texts().map(|text| text.len()).sum());
        let mut ends = Vec::with_capacity(keys.len() + arguments.len());
        for part in texts() {
            text.push_str(part);
            ends.push(u32::try_from(text.len()).expect("keys and arguments are short"));
        }
        Self {
            script,
            text,
            ends,
            keys: keys.len(),
        }
    }

    /// The kind of calls that can serve it together with others, if any can.
    pub(crate) fn kind_of(script: &Script, keys: &[&str], arguments: &[&str]) -> Option<Kind> {
        let kind = script.gathered_as?;
        let fits = match kind {
            Kind::Grant => keys.len() == 2 && arguments[3] == YES,
            Kind::Renew => keys.len() == 1,
            Kind::End => keys.len() == 2 && is_plain_end(arguments[1]),
        };
        fits.then_some(kind)
    }

    fn text(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[index] as usize]
    }

    fn argument(&self, index: usize) -> &str {
        self.text(self.keys + index)
    }

    /// The lock's key.
    pub(crate) fn lock(&self) -> &str {
        self.text(0)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        (0..self.keys).map(|index| self.text(index))
    }

    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        (self.keys..self.ends.len()).map(|index| self.text(index))
    }
}

impl Kind {
    pub(crate) fn script(self) -> &'static Script {
        match self {
            Self::Grant => &GRANT_TOGETHER,
            Self::Renew => &RENEW_TOGETHER,
            Self::End => &END_TOGETHER,
        }
    }

    /// The most requests in one call. The server serves nobody else during the call, which takes up to a quarter of a
    /// millisecond; more in a call saves it nothing.
    pub(crate) fn most(self) -> usize {
        match self {
            Self::Grant | Self::End => 32,
            Self::Renew => 100,
        }
    }

    /// True if one call can serve both requests of this kind: it takes what they have in common once.
    pub(crate) fn suits(self, one: &Request, other: &Request) -> bool {
        self.shared(one) == self.shared(other)
    }

    /// The arguments that a call takes once.
    fn shared(self, request: &Request) -> [&str; 2] {
        match self {
            Self::Grant => [request.argument(1), request.argument(2)],
            Self::Renew => [request.argument(1), ""],
            Self::End => ["", ""],
        }
    }

    /// The keys of the call for these requests, of which there is at least one, and its arguments.
    pub(crate) fn call<'a>(self, requests: &[&'a Request]) -> (Vec<&'a str>, Vec<Cow<'a, str>>) {
        let first = requests[0];
        let keys = requests.iter().flat_map(|request| request.keys()).collect();
        let owned = |text: &str| Cow::Owned(text.to_owned());
        let mut arguments: Vec<Cow<'a, str>> = match self {
            Self::Grant => {
                let [ttl, label] = self.shared(first).map(Cow::Borrowed);
                GrantTogetherArguments { ttl, label }.all().map(owned).into()
            }
            Self::Renew => {
                let [ttl, _] = self.shared(first).map(Cow::Borrowed);
                RenewTogetherArguments { ttl }.all().map(owned).into()
            }
            Self::End => Vec::new(),
        };
        arguments.extend(requests.iter().map(|request| Cow::Borrowed(request.argument(0))));
        (keys, arguments)
    }

    /// The reply to each of the requests, as its own script would have replied. `None` for one that has to be asked alone.
    /// Nothing at all: this is no reply of our script.
    pub(crate) fn replies(self, reply: &Value, asked: usize) -> Option<Vec<Option<Value>>> {
        let Value::BulkString(reply) = reply else { return None };
        let (token, digits) = match self {
            Self::Grant => {
                let space = reply.iter().position(|byte| *byte == b' ')?;
                (&reply[..space], &reply[space + 1..])
            }
            Self::Renew | Self::End => (&[][..], &reply[..]),
        };
        let each = |digit: &u8| match (self, digit) {
            (Self::Grant, b'1') => Some(Some(Value::BulkString(token.to_vec()))),
            (Self::Renew, b'0'..=b'2') | (Self::End, b'0' | b'1') => Some(Some(Value::Int(i64::from(digit - b'0')))),
            (Self::Grant | Self::End, b'2') => Some(None),
            _ => None,
        };
        let all: Vec<_> = digits.iter().map(each).collect::<Option<_>>()?;
        (all.len() == asked).then_some(all)
    }
}

/// True for the rest of the arguments of an end that keeps nothing, leaves nothing and searches for nobody. See `EndArguments`.
fn is_plain_end(rest: &str) -> bool {
    let mut rest = rest.split(' ').skip(2);
    let mut next = || rest.next();
    let [mode, keep_for, leaves_tombstone, searches_on] = [next(), next(), next(), next()];
    mode == Some(EXCLUSIVE) && [keep_for, leaves_tombstone, searches_on] == [Some(""); 3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::arguments::EndArguments;
    use crate::protocol::{ACQUIRE, CONFIRM, END, RENEW};

    const LOCK: &[&str] = &["a"];
    const TWO: &[&str] = &["a", "{a}:fence"];
    const ALL: &[&str] = &["a", "{a}:fence", "{a}:queue", "{a}:ends", "{a}:terms"];

    fn rest_of_end(change: fn(&mut EndArguments<'_>)) -> String {
        let mut arguments = EndArguments {
            purpose_at: "3".into(),
            grace: "100".into(),
            mode: EXCLUSIVE.into(),
            ..EndArguments::default()
        };
        change(&mut arguments);
        let [_held, rest] = arguments.all();
        rest.into_owned()
    }

    fn texts(kind: Kind, requests: &[Request]) -> (Vec<String>, Vec<String>) {
        let (keys, arguments) = kind.call(&requests.iter().collect::<Vec<_>>());
        let owned = |text: &dyn ToString| text.to_string();
        (
            keys.iter().map(|key| owned(key)).collect(),
            arguments.iter().map(|argument| owned(argument)).collect(),
        )
    }

    #[test]
    fn only_what_needs_few_keys_goes_out_together() {
        let kind = Request::kind_of;
        assert_eq!(kind(&ACQUIRE, TWO, &["id", "10", "", "1", "rest"]), Some(Kind::Grant));
        assert_eq!(kind(&ACQUIRE, TWO, &["id", "10", "", "", "rest"]), None);
        assert_eq!(kind(&ACQUIRE, ALL, &["id", "10", "", "1", "rest"]), None);
        assert_eq!(kind(&CONFIRM, TWO, &["id", "10", "", "1", "rest"]), None);
        assert_eq!(kind(&END, TWO, &["id", &rest_of_end(|_| {})]), Some(Kind::End));
        assert_eq!(kind(&END, ALL, &["id", &rest_of_end(|_| {})]), None);
        assert_eq!(kind(&RENEW, LOCK, &["id", "10"]), Some(Kind::Renew));
        assert_eq!(kind(&RENEW, ALL, &["id", "10"]), None);
    }

    #[test]
    fn only_ends_that_do_no_more_than_that_go_out_together() {
        let goes =
            |change: fn(&mut EndArguments<'_>)| Request::kind_of(&END, TWO, &["id", &rest_of_end(change)]).is_some();
        assert!(goes(|arguments| arguments.inbox = "{a}:inbox x".into()));
        assert!(!goes(|arguments| arguments.mode = "s".into()));
        assert!(!goes(|arguments| arguments.keep_for = "10".into()));
        assert!(!goes(|arguments| arguments.leaves_tombstone = YES.into()));
        assert!(!goes(|arguments| arguments.searches_on = YES.into()));
    }

    /// The server serves nobody else during a call.
    #[test]
    fn a_call_serves_many_and_not_too_many() {
        for kind in [Kind::Grant, Kind::Renew, Kind::End] {
            assert!((10..=100).contains(&kind.most()), "{kind:?}");
        }
    }

    /// One that has to be asked alone is sent from this.
    #[test]
    fn a_request_gives_back_its_keys_and_arguments() {
        for (keys, arguments) in [(TWO, &["id", "", "10"][..]), (LOCK, &[""]), (ALL, &[])] {
            let request = Request::new(&ACQUIRE, keys, arguments);
            assert_eq!(request.lock(), "a");
            assert_eq!(request.keys().collect::<Vec<_>>(), keys);
            assert_eq!(request.arguments().collect::<Vec<_>>(), arguments);
        }
    }

    #[test]
    fn what_all_have_in_common_is_sent_once() {
        let grant = |key, holder, label| Request::new(&ACQUIRE, &[key, "fence"], &[holder, "10", label, "1", "3 0 x"]);
        let grants = [grant("a", "h1", " me"), grant("b", "h2", " me")];
        assert!(Kind::Grant.suits(&grants[0], &grants[1]));
        assert!(!Kind::Grant.suits(&grants[0], &grant("c", "h3", "")));
        let (keys, arguments) = texts(Kind::Grant, &grants);
        assert_eq!(keys, ["a", "fence", "b", "fence"]);
        assert_eq!(arguments, ["10", " me", "h1", "h2"]);

        let end = |key, held| Request::new(&END, &[key, "queue"], &[held, "3 100 x    "]);
        let ends = [end("a", "h1 7 10"), end("bb", "h2")];
        assert!(Kind::End.suits(&ends[0], &ends[1]));
        let (keys, arguments) = texts(Kind::End, &ends);
        assert_eq!(keys, ["a", "queue", "bb", "queue"]);
        assert_eq!(arguments, ["h1 7 10", "h2"]);

        let renewal = |key, holder, ttl| Request::new(&RENEW, &[key], &[holder, ttl]);
        let renewals = [renewal("a", "h1", "10"), renewal("b", "h2", "10")];
        assert!(Kind::Renew.suits(&renewals[0], &renewals[1]));
        assert!(!Kind::Renew.suits(&renewals[0], &renewal("c", "h3", "11")));
        assert_eq!(texts(Kind::Renew, &renewals).1, ["10", "h1", "h2"]);
    }

    #[test]
    fn each_has_the_reply_of_its_own_script_or_none() {
        let replies = |kind: Kind, reply: &str, asked| kind.replies(&Value::BulkString(reply.into()), asked);
        let int = |value| Some(Value::Int(value));
        let token = Some(Value::BulkString("17".into()));
        assert_eq!(
            replies(Kind::Grant, "17 121", 3),
            Some(vec![token.clone(), None, token])
        );
        assert_eq!(replies(Kind::Renew, "012", 3), Some(vec![int(0), int(1), int(2)]));
        assert_eq!(replies(Kind::End, "012", 3), Some(vec![int(0), int(1), None]));
        for (kind, reply) in [
            (Kind::Grant, "17 12"),
            (Kind::Grant, "121"),
            (Kind::Grant, "17 120"),
            (Kind::Renew, "013"),
            (Kind::End, "013"),
            (Kind::End, "01"),
            (Kind::End, ""),
        ] {
            assert_eq!(replies(kind, reply, 3), None, "{reply}");
        }
        assert_eq!(Kind::End.replies(&Value::Int(1), 1), None);
    }
}
