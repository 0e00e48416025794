//! What goes over the wire: the scripts that the server runs, each in one step, their arguments, their answers, and what the
//! value of a lock's key says.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Busy, HolderId, HolderStatus};
use lock_core::{Error, ErrorKind, FencingToken};
use redis::{Cmd, Value, cmd};

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

/// Grants, repeats a grant, or says who has it and keeps a place.
pub(crate) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(file!("acquire")));
/// The same for one that has a place. It works however full the memory is: what it writes replaces the place or the
/// offer, so that nothing of it piles up.
pub(crate) static CONFIRM: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!("#!lua flags=allow-oom\n", file!("acquire"))));
/// Moves the end of a hold forward.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(file!("renew")));
/// Releases or abandons, and passes on.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| Script::new(file!("end")));
/// Passes a hold on within the process.
pub(crate) static HAND_OVER: LazyLock<Script> = LazyLock::new(|| Script::new(file!("hand_over")));
/// Says who has it.
pub(crate) static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(file!("status")));

/// What several of them share. Later ones may stand in earlier ones.
const FRAGMENTS: [(&str, &str); 4] = [
    ("next_token", file!("next_token")),
    ("fence", file!("fence")),
    ("extend", file!("extend")),
    ("queue", file!("queue")),
];

/// All of them, to be loaded ahead.
pub(crate) fn all() -> [&'static Script; 6] {
    [&ACQUIRE, &CONFIRM, &RENEW, &END, &HAND_OVER, &STATUS]
}

impl Script {
    pub(crate) fn new(text: &str) -> Self {
        let include =
            |text: String, (name, fragment): &(&str, &str)| text.replace(&format!("-- include {name}.lua\n"), fragment);
        let text = FRAGMENTS.iter().fold(text.to_owned(), include);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Loads it without running it.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Runs it, if the server knows it.
    pub(crate) fn run(&self, keys: &[&str], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        invocation("EVALSHA", &self.hash, keys, arguments)
    }

    /// Runs it for a server that does not know it, which then does.
    pub(crate) fn run_in_full(&self, keys: &[&str], arguments: &[impl AsRef<[u8]>]) -> Cmd {
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
pub(crate) struct Terms {
    pub(crate) ttl: String,
    pub(crate) label: String,
    pub(crate) floor: String,
}

impl Terms {
    pub(crate) fn of(request: &AcquireRequest, ttl: Duration) -> Self {
        Self {
            ttl: millis(ttl),
            label: request.label().map_or_else(String::new, |label| format!(" {label}")),
            floor: request.token_floor().map_or(0, u64::from).to_string(),
        }
    }
}

/// As the server counts: whole milliseconds, never less than asked for.
pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

pub(crate) fn unexpected() -> Error {
    let what = "Redis answered a script with something that it cannot answer: is a proxy in between?";
    Error::new(ErrorKind::Unexpected, what)
}

pub(crate) fn dead() -> Error {
    Error::new(ErrorKind::Unexpected, "this holder id was abandoned or released before")
}

/// The answer to an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    Taken(Taken),
    /// The holder id was ended before.
    Dead,
}

/// The answer to a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    Granted(FencingToken),
    NotTheGivers,
    /// The next holder id was ended before.
    Dead,
}

/// The answer to a release or an abandon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Whether the hold was the holder's.
    pub(crate) had_it: bool,
    /// Whether somebody may wait behind the places that were looked at.
    pub(crate) more: bool,
}

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) holder: Holder,
    /// `None`: the hold has no end.
    pub(crate) rest: Option<Duration>,
    /// How many places come before the asker's; `None`: it has none.
    pub(crate) ahead: Option<u32>,
}

/// What the value of a lock's key says: `ID TOKEN TERM[ LABEL]`, where the token is 0 as long as the name is only offered
/// to that id, and the id of a name that is kept for a minimum time is `kept` and the moment when that is over. Of a
/// value of somebody else's making it says nothing, since that may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Ours {
        token: Option<FencingToken>,
        label: Option<Arc<str>>,
    },
    Foreign,
}

/// Who has a name, if anybody, and how many wait for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) taken: Option<Taken>,
    pub(crate) waiting: usize,
}

/// `None`: no answer of our script.
pub(crate) fn acquired(answer: &Value) -> Option<Acquired> {
    match answer {
        Value::Array(parts) => Some(Acquired::Taken(taken(parts)?)),
        Value::Int(0) => Some(Acquired::Dead),
        answer => Some(Acquired::Granted(granted(answer)?)),
    }
}

/// `None`: no answer of our script.
pub(crate) fn status(answer: &Value) -> Option<Status> {
    let Value::Array(parts) = answer else { return None };
    let [value, Value::Int(left), Value::Int(waiting)] = &parts[..] else {
        return None;
    };
    let taken = match value {
        Value::Nil => None,
        Value::BulkString(value) => Some(Taken {
            holder: Holder::parse(value),
            rest: rest(*left),
            ahead: None,
        }),
        _ => return None,
    };
    Some(Status {
        taken,
        waiting: usize::try_from(*waiting).ok()?,
    })
}

/// `None`: no answer of our script.
pub(crate) fn handed_over(answer: &Value) -> Option<HandedOver> {
    Some(match answer {
        Value::Nil => HandedOver::NotTheGivers,
        Value::Int(0) => HandedOver::Dead,
        answer => HandedOver::Granted(granted(answer)?),
    })
}

/// `None`: no answer of our script.
pub(crate) fn ended(answer: &Value) -> Option<Ended> {
    let Value::Int(bits @ 0..=3) = *answer else { return None };
    Some(Ended {
        had_it: bits & 1 != 0,
        more: bits & 2 != 0,
    })
}

fn taken(parts: &[Value]) -> Option<Taken> {
    let [Value::BulkString(value), Value::Int(left), Value::Int(ahead)] = parts else {
        return None;
    };
    Some(Taken {
        holder: Holder::parse(value),
        rest: rest(*left),
        ahead: u32::try_from(*ahead).ok(),
    })
}

fn granted(answer: &Value) -> Option<FencingToken> {
    let Value::BulkString(token) = answer else { return None };
    token_of(std::str::from_utf8(token).ok()?)
}

fn rest(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// The answer of a script that says yes or no.
pub(crate) fn is_yes(answer: &Value) -> Option<bool> {
    match answer {
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
        if id.len() != HolderId::HEX_DIGITS || !id.strip_prefix("kept").unwrap_or(id).bytes().all(is_hex) {
            return None;
        }
        term.parse::<u64>().ok()?;
        let token = match token {
            "0" => None,
            token => Some(token_of(token)?),
        };
        let label = parts.next().map(Into::into);
        Some(Self::Ours { token, label })
    }
}

impl Taken {
    pub(crate) fn busy(&self) -> Busy {
        match &self.holder {
            Holder::Ours { label: Some(label), .. } => Busy::new().with_holder(label.clone()),
            _ => Busy::new(),
        }
    }
}

impl From<Taken> for HolderStatus {
    fn from(taken: Taken) -> Self {
        let mut status = Self::new();
        status.expires_in = taken.rest;
        if let Holder::Ours { token, label } = taken.holder {
            status.token = token;
            status.label = label;
        }
        status
    }
}

fn token_of(digits: &str) -> Option<FencingToken> {
    FencingToken::new(digits.parse().ok()?)
}

#[cfg(test)]
mod tests;
