//! The files of the scripts, and the fragments that they include. It depends on nothing else, so that tests and benchmarks may
//! read it by its path.

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("scripts/", $name, ".lua"))
    };
}

pub(crate) const ACQUIRE: &str = file!("acquire");
pub(crate) const GRANT_TOGETHER: &str = file!("grant_together");
pub(crate) const RENEW: &str = file!("renew");
pub(crate) const RENEW_TOGETHER: &str = file!("renew_together");
pub(crate) const END: &str = file!("end");
pub(crate) const END_TOGETHER: &str = file!("end_together");
pub(crate) const DOWNGRADE: &str = file!("downgrade");
pub(crate) const RAISE: &str = file!("raise");
pub(crate) const REINSTATE: &str = file!("reinstate");
pub(crate) const MARK: &str = file!("mark");
pub(crate) const WRITE_AGAIN: &str = file!("write_again");
pub(crate) const REVOKE: &str = file!("revoke");
pub(crate) const WAS_REVOKED: &str = file!("was_revoked");
pub(crate) const STATUS: &str = file!("status");

/// The fragments that several scripts include. An earlier one may include a later one.
pub(crate) const FRAGMENTS: [(&str, &str); 12] = [
    ("same_data", file!("same_data")),
    ("grant_at_once", file!("grant_at_once")),
    ("clock", file!("clock")),
    ("last_reserved", file!("last_reserved")),
    ("other_keys", file!("other_keys")),
    ("next_token", file!("next_token")),
    ("end_of_hold", file!("end_of_hold")),
    ("fence", file!("fence")),
    ("extend", file!("extend")),
    ("sharers", file!("sharers")),
    ("queue", file!("queue")),
    ("admit", file!("admit")),
];

/// A script with all that it includes.
pub(crate) fn with_fragments(script: &str) -> String {
    include(script, &FRAGMENTS)
}

/// A script with those of the fragments that it includes.
pub(crate) fn include(script: &str, fragments: &[(&str, &str)]) -> String {
    let include = |text: String, (name, fragment): &(&str, &str)| {
        let line = format!("-- include {name}.lua\n");
        text.replace(&line, fragment)
    };
    fragments.iter().fold(script.to_owned(), include)
}
