//! Servers of other versions than the distribution's own, out of its later releases. And clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use testbed::Edition;

use super::sources::System;
use super::unpack::{self, Wanted};
use super::{LAYOUT, apt, curator, python};
use crate::Result;

struct Extra {
    edition: Edition,
    package: &'static str,
    /// What its version begins with, without an epoch.
    version: &'static str,
    /// Debian's releases that have it, the most lasting first.
    releases: [&'static str; 2],
    wanted: Wanted,
}

const EXTRAS: [Extra; 5] = [
    Extra {
        edition: Edition::Redis8,
        package: "redis-server",
        version: "8.",
        releases: ["trixie", "forky"],
        wanted: Wanted {
            programs: &[("redis-server", "usr/bin/redis-server")],
            ..Wanted::NOTHING
        },
    },
    Extra {
        edition: Edition::Valkey9,
        package: "valkey-server",
        version: "9.",
        releases: ["forky", "sid"],
        wanted: Wanted {
            programs: &[("valkey-server", "usr/bin/valkey-server")],
            ..Wanted::NOTHING
        },
    },
    Extra {
        edition: Edition::MySql9,
        package: "mysql-server-core",
        version: "9.",
        releases: ["forky", "sid"],
        wanted: Wanted {
            programs: &[("mysqld", "usr/sbin/mysqld")],
            // Of its tools, none of which is needed, and which are as large as the server.
            without_packages: &["perl"],
            without_files: &["./usr/bin"],
            ..Wanted::NOTHING
        },
    },
    Extra {
        edition: Edition::ZooKeeper39,
        package: "libzookeeper-java",
        version: "3.9.",
        releases: ["trixie", "sid"],
        wanted: Wanted {
            zookeeper: true,
            // Its jars run on the distribution's own JRE.
            without_packages: &["default-jre-headless"],
            without_files: &["./usr/lib", "./usr/bin"],
            ..Wanted::NOTHING
        },
    },
    Extra {
        edition: Edition::Postgres18,
        package: "postgresql-18",
        version: "18.",
        releases: ["forky", "sid"],
        wanted: Wanted {
            postgres: true,
            without_packages: &unpack::SETS_UP_POSTGRES,
            ..Wanted::NOTHING
        },
    },
];

/// Puts each in place unless it is there or a variable names one. Gives why one could not be had; with `CI` set, that
/// is an error.
pub(super) fn install(dir: &Path) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    for (edition, found) in testbed::find_extra() {
        if found.is_ok_and(|found| found.variable.is_some()) {
            continue;
        }
        for extra in EXTRAS.iter().filter(|extra| extra.edition == edition) {
            let installed = extra.install(&dir.join(edition.name()));
            left_out.extend(or_left_out(installed, testbed::is_ci())?);
        }
    }
    let is_named = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    if !is_named("POLYLOCK_PYTHON") {
        for client in &python::CLIENTS {
            let installed = python::install(client, &dir.join(client.title));
            left_out.extend(or_left_out(installed, testbed::is_ci())?);
        }
    }
    if !is_named("POLYLOCK_CURATOR_DIR") {
        let installed = curator::install(&dir.join(testbed::CURATOR));
        left_out.extend(or_left_out(installed, testbed::is_ci())?);
    }
    Ok(left_out)
}

/// Why it could not be had, where that is no error.
fn or_left_out(installed: Result<()>, is_ci: bool) -> Result<Option<String>> {
    match installed {
        Ok(()) => Ok(None),
        Err(error) if is_ci => Err(error),
        Err(error) => Ok(Some(error)),
    }
}

/// The package that it comes from, with its version.
pub(super) fn installed(edition: Edition) -> Option<String> {
    let stamp = fs::read_to_string(stamp(&testbed::installed_dir().join(edition.name()))).ok()?;
    stamp.lines().nth(1).map(String::from)
}

/// Says what was asked for, and in the lines after that which packages it is.
fn stamp(dir: &Path) -> PathBuf {
    dir.join("unpacked/stamp")
}

