//! What goes over the wire: the scripts, each of which the server runs in one step, their arguments and replies, and the value
//! of a lock's key.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Busy, HolderId, HolderStatus, LockStatus, Mode};
use lock_core::{Error, ErrorKind, FencingToken};
use redis::{Cmd, Value, cmd};

pub(crate) mod mode;

/// A Lua script and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("protocol/scripts/", $name, ".lua"))
    };
}

/// Grants, repeats a grant, or replies who has the lock and adds a queue entry.
pub(crate) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(file!("acquire")));
/// The same for a waiter that has a queue entry. It works however full the memory is: what it writes replaces the entry or
/// the offer, so that nothing of it piles up.
pub(crate) static CONFIRM: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!("#!lua flags=allow-oom\n", file!("acquire"))));
/// Moves the end of a hold forward.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(file!("renew")));
/// Releases or abandons, and offers the name to the next waiter.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| Script::new(file!("end")));
/// Hands an exclusive hold over within the process.
pub(crate) static HAND_OVER: LazyLock<Script> = LazyLock::new(|| Script::new(file!("hand_over")));
/// Makes an exclusive hold a shared one.
pub(crate) static DOWNGRADE: LazyLock<Script> = LazyLock::new(|| Script::new(file!("downgrade")));
/// Replies who has the lock.
pub(crate) static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(file!("status")));

/// What several scripts include. An earlier fragment may include a later one.
const FRAGMENTS: [(&str, &str); 6] = [
    ("next_token", file!("next_token")),
    ("fence", file!("fence")),
    ("extend", file!("extend")),
    ("sharers", file!("sharers")),
    ("queue", file!("queue")),
    ("admit", file!("admit")),
];

/// All scripts, to be loaded when a connection is made.
pub(crate) fn all() -> [&'static Script; 7] {
    [&ACQUIRE, &CONFIRM, &RENEW, &END, &HAND_OVER, &DOWNGRADE, &STATUS]
}

impl Script {
    pub(crate) fn new(text: &str) -> Self {
        let include =
            |text: String, (name, fragment): &(&str, &str)| text.replace(&format!("-- include {name}.lua\n"), fragment);
        let text = FRAGMENTS.iter().fold(text.to_owned(), include);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Loads the script without running it.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Runs the script by its hash, if the server knows it.
    pub(crate) fn run(&self, keys: &[&str], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        invocation("EVALSHA", &self.hash, keys, arguments)
    }

    /// Runs the script by its text, which the server then knows.
    pub(crate) fn run_with_text(&self, keys: &[&str], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        invocation("EVAL", &self.text, keys, arguments)
    }
}

fn invocation(name: &str, script: &str, keys: &[&str], arguments: &[impl AsRef<[u8]>]) -> Cmd {
    let texts = || {
        keys.iter()
            .map(|key| key.as_bytes())
            .chain(arguments.iter().map(AsRef::as_ref))
    };
    let size = name.len() + script.len() + 1 + texts().map(<[u8]>::len).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), size);
    command.arg(name).arg(script).arg(keys.len());
    for text in texts() {
        command.arg(text);
    }
    command
}

/// The terms of a request at one moment, as the scripts take them.
pub(crate) struct RequestTerms {
    pub(crate) ttl: String,
    pub(crate) label: String,
    pub(crate) floor: String,
}

impl RequestTerms {
    pub(crate) fn new(request: &AcquireRequest, ttl: Duration) -> Self {
        Self {
            ttl: millis(ttl),
            label: request.label().map_or_else(String::new, |label| format!(" {label}")),
            floor: request.token_floor().map_or(0, u64::from).to_string(),
        }
    }
}

/// As the server counts: whole milliseconds, rounded up.
pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

pub(crate) fn unexpected_reply() -> Error {
    let what = "Redis answered a script with something that it cannot answer: is a proxy in between?";
    Error::new(ErrorKind::Unexpected, what)
}

pub(crate) fn retired_holder() -> Error {
    Error::new(ErrorKind::Unexpected, "this holder id was abandoned or released before")
}

pub(crate) fn base_ended() -> Error {
    let what = "the upgradable hold has ended, so it cannot become exclusive: acquire the lock again";
    Error::new(ErrorKind::Lost, what)
}

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

/// The reply to a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    Granted(FencingToken),
    /// The giver does not have the hold.
    NotHeld,
    /// The next holder id was abandoned or released before.
    NextRetired,
    /// Somebody waits at the server, and the giver still has the hold.
    Yields,
}

