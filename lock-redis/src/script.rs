//! The scripts that the server runs, each in one step.

use std::sync::LazyLock;

use redis::{Cmd, cmd};

/// A Lua script and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// Grants, repeats a grant, or says who has it.
pub(crate) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/acquire.lua")));
/// Moves the end of a hold forward.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/renew.lua")));
/// Releases or abandons.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/end.lua")));
/// The same, and sees to it that the holder id stays dead.
pub(crate) static BURY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/bury.lua")));
/// Says who has it.
pub(crate) static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/status.lua")));

/// All of them, to be loaded ahead.
pub(crate) fn all() -> [&'static Script; 5] {
    [&ACQUIRE, &RENEW, &END, &BURY, &STATUS]
}

impl Script {
    fn new(text: &str) -> Self {
        let text = text.replace("-- include fence.lua\n", include_str!("scripts/fence.lua"));
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
    pub(crate) fn run(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        invocation("EVALSHA", &self.hash, keys, arguments)
    }

    /// Runs it for a server that does not know it, which then does.
    pub(crate) fn run_in_full(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        invocation("EVAL", &self.text, keys, arguments)
    }
}

fn invocation(name: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let mut command = cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
