//! `cargo xtask fuzz`: the fuzz targets under libFuzzer.
//!
//! They are the unit tests in modules named `fuzz`. bolero links libFuzzer, which a C++ compiler builds, and the compiler's coverage
//! counters are switched on by options that any toolchain has.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::{fs, thread};

use crate::Result;

/// The packages with targets, and what of them is built.
const PACKAGES: [(&str, &[&str]); 8] = [
    ("lock-core", &["--lib"]),
    ("lock-kit", &["--lib"]),
    ("lock-redis", &["--lib"]),
    ("lock-mysql", &["--lib"]),
    ("lock-zookeeper", &["--lib"]),
    ("lock-quorum", &["--lib"]),
    ("polylock", &["--lib", "--features", "redis,mysql,zookeeper,quorum,tls"]),
    ("polylock-cli", &["--bin", "polylock"]),
];

const RUSTFLAGS: &str = "--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                         -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                         -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Seconds that one text may take.
const TEXT_SECONDS: u32 = 10;

/// Which targets, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only targets with this text in `PACKAGE::PATH`
    #[arg(long, default_value = "")]
    only: String,
    /// How long each of them runs
    #[arg(long, default_value_t = 10)]
    minutes: u32,
    /// How many run at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// A unit test that libFuzzer can drive.
struct Target {
    package: &'static str,
    program: PathBuf,
    /// Its path in the package's tests.
    path: String,
}

/// Builds the targets, runs each for so long, and fails if one found something.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or("xtask is no folder of a workspace")?;
    let mut targets = VecDeque::new();
    for (package, what) in PACKAGES {
        let found = build(root, package, what)?;
        targets.extend(found.into_iter().filter(|target| target.name().contains(&options.only)));
    }
    if targets.is_empty() {
        return Err(format!("no target has {:?} in its name", options.only));
    }
    let (targets, failed) = (Mutex::new(targets), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = next(&targets) {
                    let done = target.run(root, options.minutes);
                    let said = done.as_ref().map_or_else(String::clone, String::clone);
                    println!("{}: {said}", target.name());
                    if done.is_err() {
                        failed.lock().expect("nothing panics here").push(target.name());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nothing panics here");
    match failed.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(format!(
            "found by {}: make the text a seed of the target",
            failed.join(", ")
        )),
    }
}

fn next(targets: &Mutex<VecDeque<Target>>) -> Option<Target> {
    targets.lock().expect("nothing panics here").pop_front()
}

fn build(root: &Path, package: &'static str, what: &[&str]) -> Result<Vec<Target>> {
    println!("building the targets of {package}");
    let host = host()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .args(["test", "--quiet", "--no-run", "--package", package])
        .args(what);
    // With a target triple the flags do not apply to build scripts and macros, which do not link libFuzzer.
    cargo.args([
        "--target",
        &host,
        "--target-dir",
        "target/fuzz",
        "--message-format",
        "json",
    ]);
    cargo.env("RUSTFLAGS", RUSTFLAGS).stderr(Stdio::inherit());
    // Optimized, and with the checks of a debug build.
    cargo
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    let messages = output(&mut cargo)?;
    let programs = messages.lines().filter_map(program);
    let mut targets = Vec::new();
    for program in programs {
        let listed = output(Command::new(&program).args(["fuzz::", "--list", "--format", "terse"]))?;
        let paths = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        targets.extend(paths.map(|path| Target {
            package,
            program: program.clone(),
            path: path.to_owned(),
        }));
    }
    Ok(targets)
}

/// The test program in a message of cargo, if it has one.
fn program(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once(r#""executable":""#)?;
    Some(rest.split_once('"')?.0.into())
}

fn host() -> Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not name its host".to_owned())
}

impl Target {
    fn name(&self) -> String {
        format!("{}::{}", self.package, self.path)
    }

    /// How much it has run.
    ///
    /// # Errors
    /// With what it found.
    fn run(&self, root: &Path, minutes: u32) -> Result<String> {
        let folder = root.join("target/fuzz/found").join(self.name().replace("::", "."));
        let corpus = folder.join("corpus");
        fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
        let (corpus, artifacts) = (corpus.display(), folder.display());
        let seconds = minutes * 60;
        let arguments = format!(
            "{corpus} -artifact_prefix={artifacts}/ -max_total_time={seconds} -timeout={TEXT_SECONDS} -max_len=256 \
             -print_final_stats=1"
        );
        let mut program = Command::new(&self.program);
        program.args([&self.path, "--exact", "--nocapture", "--quiet", "--test-threads", "1"]);
        program
            .current_dir(root.join("xtask"))
            .env("BOLERO_LIBFUZZER_ARGS", arguments);
        program
            .env("BOLERO_LIBTEST_HARNESS", "1")
            .env("BOLERO_TEST_NAME", &self.path);
        let done = program.output().map_err(|error| format!("{program:?}: {error}"))?;
        let said = String::from_utf8_lossy(&done.stderr);
        if !done.status.success() {
            let from = said.len().saturating_sub(4000);
            return Err(format!(
                "failed: {}\n{}",
                done.status,
                said.get(from..).unwrap_or(&said)
            ));
        }
        let stat = |name: &str| {
            said.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or("?")
                .trim()
        };
        let coverage = said.lines().rfind(|line| line.contains(" cov: ")).unwrap_or_default();
        Ok(format!(
            "{minutes} min, {} texts, {} new ones kept; {}",
            stat("stat::number_of_executed_units:"),
            stat("stat::new_units_added:"),
            coverage.trim()
        ))
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{command:?} failed: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}
