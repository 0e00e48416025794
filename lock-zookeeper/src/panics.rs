//! Panics of background tasks, as errors.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use lock_core::{Error, ErrorKind};

/// Runs `work`. If it panics, the panic's text is the error's source.
///
/// What `work` shares with others must be whole after a panic.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.map_err(|panic| {
        let message = "a background task of the ZooKeeper backend panicked: please report it";
        Error::new(ErrorKind::Unexpected, message).with_source(text(&*panic))
    })
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_text_as_source() {
        assert_eq!(caught(async { 1 }).await.unwrap(), 1);
        let plain: fn() = || panic!("plain");
        let formatted: fn() = || panic!("number {}", 7);
        let other: fn() = || std::panic::panic_any(7);
        for (panic, text) in [
            (plain, "plain"),
            (formatted, "number 7"),
            (other, "a panic without a text"),
        ] {
            let error = caught(async { panic() }).await.unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unexpected, false));
            assert_eq!(error.source().unwrap().to_string(), text);
        }
    }
}