impl Extra {
    fn install(&self, dir: &Path) -> Result<()> {
        let wanted = format!(
            "layout {LAYOUT}, {} {}* of {} for {}",
            self.package,
            self.version,
            self.releases.join(" or "),
            std::env::consts::ARCH
        );
        if fs::read_to_string(stamp(dir)).is_ok_and(|found| found.lines().next() == Some(&wanted)) {
            return Ok(());
        }
        let start = Instant::now();
        let system = System::of_this_machine()?;
        let mut problems = Vec::new();
        for codename in self.releases {
            match self.fetch(&system, codename, dir) {
                Ok(packages) => {
                    let record = format!("{wanted}\n{}\n", packages.join("\n"));
                    // Last: without it everything is done again.
                    let stamp = stamp(dir);
                    fs::write(&stamp, record).map_err(|error| format!("cannot write {}: {error}", stamp.display()))?;
                    let took = start.elapsed().as_secs_f32();
                    println!("servers: {} of {codename} installed in {took:.0} s", packages[0]);
                    return Ok(());
                }
                Err(problem) => problems.push(problem),
            }
        }
        Err(format!("no {}: {}", self.edition.name(), problems.join("; ")))
    }

    /// Gives the packages' names and versions, its own first.
    fn fetch(&self, system: &System, codename: &str, dir: &Path) -> Result<Vec<String>> {
        let release = system
            .release(codename)
            .ok_or_else(|| format!("{} {} has no release {codename}", system.id, system.codename))?;
        let apt = dir.join("apt");
        fs::create_dir_all(dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        let packages = apt::download(&apt, &release, &[self.package], self.wanted.without_packages)?;
        let mut names: Vec<String> = packages.iter().map(|package| named(package)).collect();
        let own = names
            .iter()
            .position(|name| is_version(name, self.package, self.version))
            .ok_or_else(|| format!("{codename} has no {} {}*", self.package, self.version))?;
        names.swap(0, own);
        unpack::unpack(&packages, &self.wanted, dir)?;
        apt::clean(&apt)?;
        if let Err(error) = self.start_once() {
            // Or tests would find it.
            let broken = dir.join("unpacked");
            fs::remove_dir_all(&broken).map_err(|error| format!("cannot remove {}: {error}", broken.display()))?;
            return Err(error);
        }
        Ok(names)
    }

    /// A package that unpacks may still lack what it needs to run.
    fn start_once(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| error.to_string())?;
        let start = self.edition.start();
        runtime.block_on(start).map(drop).map_err(|error| error.to_string())
    }
}

/// "redis-server 5:8.0.2-3+deb13u2" for ".../redis-server_5%3a8.0.2-3+deb13u2_amd64.deb".
fn named(package: &Path) -> String {
    let file = package
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .replace("%3a", ":");
    file.split('_').take(2).collect::<Vec<_>>().join(" ")
}

fn is_version(name: &str, package: &str, beginning: &str) -> bool {
    let version = name.strip_prefix(package).and_then(|rest| rest.strip_prefix(' '));
    version.is_some_and(|version| {
        version
            .split_once(':')
            .map_or(version, |(_, rest)| rest)
            .starts_with(beginning)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_say_their_versions() {
        let redis = named(Path::new("/x/redis-server_5%3a8.0.2-3+deb13u2_amd64.deb"));
        assert_eq!(redis, "redis-server 5:8.0.2-3+deb13u2");
        assert!(is_version(&redis, "redis-server", "8."));
        assert!(!is_version(&redis, "redis-server", "9."));
        assert!(!is_version(&redis, "redis", "8."));
        let valkey = named(Path::new("valkey-server_9.1.2-1_amd64.deb"));
        assert!(is_version(&valkey, "valkey-server", "9."));
        assert!(!is_version("valkey-server 10.0-1", "valkey-server", "9."));
    }

    #[test]
    fn one_that_cannot_be_fetched_is_left_out_and_fails_with_ci() {
        let failed = || Err("no valkey9: sid has none".into());
        assert_eq!(
            or_left_out(failed(), false),
            Ok(Some("no valkey9: sid has none".into()))
        );
        assert_eq!(or_left_out(failed(), true), Err("no valkey9: sid has none".into()));
        assert_eq!(
            [false, true].map(|is_ci| or_left_out(Ok(()), is_ci)),
            [Ok(None), Ok(None)]
        );
    }

    #[test]
    fn every_extra_edition_can_be_fetched() {
        let editions = EXTRAS.map(|extra| extra.edition);
        assert_eq!(editions, Edition::EXTRA);
    }
}
