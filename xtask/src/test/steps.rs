//! What is run, in this order.

use std::ffi::OsString;
use std::iter;

use testbed::Edition;

use super::reach;

/// One command of cargo's.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) arguments: Vec<String>,
    /// The only tests that are run, by their names; all of them if it is empty.
    pub(crate) chosen: Vec<String>,
    /// The tests that are not run, by their names.
    pub(crate) left_out: Vec<String>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Which server stands for the distribution's own, if another one does. Its variable is set when the step runs: when the steps are
    /// made, it may not be installed yet.
    pub(crate) edition: Option<Edition>,
    /// A step without whose success this one is senseless.
    pub(crate) needs: Option<&'static str>,
    pub(crate) line: Line,
    /// Whether it yields to what runs beside it. Tests on servers do not: that would disturb their clocks.
    pub(crate) yields: bool,
    /// The compiler, if it is not the usual one.
    pub(crate) toolchain: Option<&'static str>,
}

/// Where a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Line {
    /// What the tests need; and then the suite, with which the other lines begin.
    First,
    /// The tests of the crates.
    Crates,
    /// Torture, and tests on other servers. Both mostly wait.
    Servers,
    /// What is built, and then what only computes.
    Builds,
    /// After all lines: nothing may run beside it.
    Alone,
}

impl Line {
    pub(crate) const SIDE_BY_SIDE: [Self; 4] = [Self::First, Self::Crates, Self::Servers, Self::Builds];
}

/// The tests of the conformance suite on all backends. Cargo locks its folder while it builds, not while tests run.
pub(crate) const SUITE: &str = "suite";

/// The step that writes the documentation.
pub(crate) const DOCS: &str = "docs";

/// What the time of a step is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Download,
    Build,
    Test,
    Torture,
    Deny,
    Wait,
}

/// All crates, the facade with every feature. Cargo unifies features over the packages that a command selects: with this
/// selection all commands share what they build.
const ALL: &str = "--workspace --features polylock/redis,polylock/mysql,polylock/postgres,polylock/zookeeper,polylock/quorum,polylock/tls,polylock/zookeeper-tls,polylock/zookeeper-sasl,polylock/serde,polylock/metrics,polylock/blocking";

/// The features of the facade, each of which must do without the others.
const FEATURES: [&str; 11] = [
    "redis",
    "mysql",
    "postgres",
    "zookeeper",
    "quorum",
    "tls",
    "zookeeper-tls",
    "zookeeper-sasl",
    "serde",
    "metrics",
    "blocking",
];

/// The crates that users depend on by name. Each must build without what the others switch on.
pub(crate) const PUBLISHED: [&str; 11] = [
    "polylock",
    "lock-core",
    "lock-kit",
    "lock-tls",
    "lock-redis",
    "lock-mysql",
    "lock-postgres",
    "lock-zookeeper",
    "lock-quorum",
    "conformance-tests",
    "polylock-cli",
];

/// The tests on servers mostly wait.
const MANY_THREADS: (&str, &str) = ("RUST_TEST_THREADS", "20");

/// All steps of a change: those that need no server, and the others. `binaries` are the names of the test binaries.
pub(crate) fn all(binaries: &[String]) -> (Vec<Step>, Vec<Step>) {
    let mut steps = vec![
        step(SUITE, Kind::Test, &format!("test {ALL} --test {SUITE} --no-fail-fast"))
            .with(MANY_THREADS)
            .needs("build tests"),
        step("doctests", Kind::Test, &format!("test {ALL} --doc --no-fail-fast")).needs("build tests"),
    ];
    steps.push(crates(binaries));
    steps.extend(servers());
    steps.extend(builds());
    // It puts its examples, without backends, into the place of those that the tests start.
    let alone = [
        step("build polylock alone", Kind::Build, "test --package polylock --no-run"),
        step("polylock alone", Kind::Test, "test --package polylock --no-fail-fast").needs("build polylock alone"),
    ];
    steps.extend(alone.map(|step| step.on(Line::Alone)));
    (first(), steps)
}

