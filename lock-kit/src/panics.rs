//! Panics of drivers, which must not take along the task that keeps a connection.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

/// Runs `work`. What `work` shares with others must be whole after a panic.
///
/// # Errors
/// The panic's text, if it panics.
///
/// # Cancel safety
/// When dropped, `work` is dropped.
///
/// # Examples
/// ```
/// # use lock_kit::panics::catch;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let text = catch(async { panic!("no such field") }).await.unwrap_err();
/// assert_eq!(text, "no such field");
/// # }
/// ```
pub async fn catch<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.map_err(|panic| text(&*panic))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_text() {
        assert_eq!(catch(async { 1 }).await, Ok(1));
        let plain: fn() = || panic!("plain");
        let formatted: fn() = || panic!("number {}", 7);
        let other: fn() = || std::panic::panic_any(7);
        for (panic, text) in [
            (plain, "plain"),
            (formatted, "number 7"),
            (other, "a panic without a text"),
        ] {
            assert_eq!(catch(async { panic() }).await.unwrap_err(), text);
        }
    }
}
