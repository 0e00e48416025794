//! tokio's own, whose operations are single steps here.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::point;

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (Sender(sender), Receiver(receiver))
}

#[derive(Debug)]
pub(crate) struct Sender<T>(oneshot::Sender<T>);

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        point();
        self.0.send(value)
    }

    pub(crate) fn is_closed(&self) -> bool {
        point();
        self.0.is_closed()
    }
}

#[derive(Debug)]
pub(crate) struct Receiver<T>(oneshot::Receiver<T>);

impl<T> Future for Receiver<T> {
    type Output = Result<T, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        point();
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        point();
    }
}
