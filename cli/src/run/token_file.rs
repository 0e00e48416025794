//! The file of `--token-file`.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use polylock::{FencingToken, LockName};

use crate::environment;
use crate::exit::{Code, Failure};

/// A file that can be written.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// A pipe or a device. Its reader may have no second one in mind.
    open: Option<File>,
}

impl TokenFile {
    /// Opens the file, and leaves what it has. A pipe without a reader waits for one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let open = file.and_then(|file| Ok((!file.metadata()?.is_file()).then_some(file)));
        Ok(Self {
            open: open.map_err(|error| cannot_write(path, &error))?,
            path: path.to_owned(),
        })
    }

    /// Writes the tokens in place of what it has, down to the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(self, tokens: &[(LockName, FencingToken)]) -> Result<(), Failure> {
        let Self { path, open } = self;
        let write = || {
            let mut file = match open {
                Some(file) => file,
                None => File::create(&path)?,
            };
            file.write_all(environment::token_file(tokens).as_bytes())?;
            match file.sync_all() {
                // A device or a pipe has nothing to sync.
                Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            }
        };
        write().map_err(|error| cannot_write(&path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::CANNOT_CREATE, format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seven() -> [(LockName, FencingToken); 1] {
        [(LockName::new("a").unwrap(), FencingToken::new(7).unwrap())]
    }

    #[test]
    fn a_token_file_that_cannot_be_written_has_its_code() {
        let folder = tempfile::tempdir().unwrap();
        let failure = TokenFile::open(folder.path()).unwrap_err();
        assert_eq!(failure.code, Code::CANNOT_CREATE);
        let path = folder.path().join("token");
        std::fs::write(&path, "before").unwrap();
        let file = TokenFile::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        file.write(&seven()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7\n");
    }

    #[test]
    fn the_reader_of_a_pipe_reads_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| std::fs::read_to_string(&path).unwrap());
            TokenFile::open(&path).unwrap().write(&seven()).unwrap();
            assert_eq!(reader.join().unwrap(), "7\n");
        });
    }
}
