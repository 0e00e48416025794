//! Work for the keeper.

use std::fmt;

use futures_util::future::BoxFuture;

use super::undos::Undos;
use crate::sync::Arc;

/// Something that the keeper brings to its end.
pub(crate) trait Job: fmt::Debug + Send {
    /// Brings it to its end. If it undoes an acquire, it is one of the `undos`.
    fn run(self: Box<Self>, undos: &Arc<Undos>) -> BoxFuture<'static, ()>;

    /// A job that does the same from the start, in case another runtime takes over. Everything a job does is idempotent.
    fn restart(&self) -> Box<dyn Job>;
}
