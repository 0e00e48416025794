//! The check whether a command can be started, before the lock is acquired.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::exit::{Code, Failure};

/// Where programs are searched if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// # Errors
/// With code 127 if there is no such command, and 126 if it cannot be executed.
pub(crate) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), Failure> {
    let (code, why) = match find(program, path) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT | Errno::NOTDIR) => (Code::NOT_FOUND, "there is no such command"),
        Err(_) => (Code::CANNOT_EXECUTE, "it cannot be executed"),
    };
    Err(Failure::new(code, format!("cannot run {}: {why}", program.display())))
}

/// As `execvp` searches: a file that cannot be executed does not end the search.
fn find(program: &OsStr, path: Option<&OsStr>) -> Result<(), Errno> {
    if program.is_empty() {
        return Err(Errno::NOENT);
    }
    if program.as_encoded_bytes().contains(&b'/') {
        return executable(Path::new(program));
    }
    let mut refused = Errno::NOENT;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        match executable(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(Errno::ACCESS) => refused = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(refused)
}

fn executable(file: &Path) -> Result<(), Errno> {
    access(file, Access::EXEC_OK)?;
    match file.is_dir() {
        true => Err(Errno::ACCESS),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_command_is_searched_as_execvp_does() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        for folder in [&first, &second] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("job"), "#!/bin/sh\n").unwrap();
            fs::write(folder.join("text"), "").unwrap();
        }
        fs::set_permissions(second.join("job"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();
        let code = |program: &OsStr| check(program, Some(&path)).err().map(|failure| failure.code);
        assert_eq!(code(OsStr::new("job")), None);
        assert_eq!(code(OsStr::new("text")), Some(Code::CANNOT_EXECUTE));
        assert_eq!(code(OsStr::new("no-such-command")), Some(Code::NOT_FOUND));
        assert_eq!(code(OsStr::new("")), Some(Code::NOT_FOUND));
        assert_eq!(code(second.join("job").as_os_str()), None);
        assert_eq!(code(first.join("job").as_os_str()), Some(Code::CANNOT_EXECUTE));
        assert_eq!(code(first.as_os_str()), Some(Code::CANNOT_EXECUTE), "a folder");
        assert_eq!(code(first.join("job/x").as_os_str()), Some(Code::NOT_FOUND));
        assert!(check(OsStr::new("sh"), None).is_ok(), "without PATH");
    }
}
