//! `cargo xtask release`: everything before `cargo publish`. It publishes nothing.

use std::process::{Command, ExitCode};

use crate::Result;
use crate::test::root;

/// The published crates, each behind those that it depends on.
pub(crate) const ORDER: [&str; 11] = [
    "lock-core",
    "lock-kit",
    "lock-tls",
    "lock-redis",
    "lock-mysql",
    "lock-postgres",
    "lock-zookeeper",
    "lock-quorum",
    "conformance-tests",
    "polylock",
    "polylock-cli",
];

/// Builds each crate from its package and its documentation as docs.rs does, and prints the commands that publish.
pub(crate) fn run() -> Result<ExitCode> {
    let root = root();
    let read = |file: &str| std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"));
    let (manifest, changelog) = (read("Cargo.toml")?, read("CHANGELOG.md")?);
    let version = workspace_version(&manifest).ok_or("Cargo.toml has no version in [workspace.package]")?;
    let mut faults = other_versions(&manifest, version);
    if !is_in_changelog(&changelog, version) {
        faults.push(format!("CHANGELOG.md has no section `## {version} - DATE`"));
    }
    // It refuses files that are not committed. Each crate is built from its package, on the packages of the others.
    let mut package = cargo(&["package", "--locked"]);
    package.args(ORDER.iter().flat_map(|name| ["--package", name]));
    let packaged = succeed(&mut package);
    // What was unpacked and built there is of no more use.
    let _ = std::fs::remove_dir_all(root.join("target/package"));
    faults.extend(packaged.err());
    for name in ORDER {
        let mut doc = cargo(&["doc", "--locked", "--no-deps", "--all-features", "--package", name]);
        // docs.rs builds with a nightly compiler, for the marks of the features.
        doc.env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTDOCFLAGS", "--cfg docsrs -D warnings");
        faults.extend(succeed(&mut doc).err());
    }
    if !faults.is_empty() {
        return Err(format!("{version} is not ready:\n  {}", faults.join("\n  ")));
    }
    println!("{version} is ready. After the checks of RELEASING.md, publish it:");
    println!("  git tag --sign v{version}");
    for name in ORDER {
        println!("  cargo publish --locked --package {name}");
    }
    println!("  git push origin v{version}");
    Ok(ExitCode::SUCCESS)
}

fn workspace_version(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[workspace.package]")?;
    package
        .lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

/// The crates of the workspace that others ask for in another version.
fn other_versions(manifest: &str, version: &str) -> Vec<String> {
    let own = manifest
        .lines()
        .filter(|line| line.contains("{ path = ") && line.contains("version = "));
    let wrong = own.filter(|line| !line.contains(&format!("version = \"{version}\"")));
    wrong
        .map(|line| format!("Cargo.toml asks for another version than {version}: {line}"))
        .collect()
}

fn is_in_changelog(changelog: &str, version: &str) -> bool {
    let beginning = format!("## {version} - ");
    changelog.lines().any(|line| line.starts_with(&beginning))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(arguments);
    cargo
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.package]\nedition = \"2024\"\nversion = \"0.2.0\"\n\n[workspace.dependencies]\n\
        lock-core = { path = \"lock-core\", version = \"0.2.0\" }\n\
        lock-tls = { path = \"lock-tls\", version = \"0.1.0\" }\n\
        testbed = { path = \"testbed\" }\ntokio = { version = \"1.54\" }\n";

    #[test]
    fn a_crate_in_another_version_is_found() {
        assert_eq!(workspace_version(MANIFEST), Some("0.2.0"));
        let wrong = other_versions(MANIFEST, "0.2.0");
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("lock-tls"), "{wrong:?}");
    }

    #[test]
    fn a_release_has_a_section_with_its_date() {
        assert!(is_in_changelog("## Unreleased\n\n## 0.2.0 - 2026-11-24\n", "0.2.0"));
        assert!(!is_in_changelog("## Unreleased\n\n## 0.2.0\n", "0.2.0"));
        assert!(!is_in_changelog("## 0.2.01 - 2026-11-24\n", "0.2.0"));
    }

    #[test]
    fn every_published_crate_is_released() {
        let mut tested = crate::test::PUBLISHED;
        let mut released = ORDER;
        tested.sort_unstable();
        released.sort_unstable();
        assert_eq!(tested, released);
    }
}
