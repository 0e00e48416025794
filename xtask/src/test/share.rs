//! Which tests an extra server version has, where not all are wanted: of a backend's own tests, and of its modules in the
//! conformance suite.

use std::hash::{DefaultHasher, Hash, Hasher};

use testbed::Edition;

use super::run;
use super::steps::Step;
use crate::Result;

/// Of this many tests, each extra version has one.
const ONE_OF: u64 = 3;

/// The step with its share of the tests alone. The tests are listed by the programs that the step runs.
pub(crate) fn take(mut step: Step, edition: Edition) -> Result<Step> {
    let listed = list(&step)?;
    let names: Vec<&str> = tests(&listed).collect();
    step.chosen = names
        .iter()
        .filter(|test| has(edition, test))
        .map(|&test| test.into())
        .collect();
    if step.chosen.is_empty() {
        return Err(format!("none of {} tests was chosen", names.len()));
    }
    say(step.chosen.len(), names.len(), edition);
    Ok(step)
}

/// The step without the tests that the modules of extra versions do not have.
pub(crate) fn leave_out(mut step: Step) -> Result<Step> {
    let listed = list(&step)?;
    for edition in Edition::EXTRA {
        let names: Vec<&str> = tests(&listed).filter(|test| is_on(edition, test)).collect();
        let others = names.iter().filter(|test| !has(edition, test) && !is_vital(test));
        let before = step.left_out.len();
        step.left_out.extend(others.map(|&test| test.into()));
        let chosen = names.len() - (step.left_out.len() - before);
        if chosen == 0 {
            return Err(format!(
                "none of {} tests on {} was chosen",
                names.len(),
                edition.name()
            ));
        }
        say(chosen, names.len(), edition);
    }
    Ok(step)
}

fn say(chosen: usize, all: usize, edition: Edition) {
    println!(
        "\n{chosen} of {all} tests run on {}; `cargo xtask test --all` runs them all",
        edition.name()
    );
}

fn list(step: &Step) -> Result<String> {
    let mut list = run::cargo();
    list.args(&step.arguments)
        .args(["--quiet", "--", "--list", "--format", "terse"])
        .envs(step.environment.iter().cloned());
    let output = list.output().map_err(|error| format!("listing the tests: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "listing the tests: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn tests(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| line.strip_suffix(": test"))
}

/// The suite's modules are called after the version, and then after the setup.
fn is_on(edition: Edition, test: &str) -> bool {
    let of_setup = test.strip_prefix(edition.name());
    of_setup.is_some_and(|rest| rest.starts_with("::") || (rest.starts_with('_') && rest.contains("::")))
}

/// Each version has those without which it is no lock.
fn is_vital(test: &str) -> bool {
    const VITAL: [&str; 6] = [
        "exclusion_between_",
        "another_process_excludes_us",
        "a_killed_process_frees_its_lock",
        "a_held_lock_is_renewed",
        "tokens_grow_",
        "readers_hold_together",
    ];
    test.split_once("::")
        .is_some_and(|(_, case)| VITAL.iter().any(|vital| case.starts_with(vital)))
}

/// By the test's name, so that the choice stays when tests come and go. Each version has a choice of its own.
fn has(edition: Edition, test: &str) -> bool {
    let mut hasher = DefaultHasher::new();
    (edition.name(), test).hash(&mut hasher);
    hasher.finish().is_multiple_of(ONE_OF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed() {
        let listed = "a::b: test\nc: benchmark\n\nd: test\n";
        assert_eq!(tests(listed).collect::<Vec<_>>(), ["a::b", "d"]);
    }

    #[test]
    fn a_module_names_its_version() {
        let on = |test| Edition::EXTRA.into_iter().find(|edition| is_on(*edition, test));
        assert_eq!(on("redis8::a"), Some(Edition::Redis8));
        assert_eq!(on("mysql9_row_hostile::a"), Some(Edition::MySql9));
        assert_eq!(on("postgres18_session::a"), Some(Edition::Postgres18));
        for test in [
            "redis::a",
            "zookeeper_tls::a",
            "redis8",
            "redis80::a",
            "pages::redis8::a",
        ] {
            assert_eq!(on(test), None, "{test}");
        }
    }

    #[test]
    fn each_version_has_what_makes_a_lock() {
        assert!(is_vital("redis8::exclusion_between_tasks") && is_vital("mysql9_row::tokens_grow_over_a_restart"));
        assert!(!is_vital("redis8::a_ttl_too_short_is_refused"));
    }

    #[test]
    fn each_version_has_a_third_of_its_own() {
        let names: Vec<String> = (0..3000).map(|number| format!("module::test_{number}")).collect();
        let chosen = |edition| names.iter().filter(|name| has(edition, name)).collect::<Vec<_>>();
        let (redis8, valkey9) = (chosen(Edition::Redis8), chosen(Edition::Valkey9));
        for share in [&redis8, &valkey9] {
            assert!((850..1150).contains(&share.len()), "{}", share.len());
        }
        assert_ne!(redis8, valkey9);
    }
}
