//! The stock: in the database of the locks if that is a MySQL, otherwise in a file.

use std::path::Path;

use polylock::FencingToken;

use self::file::FileStock;
#[cfg(feature = "mysql")]
use self::mysql::MySqlStock;

mod file;
#[cfg(feature = "mysql")]
mod mysql;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Debug)]
pub(crate) enum Stock {
    File(FileStock),
    #[cfg(feature = "mysql")]
    MySql(MySqlStock),
}

impl Stock {
    /// A new stock of so many items. `folder` is for files.
    pub(crate) async fn create(backend: &str, folder: &Path, items: u32) -> Result<Self> {
        #[cfg(feature = "mysql")]
        if is_mysql(backend) {
            return Ok(Self::MySql(MySqlStock::create(backend, items).await?));
        }
        let _ = backend;
        Ok(Self::File(FileStock::create(&folder.join("stock"), items)?))
    }

    /// The stock that another process has made there: see [`place`](Self::place).
    pub(crate) async fn open(backend: &str, place: &str) -> Result<Self> {
        #[cfg(feature = "mysql")]
        if is_mysql(backend) {
            return Ok(Self::MySql(MySqlStock::open(backend, place).await?));
        }
        let _ = backend;
        Ok(Self::File(FileStock::at(Path::new(place))))
    }

    pub(crate) fn place(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            #[cfg(feature = "mysql")]
            Self::MySql(stock) => stock.place().to_owned(),
        }
    }

    /// What is left. The token is `None` without a lock; a file does not know tokens.
    pub(crate) async fn read(&self, token: Option<FencingToken>) -> Result<u32> {
        let _ = token;
        match self {
            Self::File(file) => Ok(file.read()?),
            #[cfg(feature = "mysql")]
            Self::MySql(stock) => stock.read(token).await,
        }
    }

    /// Sells one item, so that so many are left.
    pub(crate) async fn sell_down_to(&self, left: u32, token: Option<FencingToken>) -> Result<()> {
        let _ = token;
        match self {
            Self::File(file) => Ok(file.write(left)?),
            #[cfg(feature = "mysql")]
            Self::MySql(stock) => stock.sell_down_to(left, token).await,
        }
    }

    /// How many items are left, and how many were sold where the stock knows that itself. Removes the stock.
    pub(crate) async fn close(self) -> Result<(u32, Option<u32>)> {
        match self {
            Self::File(file) => Ok((file.read()?, None)),
            #[cfg(feature = "mysql")]
            Self::MySql(stock) => stock.close().await,
        }
    }
}

#[cfg(feature = "mysql")]
fn is_mysql(backend: &str) -> bool {
    backend.starts_with("mysql:") || backend.starts_with("mariadb:")
}