/// How many tokens an exclusive grant comes with, its own included, if `asked` were asked for: at most as many as the script
/// `next_token.lua` reserves.
pub(crate) fn reserved(token: FencingToken, asked: u32) -> u32 {
    const RESERVED: u32 = 16;
    const EXACT: u64 = 9_007_199_254_740_000;
    match token.as_u64() < EXACT {
        true => asked.min(1 + RESERVED),
        false => 1,
    }
}

/// The reply to a release or an abandon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Whether the holder id had the hold.
    pub(crate) was_held: bool,
    /// Whether a connected waiter may stand behind the queue entries that were searched.
    pub(crate) more: bool,
}

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) holder: Holder,
    /// `None`: the hold has no end.
    pub(crate) expires_in: Option<Duration>,
    /// How many queue entries come before the asker's; `None`: it has none.
    pub(crate) ahead: Option<u32>,
}

/// What the value of a lock's key says: `ID TOKEN TERM[ LABEL]`, where the token is 0 as long as the name is only offered
/// to that id, and the id of a name that is kept for a minimum time is `kept` and the moment when that is over. Of a name
/// that is shared it says `shared TOKEN EXPIRES CLEARED[ LABEL]` or the same with `permits`, with the token and the label of
/// the last grant. A value of another client's making is not parsed, since it may be a secret.
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

/// `None`: no reply of our script.
pub(crate) fn status(reply: &Value) -> Option<LockStatus> {
    let Value::Array(parts) = reply else { return None };
    let [value, Value::Int(left), Value::Int(waiting), Value::Array(sharers)] = &parts[..] else {
        return None;
    };
    let status = match value {
        Value::Nil => LockStatus::free(),
        Value::BulkString(value) => match Holder::parse(value) {
            Holder::Several { .. } => LockStatus::held_by(sharers_of(sharers)?),
            holder => LockStatus::held(holder.status(remaining(*left))),
        },
        _ => return None,
    };
    Some(status.with_waiting(usize::try_from(*waiting).ok()?))
}

/// Those who share a name, by the terms and the ms left of each: in the order of their grants, and then offers.
fn sharers_of(parts: &[Value]) -> Option<Vec<HolderStatus>> {
    let of = |pair: &[Value]| match pair {
        [Value::BulkString(terms), Value::Int(left)] => {
            let mut status = sharer(&String::from_utf8_lossy(terms))?;
            status.expires_in = remaining(*left);
            Some(status)
        }
        _ => None,
    };
    let mut sharers = parts.chunks(2).map(of).collect::<Option<Vec<_>>>()?;
    sharers.sort_by_key(|sharer| (sharer.token.is_none(), sharer.token));
    Some(sharers)
}

/// One who shares a name, by its terms: `TOKEN TERM MODE[ LABEL]`. The token is 0 as long as the name is only offered to it.
fn sharer(terms: &str) -> Option<HolderStatus> {
    let mut parts = terms.splitn(4, ' ');
    let (token, _term, mode) = (parts.next()?, parts.next()?, parts.next()?);
    let mut status = HolderStatus::new().with_mode(mode::parse(mode)?);
    status.token = token_or_offer(token)?;
    status.label = parts.next().map(Into::into);
    Some(status)
}

/// `None`: no reply of our script.
pub(crate) fn handed_over(reply: &Value) -> Option<HandedOver> {
    Some(match reply {
        Value::Nil => HandedOver::NotHeld,
        Value::Int(0) => HandedOver::NextRetired,
        Value::Int(-1) => HandedOver::Yields,
        reply => HandedOver::Granted(granted(reply)?),
    })
}

/// `None`: no reply of our script.
pub(crate) fn ended(reply: &Value) -> Option<Ended> {
    let Value::Int(bits @ 0..=3) = *reply else { return None };
    Some(Ended {
        was_held: bits & 1 != 0,
        more: bits & 2 != 0,
    })
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

/// Whether the hold was renewed; `None`: no reply of our script.
pub(crate) fn renewed(reply: &Value) -> Option<bool> {
    match reply {
        Value::Int(1) => Some(true),
        Value::Int(0) => Some(false),
        _ => None,
    }
}

impl Holder {
    fn parse(value: &[u8]) -> Self {
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
    fn status(self, expires_in: Option<Duration>) -> HolderStatus {
        let mut status = HolderStatus::new();
        status.expires_in = expires_in;
        if let Self::Ours { token, label } = self {
            status = status.with_mode(Mode::Exclusive);
            status.token = token;
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

#[cfg(test)]
mod tests;
