//! Curator, with which lock-zookeeper is to share locks: built by the machine's own Maven.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::python::run;
use crate::Result;

/// Builds it into `dir` unless it is there, made from the same files.
pub(super) fn install(dir: &Path) -> Result<()> {
    let wanted = files()?.concat();
    let stamp = dir.join("stamp");
    if fs::read(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    println!("servers: building a client with Curator");
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
    }
    let mut mvn = Command::new("mvn");
    mvn.args(["--quiet", "--batch-mode", "-Dstyle.color=never", "package"])
        .arg(format!("-Dout={}", dir.display()))
        .current_dir(sources());
    run(&mut mvn).map_err(|error| format!("no Curator: {error}"))?;
    // Last: without it everything is done again.
    fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
}

/// The library's version is in the first.
fn files() -> Result<[Vec<u8>; 2]> {
    let read = |name: &str| {
        let path = sources().join(name);
        fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    Ok([read("pom.xml")?, read("src/CuratorLock.java")?])
}

fn sources() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("xtask is a folder of the workspace");
    root.join("lock-zookeeper/tests/all/interop/curator")
}
