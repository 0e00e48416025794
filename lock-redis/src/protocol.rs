//! The scripts that the server runs, each in one step.

use std::sync::LazyLock;

use redis::{Cmd, cmd};

pub(crate) mod reply;

/// A Lua script and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// Grants, repeats a grant, or says who has it and keeps a place.
pub(crate) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("protocol/scripts/acquire.lua")));
/// The same for one that has a place. It works however full the memory is: what it writes replaces the place or the
/// offer, so that nothing of it piles up.
pub(crate) static CONFIRM: LazyLock<Script> = LazyLock::new(|| {
    let text = concat!("#!lua flags=allow-oom\n", include_str!("protocol/scripts/acquire.lua"));
    Script::new(text)
});
/// Moves the end of a hold forward.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("protocol/scripts/renew.lua")));
/// Releases or abandons, and passes on.
pub(crate) static END: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("protocol/scripts/end.lua")));
/// Passes a hold on within the process.
pub(crate) static HAND_OVER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("protocol/scripts/hand_over.lua")));
/// Says who has it.
pub(crate) static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("protocol/scripts/status.lua")));

/// What several of them share. Later ones may stand in earlier ones.
const FRAGMENTS: [(&str, &str); 5] = [
    (
        "-- include next_token.lua\n",
        include_str!("protocol/scripts/next_token.lua"),
    ),
    ("-- include fence.lua\n", include_str!("protocol/scripts/fence.lua")),
    ("-- include extend.lua\n", include_str!("protocol/scripts/extend.lua")),
    ("-- include queue.lua\n", include_str!("protocol/scripts/queue.lua")),
    ("-- include places.lua\n", include_str!("protocol/scripts/places.lua")),
];

/// All of them, to be loaded ahead.
pub(crate) fn all() -> [&'static Script; 6] {
    [&ACQUIRE, &CONFIRM, &RENEW, &END, &HAND_OVER, &STATUS]
}

impl Script {
    pub(crate) fn new(text: &str) -> Self {
        let include = |text: String, (line, fragment): &(&str, &str)| text.replace(line, fragment);
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
