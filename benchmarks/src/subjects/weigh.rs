//! What something costs in memory. The allocator counts by thread, so it is all done on one.

use std::future::Future;

use benchmarks_load::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// Runs what blocks.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// A runtime that does everything on the thread that waits for it.
pub(crate) fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The bytes that are still allocated when it is done, for each of `many`, and what it gives.
pub(crate) fn bytes_each<T>(many: usize, on: &Runtime, work: impl Future<Output = Result<T>>) -> Result<(f64, T)> {
    let mut output = Err(Error::from("it was not run"));
    let weighed = allocation_counter::measure(|| output = on.block_on(work));
    Ok((weighed.bytes_current as f64 / many as f64, output?))
}