fn first() -> Vec<Step> {
    vec![
        step("rustfmt", Kind::Build, "fmt --all --check"),
        step(
            "clippy",
            Kind::Build,
            &format!("clippy {ALL} --all-targets -- -D warnings"),
        ),
        // Left out of `--all-targets`, since `cargo test` alone is not to run it.
        step(
            "clippy of torture's tests",
            Kind::Build,
            &format!("clippy {ALL} --test torture --test models -- -D warnings"),
        ),
        step("build tests", Kind::Build, &format!("test {ALL} --no-run")),
    ]
}

/// What `--tests` selects, without the suite. Cargo has no option that leaves one out.
fn crates(binaries: &[String]) -> Step {
    let others = binaries.iter().filter(|binary| *binary != SUITE);
    let named: String = others.map(|binary| format!(" --test {binary}")).collect();
    step(
        "tests of crates",
        Kind::Test,
        &format!("test {ALL} --lib --bins{named} --no-fail-fast"),
    )
    .with(MANY_THREADS)
    .needs("build tests")
    .on(Line::Crates)
}

/// Torture first: its build is the first of those beside it, while each later one would make the tests wait for cargo's lock.
fn servers() -> Vec<Step> {
    // Its processes mostly wait. With more at a time, a busy machine would disturb their faults.
    let torture = step(
        "torture",
        Kind::Torture,
        &format!("test {ALL} --test torture --no-fail-fast"),
    );
    let torture = torture.with(("RUST_TEST_THREADS", "3")).needs("build torture");
    let steps = iter::once(torture).chain(Edition::EXTRA.map(on_edition));
    steps.map(|step| step.on(Line::Servers)).collect()
}

/// What takes too long, or needs too much, for every change.
pub(crate) fn thorough() -> Vec<Step> {
    let mut steps = reach::steps();
    // What a build without a feature says to a URL that needs it. All others have all features or none.
    steps.push(step(
        "without TLS and SASL",
        Kind::Test,
        "test --package lock-redis --package lock-zookeeper --package polylock --features polylock/redis,polylock/zookeeper --lib",
    ));
    steps.push(step(
        "10,000 quorum histories",
        Kind::Torture,
        "run --release -p torture -- quorum --seeds 10000",
    ));
    steps.push(step(
        "torture matrix",
        Kind::Torture,
        "run --release -p torture -- matrix --report target/torture.md",
    ));
    steps
}

fn builds() -> Vec<Step> {
    let mut steps = vec![
        step(
            "build torture",
            Kind::Build,
            &format!("test {ALL} --test torture --test models --no-run"),
        ),
        // One crate after another: cargo removes the folder of a crate before it is documented, and others link to what is there. What keeps
        // both cores busy comes later, when nothing else does.
        step(DOCS, Kind::Build, &format!("doc {ALL} --no-deps --jobs 1")).with(("RUSTDOCFLAGS", "-D warnings")),
        step(
            "deny",
            Kind::Deny,
            "deny --workspace --locked check --hide-inclusion-graph bans licenses sources",
        ),
    ];
    for feature in FEATURES {
        let name = format!("check polylock with {feature}");
        steps.push(step(
            &name,
            Kind::Build,
            &format!("check --package polylock --features {feature}"),
        ));
    }
    for package in &PUBLISHED[1..] {
        let name = format!("check {package} alone");
        steps.push(step(&name, Kind::Build, &format!("check --package {package}")));
    }
    steps.push(step(
        "check polylock-cli without servers",
        Kind::Build,
        "check --package polylock-cli --no-default-features",
    ));
    // After all that cargo builds in the tests' folder: while it does, steps of other lines wait for its lock.
    steps.push(races("build races", Kind::Build, " --no-run"));
    steps.push(races("races", Kind::Test, "").needs("build races"));
    let models = format!("test {ALL} --test models --no-fail-fast");
    steps.push(step("models", Kind::Torture, &models).needs("build torture"));
    steps.into_iter().map(|step| step.on(Line::Builds)).collect()
}

