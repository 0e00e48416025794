//! What goes over the wire: the scripts, each of which the server runs in one step, their arguments and replies, and the value
//! of a lock's key.

use std::sync::LazyLock;
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, FencingToken};
use redis::{Cmd, cmd};

pub(crate) use self::replies::{
    Acquired, Holder, RenewedOne, Taken, acquired, ended, is_of_shared, renewed, renewed_together, revoked, status,
    status_with_waiters,
};

pub(crate) mod mode;
mod replies;

/// A Lua script, in a form for each way to wake waiters.
#[derive(Debug)]
pub(crate) struct Script {
    plain: ScriptForm,
    sharded: ScriptForm,
    /// The same, but first it checks that the server has not been promoted.
    checked: Option<&'static LazyLock<Script>>,
}

/// The text of a script and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct ScriptForm {
    text: String,
    hash: String,
}

/// How a server wakes waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PubSub {
    /// By `PUBLISH`, on a channel for all names.
    Plain,
    /// By `SPUBLISH`, on a channel in the hash slot of the name: in a cluster, only this one reaches its master's scripts.
    Sharded,
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("protocol/scripts/", $name, ".lua"))
    };
}

/// Grants, repeats a grant, or replies who has the lock and adds a queue entry.
pub(crate) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(file!("acquire")).checked_by(&CHECKED_ACQUIRE));
/// The same for a waiter that has a queue entry. It works however full the memory is: what it writes replaces the entry or
/// the offer, so that nothing of it piles up.
pub(crate) static CONFIRM: LazyLock<Script> = LazyLock::new(|| {
    let text = concat!("#!lua flags=allow-oom\n", file!("acquire"));
    Script::new(text).checked_by(&CHECKED_CONFIRM)
});
static CHECKED_ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!("-- include same_data.lua\n", file!("acquire"))));
static CHECKED_CONFIRM: LazyLock<Script> = LazyLock::new(|| {
    let text = concat!("#!lua flags=allow-oom\n-- include same_data.lua\n", file!("acquire"));
    Script::new(text)
});
/// Moves the end of a hold forward.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(file!("renew")));
/// The same for many names that only one holder may have.
pub(crate) static RENEW_TOGETHER: LazyLock<Script> = LazyLock::new(|| Script::new(file!("renew_together")));
/// Releases or abandons, and offers the name to the next waiter.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| Script::new(file!("end")));
/// Ends what many exclusive holders have, where nobody waits.
pub(crate) static END_TOGETHER: LazyLock<Script> = LazyLock::new(|| Script::new(file!("end_together")));
/// Makes an exclusive hold a shared one.
pub(crate) static DOWNGRADE: LazyLock<Script> = LazyLock::new(|| Script::new(file!("downgrade")));
/// Has the fence count a hold's token as at least another one.
pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(file!("raise")));
/// Puts a hold back that the server has forgotten.
pub(crate) static REINSTATE: LazyLock<Script> = LazyLock::new(|| Script::new(file!("reinstate")));
/// Finds out since when the server has its data.
pub(crate) static MARK: LazyLock<Script> = LazyLock::new(|| Script::new(file!("mark")));
/// Writes a lock's key as it is, so that replicas can be asked who has it.
pub(crate) static WRITE_AGAIN: LazyLock<Script> = LazyLock::new(|| Script::new(file!("write_again")));
/// Ends the hold of somebody else.
pub(crate) static REVOKE: LazyLock<Script> = LazyLock::new(|| {
    let (_flags, end) = file!("end").split_once('\n').expect("it begins with its flags");
    Script::new(&file!("revoke").replace("-- include end.lua\n", end))
});
/// Whether a hold that is lost was revoked.
pub(crate) static WAS_REVOKED: LazyLock<Script> = LazyLock::new(|| Script::new(file!("was_revoked")));
/// Replies who has the lock.
pub(crate) static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(file!("status")));

/// What several scripts include. An earlier fragment may include a later one.
const FRAGMENTS: [(&str, &str); 7] = [
    ("same_data", file!("same_data")),
    ("next_token", file!("next_token")),
    ("fence", file!("fence")),
    ("extend", file!("extend")),
    ("sharers", file!("sharers")),
    ("queue", file!("queue")),
    ("admit", file!("admit")),
];

