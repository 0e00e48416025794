//! Which server, and a locker for it.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use polylock::{Config, Error, ErrorKind, Locker};
use tokio::time::timeout;

use crate::cli::ServerArgs;
use crate::exit::{Code, Failure};

/// The variable that names the server. It may have a password, so that commands do not get it.
pub(crate) const URL_VARIABLE: &str = "POLYLOCK_URL";

/// The time by which a server that does not answer may delay the end.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(1);

/// Whether the arguments or the environment name a server.
pub(crate) fn is_named(arguments: &ServerArgs) -> bool {
    let in_arguments = arguments.url.is_some() || arguments.url_file.is_some() || arguments.config.is_some();
    in_arguments || std::env::var_os(URL_VARIABLE).is_some_and(|url| !url.is_empty())
}

/// The configuration that the arguments or the environment name.
///
/// # Errors
/// If none is named, if it cannot be read, and for a server in this process's memory.
pub(crate) fn config(arguments: &ServerArgs) -> Result<Config, Failure> {
    let ServerArgs {
        url,
        url_file,
        config,
        connect_timeout: _,
        require,
        trusting,
    } = arguments;
    let mut config = match (url, url_file, config) {
        (Some(url), _, _) => Config::new(url),
        (None, Some(path), _) => Config::new(url_of_file(path)?),
        (None, None, Some(path)) => from_toml(path)?,
        (None, None, None) => Config::new(url_of_environment()?),
    };
    match in_memory(&config) {
        false => {
            config.require.extend(require.iter().copied());
            config.trusting.extend(trusting.iter().copied());
            Ok(config)
        }
        true => Err(Failure::usage(
            "`memory:` is the memory of this process, in which no other process sees the lock: name a server, as in \
             --url redis://localhost",
        )),
    }
}

/// Connects within the limit.
///
/// # Errors
/// Those of [`Locker::connect`].
pub(crate) async fn connect(locks: &Locker, limit: Duration) -> polylock::Result<()> {
    timeout(limit, locks.connect()).await.unwrap_or_else(|_| {
        // A remaining time is a little less than the limit that was asked for.
        let limit = Duration::from_secs_f64((limit.as_secs_f64() * 1000.0).round() / 1000.0);
        let message = format!("the lock server was not reached within {limit:?}: check that it runs, and its address");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

fn url_of_environment() -> Result<String, Failure> {
    match std::env::var(URL_VARIABLE) {
        Ok(url) if !url.is_empty() => Ok(url),
        _ => Err(Failure::usage(
            "no server is named: set POLYLOCK_URL, or give --url, --url-file or --config",
        )),
    }
}

fn url_of_file(path: &Path) -> Result<String, Failure> {
    let line = match path.as_os_str() == "-" {
        true => first_line(|byte| Ok(rustix::io::read(io::stdin(), byte)?)),
        false => fs::File::open(path).and_then(|mut file| first_line(|byte| file.read(byte))),
    };
    line.map_err(|error| unreadable(path, &error))
}

/// Reads no further than the line, without a buffer: what comes after it in standard input is the command's.
fn first_line(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while read(&mut byte)? == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    let line = String::from_utf8(line).map_err(|_| io::Error::other("its first line is not UTF-8"))?;
    Ok(line.trim().to_owned())
}

fn from_toml(path: &Path) -> Result<Config, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    // The whole error shows lines of the file, among them the URL.
    toml::from_str(&text).map_err(|error| {
        let message = format!("cannot use {}: {}", path.display(), error.message());
        Failure::new(Code::MISCONFIGURED, message)
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::MISCONFIGURED, format!("cannot read {}: {error}", path.display()))
}

/// The URL of each server: of a quorum, those of its nodes, and what stands before them.
pub(crate) fn urls(config: &Config) -> impl Iterator<Item = &str> {
    let (url, nodes) = match config.url.split_once(':') {
        Some((scheme, nodes)) if scheme.eq_ignore_ascii_case("quorum") => (None, Some(nodes)),
        _ => (Some(config.url.as_str()), None),
    };
    let nodes = nodes.into_iter().flat_map(|nodes| nodes.split('|'));
    url.into_iter()
        .chain(nodes)
        .chain(config.urls.iter().map(String::as_str))
}

/// Whether a server, or one of a quorum, is this process itself.
fn in_memory(config: &Config) -> bool {
    urls(config).any(|url| url.trim_start().to_ascii_lowercase().starts_with("memory:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_seen_wherever_it_stands() {
        for url in [
            "memory:",
            "Memory:a",
            "quorum:redis://a|memory:|redis://c",
            "QUORUM:memory:a",
        ] {
            assert!(in_memory(&Config::new(url)), "{url}");
        }
        assert!(in_memory(&Config::of_quorum(["redis://a", "memory:"])));
        for url in [
            "redis://memory:6379",
            "mysql://memory:pw@h/d",
            "mysql://me:p|memory:@h/d",
            "quorum:redis://a|redis://b",
        ] {
            assert!(!in_memory(&Config::new(url)), "{url}");
        }
    }

    #[test]
    fn only_the_first_line_is_read() {
        let mut input: &[u8] = b" redis://host \nthe command's";
        assert_eq!(first_line(|byte| input.read(byte)).unwrap(), "redis://host");
        assert_eq!(input, b"the command's");
        let mut input: &[u8] = b"redis://host";
        assert_eq!(first_line(|byte| input.read(byte)).unwrap(), "redis://host");
    }

    #[test]
    fn a_wrong_file_is_described_without_its_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in [
            "url = \"redis://:secret@h\"\nttl = 3\n",
            "url = redis://:secret@h",
            "urll = \"secret\"",
        ] {
            fs::write(file.path(), text).unwrap();
            let failure = from_toml(file.path()).unwrap_err();
            assert_eq!(failure.code, Code::MISCONFIGURED);
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
        fs::write(file.path(), "url = \"redis://h\"\nttl = \"3s\"\n").unwrap();
        assert_eq!(from_toml(file.path()).unwrap().ttl, Some(Duration::from_secs(3)));
    }
}