/// A backend's own tests on another server than the distribution's; the conformance suite has modules for them.
fn on_edition(edition: Edition) -> Step {
    let tests = match edition.own() {
        Edition::Postgres => "postgres",
        Edition::MariaDb => "mysql",
        Edition::ZooKeeper => "zookeeper",
        _ => "redis",
    };
    let name = format!("lock-{tests} on {}", edition.name());
    let mut step = step(&name, Kind::Test, &format!("test {ALL} --test {tests} --no-fail-fast"))
        .with(MANY_THREADS)
        .needs("build tests");
    step.edition = Some(edition);
    step
}

/// Core with shuttle in place of its locks: another build of everything, which would push out the first.
fn races(name: &str, kind: Kind, how: &str) -> Step {
    let what = "test --profile races --package lock-core --test races --target-dir target/races";
    step(name, kind, &format!("{what}{how}")).with(("RUSTFLAGS", "--cfg shuttle -D warnings"))
}

pub(super) fn step(name: &str, kind: Kind, arguments: &str) -> Step {
    let arguments = arguments.split(' ').map(String::from).collect();
    Step {
        name: name.into(),
        kind,
        arguments,
        chosen: Vec::new(),
        left_out: Vec::new(),
        environment: Vec::new(),
        edition: None,
        needs: None,
        line: Line::First,
        yields: false,
        toolchain: None,
    }
}

impl Step {
    fn with(mut self, (name, value): (&'static str, &str)) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    pub(super) fn needs(mut self, name: &'static str) -> Self {
        self.needs = Some(name);
        self
    }

    pub(super) fn on(mut self, line: Line) -> Self {
        self.line = line;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Step> {
        let (mut steps, others) = super::all(&["core".into(), SUITE.into(), "stages".into()]);
        steps.extend(others);
        steps
    }

    #[test]
    fn what_a_step_needs_ends_before_it_begins_or_in_the_line_that_needs_no_other() {
        let steps = all();
        for (at, step) in steps.iter().enumerate() {
            let Some(needed) = step.needs else { continue };
            let needed_at = steps.iter().position(|step| step.name == needed).expect("a step");
            let suite = steps.iter().position(|step| step.name == SUITE).expect("a step");
            let before_all = needed_at < suite;
            let in_its_line = steps[needed_at].line == step.line && needed_at < at;
            let is_built = steps[needed_at].line == Line::Builds;
            assert!(before_all || in_its_line || is_built, "{step:?}");
            assert!(step.line != Line::Builds || before_all || in_its_line, "{step:?}");
        }
    }

    #[test]
    fn what_was_not_built_is_not_run() {
        let steps = all();
        for (name, build) in [
            (SUITE, "build tests"),
            ("tests of crates", "build tests"),
            ("doctests", "build tests"),
            ("races", "build races"),
            ("torture", "build torture"),
            ("models", "build torture"),
        ] {
            let step = steps.iter().find(|step| step.name == name).expect("it is there");
            assert_eq!(step.needs, Some(build), "{name}");
        }
    }

    #[test]
    fn every_test_binary_runs_in_one_step() {
        let runs = |binary: &str| {
            let has = |step: &&Step| step.arguments.windows(2).any(|pair| pair == ["--test", binary]);
            all()
                .iter()
                .filter(has)
                .map(|step| step.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(runs(SUITE), [SUITE]);
        assert_eq!(runs("core"), ["tests of crates"]);
        assert_eq!(runs("stages"), ["tests of crates"]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all().into_iter().chain(thorough()).map(|step| step.name).collect();
        let steps = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), steps);
    }
}
