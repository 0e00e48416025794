//! The files of `lock-redis` itself, each with what it includes.

use lock_redis::redis::Script;

#[derive(Clone)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) renew: Script,
    pub(super) end: Script,
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../../../../lock-redis/src/protocol/scripts/", $name, ".lua"))
    };
}

/// Later ones may stand in earlier ones.
const FRAGMENTS: [(&str, &str); 6] = [
    ("next_token", file!("next_token")),
    ("fence", file!("fence")),
    ("extend", file!("extend")),
    ("sharers", file!("sharers")),
    ("queue", file!("queue")),
    ("admit", file!("admit")),
];

impl Scripts {
    pub(super) fn read() -> Self {
        Self {
            acquire: script(file!("acquire")),
            renew: script(file!("renew")),
            end: script(file!("end")),
        }
    }
}

fn script(file: &str) -> Script {
    Script::new(&with_fragments(file))
}

fn with_fragments(file: &str) -> String {
    let include = |text: String, (name, fragment): &(&str, &str)| {
        let line = format!("-- include {name}.lua\n");
        text.replace(&line, fragment)
    };
    FRAGMENTS.iter().fold(file.to_owned(), include)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_be_included() {
        for file in [file!("acquire"), file!("renew"), file!("end")] {
            let text = with_fragments(file);
            assert!(text.contains("KEYS") && !text.contains("-- include"), "{text}");
        }
    }
}
