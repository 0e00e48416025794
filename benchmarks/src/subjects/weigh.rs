//! What something costs in memory and CPU. The allocator counts by thread, so what is weighed is all done on one.

use std::future::Future;
use std::time::Duration;

use benchmarks_load::{Error, Result};
use rustix::time::{ClockId, clock_gettime};
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

/// What this thread or process has used, so far.
pub(crate) fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
