//! What is run, in this order.

use std::ffi::OsString;

use testbed::Edition;

/// One command of cargo's.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Which Redis stands for the distribution's own, if another one does.
    pub(crate) edition: Option<Edition>,
    /// A step without whose success this one is senseless.
    pub(crate) needs: Option<&'static str>,
}

/// What the time of a step is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Download,
    Build,
    Test,
    Torture,
    Deny,
}

/// The facade with every backend. With `--workspace` cargo unifies features, so that the steps that use it share what
/// they build.
const ALL: &str =
    "--workspace --features polylock/redis,polylock/mysql,polylock/zookeeper,polylock/serde,polylock/metrics";

/// Models and torture are slow without optimization: they have steps of their own.
const TESTED: &str = "--workspace --exclude torture --features polylock/redis,polylock/mysql,polylock/zookeeper,polylock/serde,polylock/metrics";

/// The features of the facade, each of which must do without the others.
const FEATURES: [&str; 5] = ["redis", "mysql", "zookeeper", "serde", "metrics"];

/// The crates that users depend on by name must build without what the others switch on; for lock-redis a step of
/// its own shows it.
const ALONE: [&str; 4] = ["lock-core", "lock-mysql", "lock-zookeeper", "conformance-tests"];

pub(crate) fn all() -> Vec<Step> {
    let mut steps = vec![
        step("rustfmt", Kind::Build, "fmt --all --check"),
        step(
            "clippy",
            Kind::Build,
            &format!("clippy {ALL} --all-targets -- -D warnings"),
        ),
        step("build tests", Kind::Build, &format!("test {TESTED} --no-run")),
        Step {
            // The cases on servers mostly wait.
            environment: vec![("RUST_TEST_THREADS", "8".into())],
            ..step("tests", Kind::Test, &format!("test {TESTED} --tests --no-fail-fast")).needs("build tests")
        },
        step("doctests", Kind::Test, &format!("test {TESTED} --doc --no-fail-fast")).needs("build tests"),
        races("build races", Kind::Build, " --no-run"),
        races("races", Kind::Test, "").needs("build races"),
        Step {
            environment: vec![("RUSTDOCFLAGS", "-D warnings".into())],
            ..step("docs", Kind::Build, &format!("doc {ALL} --no-deps"))
        },
        step(
            "deny",
            Kind::Deny,
            "deny --workspace --locked check --hide-inclusion-graph bans licenses sources",
        ),
        step(
            "build torture",
            Kind::Build,
            "test --release --package torture --no-run",
        ),
        Step {
            // Its processes are to have the machine for themselves.
            environment: vec![("RUST_TEST_THREADS", "1".into())],
            ..step(
                "torture",
                Kind::Torture,
                "test --release --package torture --no-fail-fast",
            )
            .needs("build torture")
        },
        step("build polylock alone", Kind::Build, "test --package polylock --no-run"),
        step("polylock alone", Kind::Test, "test --package polylock --no-fail-fast").needs("build polylock alone"),
    ];
    steps.push(step(
        "build lock-redis alone",
        Kind::Build,
        "test --package lock-redis --no-run",
    ));
    steps.extend(Edition::EXTRA.map(on_edition));
    for feature in FEATURES {
        let name = format!("check polylock with {feature}");
        steps.push(step(
            &name,
            Kind::Build,
            &format!("check --package polylock --features {feature}"),
        ));
    }
    for package in ALONE {
        let name = format!("check {package} alone");
        steps.push(step(&name, Kind::Build, &format!("check --package {package}")));
    }
    steps
}

/// Redis's own tests on another one; the conformance suite has modules for them.
fn on_edition(edition: Edition) -> Step {
    let mut environment: Vec<(&str, OsString)> = vec![("RUST_TEST_THREADS", "8".into())];
    // Where there is none the step is left out.
    environment.extend(testbed::stand_in(edition));
    Step {
        environment,
        edition: Some(edition),
        ..step(
            &format!("lock-redis on {}", edition.name()),
            Kind::Test,
            "test --package lock-redis --tests --no-fail-fast",
        )
        .needs("build lock-redis alone")
    }
}

/// Core with shuttle in place of its locks: another build of everything, which would push out the first.
fn races(name: &str, kind: Kind, how: &str) -> Step {
    let what = "test --package lock-core --test races --target-dir target/races";
    Step {
        environment: vec![("RUSTFLAGS", "--cfg shuttle -D warnings".into())],
        ..step(name, kind, &format!("{what}{how}"))
    }
}

fn step(name: &str, kind: Kind, arguments: &str) -> Step {
    let arguments = arguments.split(' ').map(String::from).collect();
    Step {
        name: name.into(),
        kind,
        arguments,
        environment: Vec::new(),
        edition: None,
        needs: None,
    }
}

impl Step {
    fn needs(mut self, name: &'static str) -> Self {
        self.needs = Some(name);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_needs_an_earlier_one() {
        let steps = all();
        for (at, step) in steps.iter().enumerate() {
            let earlier = |name| steps[..at].iter().any(|earlier| earlier.name == name);
            assert!(step.needs.is_none_or(earlier), "{step:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all().into_iter().map(|step| step.name).collect();
        let steps = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), steps);
    }
}
