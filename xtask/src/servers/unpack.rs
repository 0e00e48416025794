//! Makes a directory of runnable servers from package files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// The jars that a ZooKeeper server needs; with all of them it would start slower and find several loggers. Not every
/// version has or needs each.
const JARS: [&str; 19] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-nop",
    "netty-handler",
    "netty-transport",
    "netty-common",
    "netty-buffer",
    "netty-codec",
    "netty-resolver",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
    "metrics-core",
    "snappy-java",
    "commons-cli",
    "commons-io",
    "jackson-core",
    "jackson-databind",
    "jackson-annotations",
];

/// Packages that set up a PostgreSQL or a PgBouncer in the system, and what only they need.
pub(crate) const SETS_UP_POSTGRES: [&str; 5] = [
    "postgresql-common",
    "postgresql-client-common",
    "perl",
    "python3",
    "lsb-base",
];

/// What is wanted of the packages.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Names, and where they lie in the packages.
    pub(crate) programs: &'static [(&'static str, &'static str)],
    pub(crate) zookeeper: bool,
    pub(crate) postgres: bool,
    /// Packages that some depend on and that the programs do without; they are not downloaded.
    pub(crate) without_packages: &'static [&'static str],
    /// Directories of the packages that are not unpacked, beginning with "./".
    pub(crate) without_files: &'static [&'static str],
}

impl Wanted {
    pub(crate) const NOTHING: Self = Self {
        programs: &[],
        zookeeper: false,
        postgres: false,
        without_packages: &[],
        without_files: &[],
    };
}

/// Unpacks into `dir/unpacked`, which appears, or is replaced, only when it is complete:
/// `root/` as in the packages, `bin/` with a script for each program, `zookeeper/` with its jars, `postgres/` with scripts for
/// its programs in its own `bin/`.
pub(crate) fn unpack(packages: &[PathBuf], wanted: &Wanted, dir: &Path) -> Result<()> {
    let done = dir.join("unpacked");
    let (new, old) = (dir.join("unpacked.new"), dir.join("unpacked.old"));
    remove(&new)?;
    let root = new.join("root");
    merge_usr(&root)?;
    for package in packages {
        extract(package, &root, wanted.without_files)?;
    }
    let mut links = Vec::new();
    absolute_links(&root, &mut links)?;
    for link in links {
        make_relative(&root, &link)?;
    }
    if !wanted.programs.is_empty() {
        fill_bin(&new, wanted.programs)?;
    }
    if wanted.zookeeper {
        fill_zookeeper(&new)?;
    }
    if wanted.postgres {
        fill_postgres(&new)?;
    }
    remove(&old)?;
    if done.exists() {
        fs::rename(&done, &old).map_err(failed("rename", &done))?;
    }
    fs::rename(&new, &done).map_err(failed("rename", &new))?;
    remove(&old)
}

/// The installed system has them as links to /usr. Without these a library would be in either of two places.
fn merge_usr(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let dir = root.join("usr").join(name);
        fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
        symlink(Path::new("usr").join(name), root.join(name)).map_err(failed("link", &root.join(name)))?;
    }
    Ok(())
}

fn extract(package: &Path, root: &Path, without: &[&str]) -> Result<()> {
    let mut packer = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("unpack", package))?;
    let tar = packer.stdout.take().ok_or("dpkg-deb has no output")?;
    let status = Command::new("tar")
        .arg("-x")
        .arg("--directory")
        .arg(root)
        .args(["--keep-directory-symlink", "--no-same-owner", "--warning=no-timestamp"])
        .args(["doc", "man", "locale", "info", "perl", "fonts"].map(|name| format!("--exclude=./usr/share/{name}")))
        .args(without.iter().map(|name| format!("--exclude={name}")))
        .stdin(tar)
        .status()
        .map_err(failed("unpack", package))?;
    let packed = packer.wait().map_err(failed("unpack", package))?;
    if status.success() && packed.success() {
        Ok(())
    } else {
        Err(format!("cannot unpack {}", package.display()))
    }
}

/// All symbolic links under `dir` that would lead out of it.
fn absolute_links(dir: &Path, links: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(failed("read", dir))? {
        let entry = entry.map_err(failed("read", dir))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(failed("read", &path))?;
        if kind.is_dir() {
            absolute_links(&path, links)?;
        } else if kind.is_symlink() && fs::read_link(&path).map_err(failed("read", &path))?.is_absolute() {
            links.push(path);
        }
    }
    Ok(())
}

/// A link into the system leads to the same place under `root`: a JRE, for one, keeps its configuration in /etc.
fn make_relative(root: &Path, link: &Path) -> Result<()> {
    let target = fs::read_link(link).map_err(failed("read", link))?;
    let inside = link
        .strip_prefix(root)
        .map_err(|_| format!("{} is not in {}", link.display(), root.display()))?;
    fs::remove_file(link).map_err(failed("remove", link))?;
    symlink(relative(inside, &target), link).map_err(failed("link", link))
}

