//! The file of `--token-file`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use polylock::{FencingToken, LockName};

use crate::environment;
use crate::exit::{Code, Failure};

/// Writes the tokens, down to the disk; without any, checks that the file can be written.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_tokens(path: &Path, tokens: Option<&[(LockName, FencingToken)]>) -> Result<(), Failure> {
    let write = || {
        let mut file = OpenOptions::new()
            .create(true)
            .append(tokens.is_none())
            .write(true)
            .truncate(tokens.is_some())
            .open(path)?;
        let Some(tokens) = tokens else { return Ok(()) };
        file.write_all(environment::token_file(tokens).as_bytes())?;
        match file.sync_all() {
            // A device or a pipe has nothing to sync.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    };
    write().map_err(|error| Failure::new(Code::CANNOT_CREATE, format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_that_cannot_be_written_has_its_code() {
        let folder = tempfile::tempdir().unwrap();
        let failure = write_tokens(folder.path(), None).unwrap_err();
        assert_eq!(failure.code, Code::CANNOT_CREATE);
        let file = folder.path().join("token");
        std::fs::write(&file, "before").unwrap();
        write_tokens(&file, None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
        let token = FencingToken::new(7).unwrap();
        write_tokens(&file, Some(&[(LockName::new("a").unwrap(), token)])).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "7\n");
    }
}
