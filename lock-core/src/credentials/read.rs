//! Passwords from files and variables.

use std::env::{self, VarError};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// No password is longer. A file without an end would fill the memory.
const LONGEST: u64 = 64 * 1024;

pub(super) async fn file(path: PathBuf) -> Result<String> {
    let reading = tokio::task::spawn_blocking(move || {
        let content = content(&path).map_err(|error| {
            let message = format!(
                "the password file {} cannot be read: check its path and permissions",
                path.display()
            );
            misconfigured(message).with_source(error)
        });
        password(content?, &format!("the password file {}", path.display()))
    });
    // It cannot panic, and ends early with its runtime alone.
    reading.await.unwrap_or_else(|error| {
        let message = "the password file was not read, since the Tokio runtime ends";
        Err(Error::new(ErrorKind::Unavailable, message).with_source(error))
    })
}

fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut content)?;
    Ok(content)
}

pub(super) fn variable(name: &str) -> Result<String> {
    // The system's calls take none of these.
    let is_name = !name.is_empty() && !name.contains(['=', '\0']);
    let value = if is_name {
        env::var(name)
    } else {
        Err(VarError::NotPresent)
    };
    let what = format!("the environment variable {name}");
    match value {
        Ok(value) => password(value.into_bytes(), &what),
        Err(VarError::NotPresent) => Err(misconfigured(format!(
            "{what}, which is to have the password, is not set: set it"
        ))),
        Err(VarError::NotUnicode(_)) => Err(misconfigured(not_utf8(&what))),
    }
}

/// Without the line break that editors and `echo` add.
pub(super) fn password(content: Vec<u8>, what: &str) -> Result<String> {
    if content.len() as u64 > LONGEST {
        let message = format!("{what} has more than {LONGEST} bytes: name one that has a password and nothing else");
        return Err(misconfigured(message));
    }
    // Its error would show the password.
    let mut password = String::from_utf8(content).map_err(|_| misconfigured(not_utf8(what)))?;
    if password.ends_with('\n') {
        password.pop();
        if password.ends_with('\r') {
            password.pop();
        }
    }
    match password.is_empty() {
        true => Err(misconfigured(format!("{what} is empty: put the password into it"))),
        false => Ok(password),
    }
}

fn not_utf8(what: &str) -> String {
    format!("{what} is not UTF-8: use a password that is")
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}