/// From the link `inside` a root to that root's own `target`.
fn relative(inside: &Path, target: &Path) -> PathBuf {
    let up = inside.components().skip(1).map(|_| Component::ParentDir);
    up.chain(target.components().filter(|part| *part != Component::RootDir))
        .collect()
}

/// Scripts that run the programs with the libraries next to them and no other, wherever the directory is.
fn fill_bin(dir: &Path, programs: &[(&str, &str)]) -> Result<()> {
    let scripts = Scripts::of(&dir.join("root"))?;
    let bin = dir.join("bin");
    fs::create_dir(&bin).map_err(failed("create", &bin))?;
    for (name, program) in programs {
        let mut program = scripts.root.join(program);
        fs::metadata(&program).map_err(failed("find", &program))?;
        // Java looks for its files beside itself. A Redis is a link too, but knows what to be by the link's name.
        if program.starts_with(scripts.root.join("usr/lib")) {
            program = fs::canonicalize(&program).map_err(failed("find", &program))?;
        }
        scripts.write(&bin.join(name), "../root", &program)?;
    }
    Ok(())
}

/// The script of a program stands in its place, since `initdb` runs the `postgres` beside itself.
fn fill_postgres(dir: &Path) -> Result<()> {
    let scripts = Scripts::of(&dir.join("root"))?;
    let version = find(&scripts.root.join("usr/lib/postgresql"), |_| true)?;
    for name in ["postgres", "initdb", "pg_basebackup"] {
        let program = version.join("bin").join(name);
        let moved = version.join("bin").join(format!("{name}.program"));
        fs::rename(&program, &moved).map_err(failed("rename", &program))?;
        scripts.write(&program, "../../../../..", &moved)?;
    }
    let inside = version.strip_prefix(&scripts.root).map_err(|error| error.to_string())?;
    let link = dir.join("postgres");
    symlink(Path::new("root").join(inside), &link).map_err(failed("link", &link))
}

/// Writes scripts that run programs with the libraries of a root.
struct Scripts {
    root: PathBuf,
    loader: PathBuf,
    libraries: PathBuf,
}

impl Scripts {
    fn of(root: &Path) -> Result<Self> {
        let root = fs::canonicalize(root).map_err(failed("find", root))?;
        let libraries = find(&root.join("usr/lib"), |path| path.join("libc.so.6").exists())?;
        let loader = find(&libraries, |path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("ld-linux") || name.starts_with("ld64")
        })?;
        Ok(Self {
            root,
            loader,
            libraries,
        })
    }

    /// From the script's directory, `up` leads to the root.
    fn write(&self, path: &Path, up: &str, program: &Path) -> Result<()> {
        let script = format!(
            "#!/bin/sh\nroot=$(CDPATH= cd -P -- \"$(dirname -- \"$0\")/{up}\" && pwd) || exit 1\n\
             exec \"$root/{}\" --library-path \"$root/{}\" \"$root/{}\" \"$@\"\n",
            self.inside(&self.loader)?,
            self.inside(&self.libraries)?,
            self.inside(program)?
        );
        fs::write(path, script).map_err(failed("write", path))?;
        fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(failed("write", path))
    }

    /// The path from the root, which must not lead out of it.
    fn inside(&self, path: &Path) -> Result<String> {
        let path = fs::canonicalize(path.parent().unwrap_or(path))
            .map(|parent| parent.join(path.file_name().unwrap_or_default()))
            .map_err(failed("find", path))?;
        Ok(path
            .strip_prefix(&self.root)
            .map_err(|_| format!("{} leads elsewhere", path.display()))?
            .display()
            .to_string())
    }
}

fn fill_zookeeper(dir: &Path) -> Result<()> {
    let (java, jars) = (dir.join("root/usr/share/java"), dir.join("zookeeper"));
    fs::create_dir(&jars).map_err(failed("create", &jars))?;
    for name in JARS.map(|name| format!("{name}.jar")) {
        let jar = java.join(&name);
        if jar.exists() {
            fs::copy(&jar, jars.join(&name)).map_err(failed("copy", &jar))?;
        }
    }
    let server = jars.join("zookeeper.jar");
    fs::metadata(&server).map(drop).map_err(failed("find", &server))
}

fn find(dir: &Path, wanted: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).map_err(failed("read", dir))?;
    let found = entries.flatten().map(|entry| entry.path()).find(|path| wanted(path));
    found.ok_or_else(|| format!("{} is not laid out as expected", dir.display()))
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed("remove", dir)(error)),
        _ => Ok(()),
    }
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_links_stay_inside() {
        let link = Path::new("usr/lib/jvm/java/conf/net.properties");
        assert_eq!(
            relative(link, Path::new("/etc/java/net")),
            Path::new("../../../../../etc/java/net")
        );
        assert_eq!(relative(Path::new("link"), Path::new("/etc/x")), Path::new("etc/x"));
    }
}