/// All scripts that are often run, to be loaded when a connection is made.
pub(crate) fn all(are_checked: bool) -> [&'static Script; 9] {
    let all: [&'static Script; 9] = [
        &ACQUIRE,
        &CONFIRM,
        &RENEW,
        &RENEW_TOGETHER,
        &END,
        &END_TOGETHER,
        &DOWNGRADE,
        &RAISE,
        &STATUS,
    ];
    match are_checked {
        true => all.map(|script| script.checked().unwrap_or(script)),
        false => all,
    }
}

impl Script {
    pub(crate) fn new(text: &str) -> Self {
        let include =
            |text: String, (name, fragment): &(&str, &str)| text.replace(&format!("-- include {name}.lua\n"), fragment);
        let plain = FRAGMENTS.iter().fold(text.to_owned(), include);
        let sharded = plain
            .replace("redis.call('PUBLISH',", "redis.call('SPUBLISH',")
            .replace("redis.call('PUBSUB', 'NUMSUB',", "redis.call('PUBSUB', 'SHARDNUMSUB',");
        Self {
            plain: ScriptForm::new(plain),
            sharded: ScriptForm::new(sharded),
            checked: None,
        }
    }

    fn checked_by(self, checked: &'static LazyLock<Script>) -> Self {
        Self {
            checked: Some(checked),
            ..self
        }
    }

    /// The same that first checks that the server has not been promoted: of a script that grants. It takes `master_replid` as
    /// one argument more.
    pub(crate) fn checked(&self) -> Option<&'static Script> {
        self.checked.map(|script| &**script)
    }

    pub(crate) fn form(&self, wakes: PubSub) -> &ScriptForm {
        match wakes {
            PubSub::Plain => &self.plain,
            PubSub::Sharded => &self.sharded,
        }
    }
}

impl ScriptForm {
    fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
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

/// What the scripts [`ACQUIRE`] and [`CONFIRM`] take.
pub(crate) struct AcquireArguments<'a> {
    /// Whether the asker enters the queue if the name is taken.
    pub(crate) waits: bool,
    pub(crate) may_have_entry: bool,
    /// Whether it asks for a grant that it did not have before.
    pub(crate) is_fresh: bool,
    pub(crate) all: [&'a str; 9],
}

impl AcquireArguments<'_> {
    pub(crate) fn script(&self) -> &'static Script {
        match self.waits && self.may_have_entry {
            true => &CONFIRM,
            false => &ACQUIRE,
        }
    }

    /// The channel on which the asker is woken.
    pub(crate) fn inbox(&self) -> &str {
        self.all[6]
    }

    pub(crate) fn all(&self) -> &[&str] {
        match self.waits {
            true => &self.all,
            false => self.without_queue(),
        }
    }

    /// Those of a request that does not enter the queue.
    pub(crate) fn without_queue(&self) -> &[&str] {
        &self.all[..6]
    }
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
            floor: floor(request.token_floor(), request.token_at_least()),
        }
    }
}

/// The token that a grant has to exceed; or, after `=`, the one that it has to reach without the server's clock.
fn floor(above: Option<FencingToken>, at_least: Option<FencingToken>) -> String {
    let above = above.map_or(0, FencingToken::as_u64);
    match at_least {
        Some(token) => format!("={}", token.as_u64().max(above.saturating_add(1))),
        None => above.to_string(),
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

/// How many tokens the script `next_token.lua` reserves behind that of an exclusive grant.
const RESERVED: u32 = 16;

/// How many tokens an exclusive grant comes with, its own included, if `asked` were asked for.
pub(crate) fn reserved(token: FencingToken, asked: u32) -> u32 {
    match reserves(token) {
        true => asked.min(1 + RESERVED),
        false => 1,
    }
}

/// The last token that a grant in this mode leaves in the fence.
pub(crate) fn last_token(token: FencingToken, mode: &str) -> u64 {
    match mode == mode::EXCLUSIVE && reserves(token) {
        true => token.as_u64() + u64::from(RESERVED),
        false => token.as_u64(),
    }
}

fn reserves(token: FencingToken) -> bool {
    const EXACT: u64 = 9_007_199_254_740_000;
    token.as_u64() < EXACT
}

#[cfg(test)]
mod tests;
