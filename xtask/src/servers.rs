//! `cargo xtask servers`: the lock servers that the tests start.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use tokio::runtime::Runtime;
use unpack::Wanted;

use crate::Result;

mod apt;
mod curator;
mod extra;
mod python;
mod sources;
mod unpack;

/// Raise it when what is unpacked, or how, changes: it is then done anew everywhere.
const LAYOUT: u32 = 1;

/// Servers that every run of the tests needs.
struct Set {
    /// Where they are put, in the directory of all.
    dir: &'static str,
    /// apt adds what they depend on.
    packages: &'static [&'static str],
    wanted: Wanted,
    /// A package that unpacks may still lack what it needs to run.
    start_each_once: fn(&Runtime) -> std::result::Result<(), testbed::Error>,
}

/// The distribution's own servers. A change of one set leaves the other as it is.
const SETS: [Set; 2] = [
    Set {
        dir: "",
        packages: &[
            "redis-server",
            "mariadb-server-core",
            "libzookeeper-java",
            "default-jre-headless",
        ],
        wanted: Wanted {
            programs: &[
                ("redis-server", "usr/bin/redis-server"),
                ("mariadbd", "usr/sbin/mariadbd"),
                ("java", "usr/lib/jvm/default-java/bin/java"),
            ],
            zookeeper: true,
            ..Wanted::NOTHING
        },
        start_each_once: |runtime| {
            runtime.block_on(async {
                let redis = testbed::Redis::new().start();
                let maria = testbed::MariaDb::new().start();
                let zookeeper = testbed::ZooKeeper::new().start();
                tokio::try_join!(redis, maria, zookeeper).map(drop)
            })
        },
    },
    Set {
        dir: "postgres",
        packages: &["postgresql", "pgbouncer"],
        wanted: Wanted {
            programs: &[("pgbouncer", "usr/sbin/pgbouncer")],
            postgres: true,
            without_packages: &unpack::SETS_UP_POSTGRES,
            ..Wanted::NOTHING
        },
        start_each_once: |runtime| {
            runtime.block_on(async {
                let postgres = testbed::Postgres::new().start().await?;
                testbed::PgBouncer::of(postgres.port()).start().await.map(drop)
            })
        },
    },
];

const OTHER_WAYS: &str = "To use servers of your own, set for each of the four either the URL of one that runs \
                          (POLYLOCK_REDIS_URL, POLYLOCK_MYSQL_URL, POLYLOCK_ZOOKEEPER_URL, POLYLOCK_POSTGRES_URL) or a program to start \
                          (POLYLOCK_REDIS_SERVER, POLYLOCK_MARIADB_DIR, POLYLOCK_ZOOKEEPER_DIR with POLYLOCK_JAVA, POLYLOCK_POSTGRES_DIR), and \
                          POLYLOCK_PGBOUNCER.";

/// Says what is there; fails if something is missing.
pub(crate) fn run(install: bool) -> Result<ExitCode> {
    let left_out = if install { self::install()? } else { Vec::new() };
    let mut code = ExitCode::SUCCESS;
    for found in testbed::find() {
        match found {
            Ok(found) => {
                let installed = testbed::installed_dir().display().to_string();
                println!("{:13} {}", found.server, found.variable.unwrap_or(&installed));
            }
            Err(error) => {
                println!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    for (edition, found) in testbed::find_extra() {
        match found {
            Ok(found) => {
                let installed = extra::installed(edition).unwrap_or_else(|| "there".into());
                println!("{:13} {}", found.server, found.variable.unwrap_or(&installed));
            }
            Err(testbed::Error::LeftOut { server, .. }) => println!("{server:13} left out"),
            Err(error) => {
                println!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    let clients = python::CLIENTS.iter().map(|client| {
        let python = client.find();
        python.map(|python| (client.title, client.describe(&python)))
    });
    let curator = testbed::curator().map(|_| (testbed::CURATOR, "built".to_owned()));
    for found in clients.chain([curator]) {
        match found {
            Ok((title, what)) => println!("{title:13} {what}"),
            Err(testbed::Error::LeftOut { server, .. }) => println!("{server:13} left out"),
            Err(error) => {
                println!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    for why in left_out {
        println!("left out: {why}");
    }
    println!("{OTHER_WAYS}");
    Ok(code)
}

/// One line for each server that is missing.
pub(crate) fn missing() -> Vec<String> {
    let extra = testbed::find_extra().into_iter().map(|(_, found)| found.map(drop));
    testbed::find()
        .into_iter()
        .map(|found| found.map(drop))
        .chain(extra)
        .chain([testbed::redis_py(), testbed::kazoo(), testbed::curator()].map(|found| found.map(drop)))
        .filter_map(|found| found.err())
        .filter(|error| !matches!(error, testbed::Error::LeftOut { .. }))
        .map(|error| error.to_string())
        .collect()
}

/// Puts the servers in place unless they are, and says which could not be had and may be left out. Safe to run twice at
/// once.
pub(crate) fn install() -> Result<Vec<String>> {
    let dir = testbed::installed_dir();
    fs::create_dir_all(&dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let _lock = lock(&dir.join("lock"))?;
    // With all of them named by variables nothing is needed of us.
    if !testbed::find()
        .iter()
        .all(|found| found.as_ref().is_ok_and(|found| found.variable.is_some()))
    {
        for set in &SETS {
            set.install(&dir.join(set.dir))?;
        }
    }
    extra::install(&dir)
}

impl Set {
    fn install(&self, dir: &Path) -> Result<()> {
        let system = sources::System::of_this_machine().map_err(|error| format!("{error}\n{OTHER_WAYS}"))?;
        let stamp = format!(
            "layout {LAYOUT}\n{} {} {}\n{}\n",
            system.id,
            system.codename,
            std::env::consts::ARCH,
            self.packages.join(" ")
        );
        let unpacked = dir.join("unpacked");
        let stamp_file = unpacked.join("stamp");
        if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
            return Ok(());
        }
        let start = Instant::now();
        fs::create_dir_all(dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        let apt = dir.join("apt");
        let packages = apt::download(&apt, &system, self.packages, self.wanted.without_packages)?;
        println!("servers: unpacking {} packages", packages.len());
        let replaces = unpacked.exists();
        unpack::unpack(&packages, &self.wanted, dir)?;
        if replaces {
            testbed::forget_templates().map_err(|error| error.to_string())?;
        }
        apt::clean(&apt)?;
        println!("servers: starting each once");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| error.to_string())?;
        (self.start_each_once)(&runtime).map_err(|error| error.to_string())?;
        // Last: without it everything is done again.
        fs::write(&stamp_file, stamp).map_err(|error| format!("cannot write {}: {error}", stamp_file.display()))?;
        println!("servers: installed in {:.0} s", start.elapsed().as_secs_f32());
        Ok(())
    }
}

/// Held until the file is closed, so also when we are killed.
fn lock(path: &Path) -> Result<File> {
    let failed = |error| format!("cannot lock {}: {error}", path.display());
    let file = File::create(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => println!("servers: waiting for another run of this command"),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.lock().map_err(failed)?;
    Ok(file)
}
