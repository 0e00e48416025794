//! The replies of the scripts, and the value of a lock's key.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lock_core::FencingToken;
use lock_core::backend::{Busy, HolderId, HolderStatus, LockStatus, Mode, WaiterStatus, since_of_token};
use redis::Value;

use super::mode;

/// The reply to an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    Taken(Taken),
    /// The holder id was abandoned or released before.
    Retired,
    /// The hold that an upgrade replaces has ended.
    BaseEnded,
}

/// The reply to a release or an abandon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// True if the holder id had the hold.
    pub(crate) was_held: bool,
    /// True if a connected waiter may stand behind the queue entries that were searched.
    pub(crate) more: bool,
}

/// A hold that was revoked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RevokedHold {
    pub(crate) holder: String,
    /// `None`: it had no end.
    pub(crate) lease_left: Option<Duration>,
    /// True if a connected waiter may stand behind the queue entries that were searched.
    pub(crate) more: bool,
}

/// The holder of a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) holder: Holder,
    /// `None`: the hold has no end.
    pub(crate) expires_in: Option<Duration>,
    /// The number of queue entries before the asker's; `None`: it has none.
    pub(crate) ahead: Option<u32>,
}

/// The value of a lock's key: `ID TOKEN TERM[ LABEL]`. The token is 0 while the name is only offered to that id. The id
/// of a name that is kept for a minimum time is `kept` and the moment when that time is over. A shared name has the
/// value `shared TOKEN EXPIRES CLEARED[ LABEL]`, or the same with `permits`, with the token and the label of the last
/// grant. A value from another kind of client is not parsed, since it may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Ours {
        token: Option<FencingToken>,
        label: Option<Arc<str>>,
    },
    /// Several; the label is that of the last one.
    Several {
        label: Option<Arc<str>>,
    },
    Foreign,
}

/// `None`: no reply of our script.
pub(crate) fn acquired(reply: &Value) -> Option<Acquired> {
    match reply {
        Value::Array(parts) => Some(Acquired::Taken(taken(parts)?)),
        Value::Int(0) => Some(Acquired::Retired),
        Value::Int(-1) => Some(Acquired::BaseEnded),
        reply => Some(Acquired::Granted(granted(reply)?)),
    }
}

/// Without waiters, but with their number. `None`: no reply of our script.
pub(crate) fn status(reply: &Value) -> Option<LockStatus> {
    Some(parsed_status(reply)?.0)
}

/// With the waiters that the reply lists, in the order of the queue. `None`: no reply of our script.
pub(crate) fn status_with_waiters(reply: &Value) -> Option<LockStatus> {
    let (mut status, waiters) = parsed_status(reply)?;
    status.waiters = Some(waiters_of(waiters)?);
    Some(status)
}

fn parsed_status(reply: &Value) -> Option<(LockStatus, &[Value])> {
    let Value::Array(parts) = reply else { return None };
    let [
        value,
        Value::Int(left),
        Value::Int(waiting),
        Value::Array(sharers),
        Value::Array(waiters),
    ] = &parts[..]
    else {
        return None;
    };
    let status = match value {
        Value::Nil => LockStatus::free(),
        Value::BulkString(value) => match Holder::parse(value) {
            Holder::Several { .. } => LockStatus::held_by(sharers_of(sharers)?),
            holder => LockStatus::held(holder.status(value, remaining(*left))),
        },
        _ => return None,
    };
    Some((status.with_waiting(usize::try_from(*waiting).ok()?), waiters))
}

/// The number added to the score of an entry that is set aside, which gives its number in the queue: as in `queue.lua`.
const ASIDE: f64 = 2e15;
/// The number of the first entry of a queue.
const FIRST: f64 = -1e15;

/// The waiters, by the entry and the score of each.
fn waiters_of(parts: &[Value]) -> Option<Vec<WaiterStatus>> {
    let of = |parts: &[Value]| match parts {
        [Value::BulkString(entry), Value::BulkString(score)] => {
            let score: f64 = std::str::from_utf8(score).ok()?.parse().ok()?;
            // An upgrade is below all of them, and stays so.
            let number = if score < FIRST { score + ASIDE } else { score };
            Some((number, waiter(entry)))
        }
        _ => None,
    };
    let mut waiters = parts.chunks(2).map(of).collect::<Option<Vec<_>>>()?;
    waiters.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Some(waiters.into_iter().map(|(_, waiter)| waiter).collect())
}

/// One who waits, by its entry: `ID INBOX`, or `ID/MODE INBOX`.
fn waiter(entry: &[u8]) -> WaiterStatus {
    let rest = entry.get(HolderId::HEX_DIGITS..).unwrap_or_default();
    let mode = match rest.strip_prefix(b"/") {
        Some(rest) => {
            let mode = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
            std::str::from_utf8(mode).ok().and_then(mode::parse_asked)
        }
        None => Some(Mode::Exclusive),
    };
    match mode {
        Some(mode) => WaiterStatus::new().with_mode(mode),
        None => WaiterStatus::new(),
    }
}

