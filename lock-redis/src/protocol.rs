//! The wire protocol: the scripts, each of which the server runs in one step, their arguments and replies, and the
//! value of a lock's key.

use std::sync::LazyLock;
use std::time::Duration;

use lock_core::{Error, ErrorKind, FencingToken};
use redis::{Cmd, cmd};

pub(crate) use self::ask::{Ask, Entry};
pub(crate) use self::replies::{
    Acquired, Holder, Taken, acquired, ended, is_of_shared, renewed, revoked, status, status_with_waiters,
};
pub(crate) use self::together::{Kind, Request};

pub(crate) mod arguments;
mod ask;
mod files;
pub(crate) mod mode;
mod replies;
mod together;

/// A Lua script, in a form for each way to wake waiters.
#[derive(Debug)]
pub(crate) struct Script {
    plain: ScriptForm,
    sharded: ScriptForm,
    /// The same, but first it checks that the server has not been promoted.
    checked: Option<&'static LazyLock<Script>>,
    /// How its requests go out together, if they can.
    gathered_as: Option<Kind>,
}

/// The text of a script and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct ScriptForm {
    text: String,
    hash: String,
}

/// The way in which a server wakes waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PubSub {
    /// By `PUBLISH`, on a channel for all names.
    Plain,
    /// By `SPUBLISH`, on a channel in the hash slot of the name: in a cluster, only this one reaches its master's scripts.
    Sharded,
}

/// Grants, repeats a grant, or replies who has the lock and adds a queue entry.
pub(crate) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(files::ACQUIRE)
        .checked_by(&CHECKED_ACQUIRE)
        .gathered_as(Kind::Grant)
});
/// The same for a waiter that has a queue entry. It works however full the memory is: what it writes replaces the entry or
/// the offer, so that nothing of it piles up.
pub(crate) static CONFIRM: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[ALLOW_OOM, files::ACQUIRE].concat()).checked_by(&CHECKED_CONFIRM));
/// Grants many names that are free.
pub(crate) static GRANT_TOGETHER: LazyLock<Script> =
    LazyLock::new(|| Script::new(files::GRANT_TOGETHER).checked_by(&CHECKED_GRANT_TOGETHER));
static CHECKED_GRANT_TOGETHER: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[SAME_DATA, files::GRANT_TOGETHER].concat()));
static CHECKED_ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(&[SAME_DATA, files::ACQUIRE].concat()));
static CHECKED_CONFIRM: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[ALLOW_OOM, SAME_DATA, files::ACQUIRE].concat()));
/// The script works however full the memory is.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";
/// First the script checks that the server has not been promoted.
const SAME_DATA: &str = "-- include same_data.lua\n";
/// Moves the end of a hold forward.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(files::RENEW).gathered_as(Kind::Renew));
/// The same for many names that only one holder may have.
pub(crate) static RENEW_TOGETHER: LazyLock<Script> = LazyLock::new(|| Script::new(files::RENEW_TOGETHER));
/// Releases or abandons, and offers the name to the next waiter.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| Script::new(files::END).gathered_as(Kind::End));
/// The same for many names that only one holder may have, and for which nobody waits.
pub(crate) static END_TOGETHER: LazyLock<Script> = LazyLock::new(|| Script::new(files::END_TOGETHER));
/// Makes an exclusive hold a shared one.
pub(crate) static DOWNGRADE: LazyLock<Script> = LazyLock::new(|| Script::new(files::DOWNGRADE));
/// Has the fence count a hold's token as at least another one.
pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(files::RAISE));
/// Puts a hold back that the server has forgotten.
pub(crate) static REINSTATE: LazyLock<Script> = LazyLock::new(|| Script::new(files::REINSTATE));
/// Finds out since when the server has its data.
pub(crate) static MARK: LazyLock<Script> = LazyLock::new(|| Script::new(files::MARK));
/// Writes a lock's key as it is, so that replicas can be asked who has it.
pub(crate) static WRITE_AGAIN: LazyLock<Script> = LazyLock::new(|| Script::new(files::WRITE_AGAIN));
/// Ends the hold of somebody else.
pub(crate) static REVOKE: LazyLock<Script> = LazyLock::new(|| Script::new(files::REVOKE));
/// Replies whether a hold that is lost was revoked.
pub(crate) static WAS_REVOKED: LazyLock<Script> = LazyLock::new(|| Script::new(files::WAS_REVOKED));
/// Replies who has the lock.
pub(crate) static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(files::STATUS));

/// All scripts that are often run, to be loaded when a connection is made.
pub(crate) fn all(are_checked: bool) -> [&'static Script; 10] {
    let all: [&'static Script; 10] = [
        &ACQUIRE,
        &CONFIRM,
        &GRANT_TOGETHER,
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
        let plain = files::with_fragments(text);
        let sharded = plain
            .replace("redis.call('PUBLISH',", "redis.call('SPUBLISH',")
            .replace("redis.call('PUBSUB', 'NUMSUB',", "redis.call('PUBSUB', 'SHARDNUMSUB',");
        Self {
            plain: ScriptForm::new(plain),
            sharded: ScriptForm::new(sharded),
            checked: None,
            gathered_as: None,
        }
    }

    fn checked_by(self, checked: &'static LazyLock<Script>) -> Self {
        Self {
            checked: Some(checked),
            ..self
        }
    }

    fn gathered_as(self, kind: Kind) -> Self {
        Self {
            gathered_as: Some(kind),
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

/// The number of keys has no more digits than this.
const DIGITS: usize = 3;

fn invocation(name: &str, script: &str, keys: &[&str], arguments: &[impl AsRef<[u8]>]) -> Cmd {
    let texts = || {
        keys.iter()
            .map(|key| key.as_bytes())
            .chain(arguments.iter().map(AsRef::as_ref))
    };
    let size = name.len() + script.len() + DIGITS + texts().map(<[u8]>::len).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), size);
    command.arg(name).arg(script).arg(keys.len());
    for text in texts() {
        command.arg(text);
    }
    command
}

/// As the server counts: whole milliseconds, rounded up.
pub(crate) fn millis(ttl: Duration) -> String {
    let below_a_second = u64::from(ttl.subsec_nanos().div_ceil(1_000_000));
    ttl.as_secs()
        .saturating_mul(1000)
        .saturating_add(below_a_second)
        .to_string()
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

/// The number of tokens that the script `next_token.lua` reserves behind that of an exclusive grant.
const RESERVED: u32 = 16;

/// The number of tokens of an exclusive grant, its own included, if the request asked for `asked`.
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
mod fuzz;
#[cfg(test)]
mod tests;
