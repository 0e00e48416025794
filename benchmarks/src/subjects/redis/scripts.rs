//! The scripts of `lock-redis` itself.

use lock_redis::redis::Script;

#[allow(dead_code, reason = "not all scripts are run by the bare client")]
#[path = "../../../../lock-redis/src/protocol/arguments.rs"]
pub(super) mod arguments;
#[allow(dead_code, reason = "not all scripts are run by the bare client")]
#[path = "../../../../lock-redis/src/protocol/files.rs"]
mod files;

#[derive(Clone)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) renew: Script,
    pub(super) end: Script,
}

impl Scripts {
    pub(super) fn read() -> Self {
        Self {
            acquire: script(files::ACQUIRE),
            renew: script(files::RENEW),
            end: script(files::END),
        }
    }
}

fn script(file: &str) -> Script {
    Script::new(&files::with_fragments(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_be_included() {
        for file in [files::ACQUIRE, files::RENEW, files::END] {
            let text = files::with_fragments(file);
            assert!(text.contains("KEYS") && !text.contains("-- include"), "{text}");
        }
    }
}
