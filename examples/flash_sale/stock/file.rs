//! The stock: a number in a file, replaced by rename so that nobody reads half of it.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(crate) struct FileStock(PathBuf);

impl FileStock {
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn create(path: &Path, items: u32) -> io::Result<Self> {
        let stock = Self::at(path);
        stock.write(items)?;
        Ok(stock)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn read(&self) -> io::Result<u32> {
        let text = std::fs::read_to_string(&self.0)?;
        text.trim()
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    pub(crate) fn write(&self, items: u32) -> io::Result<()> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(folder)?;
        std::fs::write(file.path(), items.to_string())?;
        file.persist(&self.0)?;
        Ok(())
    }
}
