//! Which of a backend's tests an extra server version has, where not all are wanted.

use std::hash::{DefaultHasher, Hash, Hasher};

use testbed::Edition;

use super::run;
use super::steps::Step;
use crate::Result;

/// Of this many tests, each extra version has one.
const ONE_OF: u64 = 3;

/// The step with its share of the tests alone. The tests are listed by the programs that the step runs.
pub(crate) fn take(mut step: Step, edition: Edition) -> Result<Step> {
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
    let listed = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = tests(&listed).collect();
    step.chosen = names
        .iter()
        .filter(|test| has(edition, test))
        .map(|&test| test.into())
        .collect();
    if step.chosen.is_empty() {
        return Err(format!("none of {} tests was chosen", names.len()));
    }
    println!(
        "\n{} of {} tests run on {}; `cargo xtask test --all` runs them all",
        step.chosen.len(),
        names.len(),
        edition.name()
    );
    Ok(step)
}

fn tests(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| line.strip_suffix(": test"))
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
