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

/// The packages with targets.
const PACKAGES: [&str; 9] = [
    "lock-core",
    "lock-kit",
    "lock-redis",
    "lock-mysql",
    "lock-postgres",
    "lock-zookeeper",
    "lock-quorum",
    "polylock",
    "polylock-cli",
];

/// What the targets of the facade need besides. The command line has them by default.
const FEATURES: [&str; 6] = ["redis", "mysql", "postgres", "zookeeper", "quorum", "tls"];

/// Packages that targets run, besides their own. Nothing else is optimized: that would take most of the time of a build.
const OPTIMIZED: [&str; 7] = [
    "testbed-fuzz",
    "bolero",
    "bolero-engine",
    "url",
    "idna",
    "percent-encoding",
    "form_urlencoded",
];

const RUSTFLAGS: &str = "--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                         -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                         -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Seconds that one text may take.
const TEXT_SECONDS: u32 = 10;

/// Which targets, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only targets with this text in `PACKAGE::PATH`. If it begins with a package, no other one is built
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
    let targets = build(root, &packages(&options.only))?;
    let wanted = targets
        .into_iter()
        .filter(|target| target.name().contains(&options.only));
    let targets: VecDeque<Target> = wanted.collect();
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

/// The packages to build for the targets that were chosen by this text.
fn packages(only: &str) -> Vec<&'static str> {
    let (package, _path) = only.split_once("::").unwrap_or((only, ""));
    match PACKAGES.iter().find(|name| **name == package) {
        Some(package) => vec![package],
        None => PACKAGES.to_vec(),
    }
}

/// Builds them together: alone, each has other features of its dependencies, which are then built again.
fn build(root: &Path, packages: &[&'static str]) -> Result<Vec<Target>> {
    println!("building the targets of {}", packages.join(", "));
    let host = host()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .args(["test", "--quiet", "--no-run", "--lib", "--bins"]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    if packages.contains(&"polylock") {
        cargo.args([
            "--features",
            &FEATURES.map(|feature| format!("polylock/{feature}")).join(","),
        ]);
    }
    // With a target triple the flags do not apply to build scripts and macros, which do not link libFuzzer.
    cargo.args([
        "--target",
        &host,
        "--target-dir",
        "target/fuzz",
        "--message-format",
        "json",
    ]);
    // Optimized, and with the checks of a debug build.
    for package in PACKAGES.iter().chain(&OPTIMIZED) {
        for setting in ["opt-level=1", "codegen-units=1"] {
            cargo.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
        }
    }
    cargo.args(["--config", "profile.dev.package.bolero-libfuzzer.opt-level=2"]);
    cargo.env("RUSTFLAGS", RUSTFLAGS).stderr(Stdio::inherit());
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    let messages = output(&mut cargo)?;
    let mut targets = Vec::new();
    for message in messages.lines() {
        let Some((package, program)) = program(message) else {
            continue;
        };
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

/// The test program in a message of cargo, if it has one, and its package.
fn program(message: &str) -> Option<(&'static str, PathBuf)> {
    let text = |name: &str| {
        let (_, rest) = message.split_once(&format!(r#""{name}":""#))?;
        Some(rest.split_once('"')?.0)
    };
    let package = package_of(text("package_id")?)?;
    let package = PACKAGES.into_iter().find(|name| *name == package)?;
    Some((package, text("executable")?.into()))
}

/// The name in a package id such as `path+file:///polylock/cli#polylock-cli@0.1.0`. One that is the folder's is left out.
fn package_of(id: &str) -> Option<&str> {
    let (folder, package) = id.rsplit_once('#')?;
    match package.split_once('@') {
        Some((name, _version)) => Some(name),
        None => folder.rsplit('/').next(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_package_of_its_program() {
        let message =
            |id, program| format!(r#"{{"package_id":"{id}","target":{{"name":"polylock"}},"executable":{program}}}"#);
        for (id, package) in [
            ("path+file:///polylock#0.1.0", "polylock"),
            ("path+file:///main#polylock@0.1.0", "polylock"),
            ("path+file:///polylock/cli#polylock-cli@0.1.0", "polylock-cli"),
            ("path+file:///polylock/lock-core#0.1.0", "lock-core"),
        ] {
            let named = program(&message(id, r#""/target/a""#));
            assert_eq!(named, Some((package, PathBuf::from("/target/a"))), "{id}");
            assert_eq!(program(&message(id, "null")), None);
        }
        let other = message("registry+https://crates#url@2.5.8", r#""/target/a""#);
        assert_eq!(program(&other), None);
    }

    #[test]
    fn a_package_is_built_alone_if_only_its_targets_run() {
        assert_eq!(packages("lock-redis"), ["lock-redis"]);
        assert_eq!(packages("lock-redis::names"), ["lock-redis"]);
        assert_eq!(packages("polylock::"), ["polylock"]);
        for all in ["", "names", "lock", "names::fuzz"] {
            assert_eq!(packages(all), PACKAGES, "{all}");
        }
    }
}
