//! Downloads packages with a package manager's state of our own: the system's is neither read nor changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::OTHER_WAYS;
use super::sources::{Source, System};
use crate::Result;

/// Downloads `packages` and everything that they need, down to the C library, and gives the files. What only packages
/// of `without` need is not downloaded.
pub(crate) fn download(root: &Path, system: &System, packages: &[&str], without: &[&str]) -> Result<Vec<PathBuf>> {
    let config = prepare(root, system, without)?;
    println!(
        "servers: reading the package lists of {} {}",
        system.id, system.codename
    );
    run(&config, &["update"])?;
    println!("servers: downloading {}", packages.join(", "));
    run(
        &config,
        &[
            &["install", "--yes", "--no-install-recommends", "--download-only"],
            packages,
        ]
        .concat(),
    )?;
    let archives = archives(root);
    let entries = fs::read_dir(&archives).map_err(|error| format!("cannot read {}: {error}", archives.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut debs: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    debs.sort();
    Ok(debs)
}

/// The downloads are not needed twice.
pub(crate) fn clean(root: &Path) -> Result<()> {
    fs::remove_dir_all(root).map_err(|error| format!("cannot remove {}: {error}", root.display()))
}

fn archives(root: &Path) -> PathBuf {
    root.join("cache/archives")
}

/// Directories, sources and a configuration file, of which the path is returned.
fn prepare(root: &Path, system: &System, without: &[&str]) -> Result<PathBuf> {
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if root.exists() {
        clean(root)?;
    }
    for dir in ["state", "lists/partial", "cache/archives/partial"] {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    }
    // Nothing else is installed here: so apt fetches every dependency.
    let installed: Vec<String> = without.iter().map(|package| installed(package)).collect();
    write("state/status", &installed.join("\n"))?;
    let stanzas: Vec<String> = system.sources.iter().map(Source::to_deb822).collect();
    write("own.sources", &stanzas.join("\n"))?;
    write("apt.conf", &config(&root.display().to_string()))?;
    Ok(root.join("apt.conf"))
}

/// What apt takes for a package that is there already, in a version that suits everybody.
fn installed(package: &str) -> String {
    format!(
        "Package: {package}\nStatus: install ok installed\nArchitecture: all\nMulti-Arch: allowed\nVersion: 999:0\n\
         Maintainer: nobody\nDescription: not needed\n"
    )
}

/// Read after the system's own configuration (proxies, certificates), whose hooks are meant for the system's state.
fn config(root: &str) -> String {
    format!(
        r#"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Install-Pkgs;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
Dir::State "{root}/state";
Dir::State::status "{root}/state/status";
Dir::State::Lists "{root}/lists";
Dir::Cache "{root}/cache";
Dir::Cache::archives "archives";
Dir::Log "{root}";
Dir::Etc::sourcelist "{root}/own.sources";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "-";
Dir::Etc::preferencesparts "-";
APT::Keep-Downloaded-Packages "true";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Get::Assume-Yes "true";
Acquire::Languages "none";
Acquire::Retries "3";
DPkg::Lock::Timeout "0";
"#
    )
}

fn run(config: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .arg("--config-file")
        .arg(config)
        .arg("-qq")
        .args(arguments)
        .env("LC_ALL", "C");
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no apt-get on this system. {OTHER_WAYS}"),
        _ => format!("cannot start apt-get: {error}"),
    })?;
    check(&output).map_err(|said| format!("apt-get {} failed:\n{said}", arguments[0]))
}

fn check(output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat())
        .trim()
        .into())
}