/// The holders that share a name, by the id, the terms and the ms left of each: in the order of their grants, then offers.
fn sharers_of(parts: &[Value]) -> Option<Vec<HolderStatus>> {
    let of = |parts: &[Value]| match parts {
        [Value::BulkString(id), Value::BulkString(terms), Value::Int(left)] => {
            let mut status = sharer(&String::from_utf8_lossy(terms))?.with_id(String::from_utf8_lossy(id));
            status.expires_in = remaining(*left);
            Some(status)
        }
        _ => None,
    };
    let mut sharers = parts.chunks(3).map(of).collect::<Option<Vec<_>>>()?;
    sharers.sort_by_key(|sharer| (sharer.token.is_none(), sharer.token));
    Some(sharers)
}

/// One who shares a name, by its terms: `TOKEN TERM MODE[ LABEL]`. The token is 0 as long as the name is only offered to it.
fn sharer(terms: &str) -> Option<HolderStatus> {
    let mut parts = terms.splitn(4, ' ');
    let (token, _term, mode) = (parts.next()?, parts.next()?, parts.next()?);
    let mut status = HolderStatus::new().with_mode(mode::parse(mode)?);
    status.token = token_or_offer(token)?;
    status.since = since(status.token);
    status.label = parts.next().map(Into::into);
    Some(status)
}

/// Since when a grant with this token lasts.
fn since(token: Option<FencingToken>) -> Option<SystemTime> {
    since_of_token(token?, SystemTime::now())
}

/// `None`: no reply of our script.
pub(crate) fn ended(reply: &Value) -> Option<Ended> {
    let Value::Int(bits @ 0..=3) = *reply else { return None };
    Some(Ended {
        was_held: bits & 1 != 0,
        more: bits & 2 != 0,
    })
}

/// The hold that was revoked, if there was one; `None`: no reply of our script.
pub(crate) fn revoked(reply: &Value) -> Option<Option<RevokedHold>> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(holder), Value::Int(left), Value::Int(more @ 0..=1)] = &parts[..] else {
        return None;
    };
    let hold = RevokedHold {
        holder: String::from_utf8(holder.clone()).ok()?,
        lease_left: remaining(*left),
        more: *more == 1,
    };
    Some((!hold.holder.is_empty()).then_some(hold))
}

fn taken(parts: &[Value]) -> Option<Taken> {
    let [Value::BulkString(value), Value::Int(left), Value::Int(ahead)] = parts else {
        return None;
    };
    Some(Taken {
        holder: Holder::parse(value),
        expires_in: remaining(*left),
        ahead: u32::try_from(*ahead).ok(),
    })
}

fn granted(reply: &Value) -> Option<FencingToken> {
    let Value::BulkString(token) = reply else { return None };
    token_of(std::str::from_utf8(token).ok()?)
}

fn remaining(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// True if the hold to be renewed or raised was found; `None`: this is no reply of our script.
pub(crate) fn renewed(reply: &Value) -> Option<bool> {
    match reply {
        Value::Int(1) => Some(true),
        Value::Int(0) => Some(false),
        _ => None,
    }
}

/// True if a renewal needs all keys of a name that is shared.
pub(crate) fn is_of_shared(reply: &Value) -> bool {
    *reply == Value::Int(2)
}

impl Holder {
    pub(super) fn parse(value: &[u8]) -> Self {
        Self::parse_ours(&String::from_utf8_lossy(value)).unwrap_or(Self::Foreign)
    }

    fn parse_ours(value: &str) -> Option<Self> {
        let mut parts = value.splitn(4, ' ');
        let (id, token, term) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if matches!(id, "shared" | "permits") {
            let (_token, _expires) = (token.parse::<u64>().ok()?, term.parse::<u64>().ok()?);
            let mut rest = parts.next()?.splitn(2, ' ');
            rest.next()?.parse::<u64>().ok()?;
            let label = rest.next().map(Into::into);
            return Some(Self::Several { label });
        }
        if id.len() != HolderId::HEX_DIGITS || !id.strip_prefix("kept").unwrap_or(id).bytes().all(is_hex) {
            return None;
        }
        term.parse::<u64>().ok()?;
        let token = token_or_offer(token)?;
        let label = parts.next().map(Into::into);
        Some(Self::Ours { token, label })
    }

    /// As the status of the one that has the name alone.
    fn status(self, value: &[u8], expires_in: Option<Duration>) -> HolderStatus {
        let mut status = HolderStatus::new();
        status.expires_in = expires_in;
        if let Self::Ours { token, label } = self {
            status = status.with_mode(Mode::Exclusive);
            status.token = token;
            status.since = since(token);
            status.id = value
                .get(..HolderId::HEX_DIGITS)
                .map(|id| String::from_utf8_lossy(id).into());
            status.label = label;
        }
        status
    }
}

impl Taken {
    pub(crate) fn busy(&self) -> Busy {
        match &self.holder {
            Holder::Ours { label: Some(label), .. } | Holder::Several { label: Some(label) } => {
                Busy::new().with_holder(label.clone())
            }
            _ => Busy::new(),
        }
    }
}

/// Of an offer: none. `None`: no token of ours.
fn token_or_offer(digits: &str) -> Option<Option<FencingToken>> {
    match digits {
        "0" => Some(None),
        digits => Some(Some(token_of(digits)?)),
    }
}

fn token_of(digits: &str) -> Option<FencingToken> {
    FencingToken::new(digits.parse().ok()?)
}
