//! Requests that wait until the connection's task sends them, in the order in which they were asked for.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;
use lock_core::Error;
use parking_lot::Mutex;

use super::Reply;
use super::window::Room;
use crate::error::Failure;
use crate::protocol::{Kind, Request};

/// The most that the task takes at once. Its runtime's other tasks wait until it has sent them.
const MOST: usize = 1024;

/// Of one connection.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Queued>,
    /// True while the task sends those that it took.
    is_sending: bool,
}

/// A request that is to be sent.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) request: Request,
    /// `None`: it goes alone.
    pub(super) kind: Option<Kind>,
    /// The hash slot of its keys, in a cluster.
    pub(super) slot: u16,
    /// True if it counts in the connection's window.
    pub(super) in_window: bool,
    /// True if the server did not know its script.
    pub(super) has_text: bool,
    asked: Arc<Mutex<Stage>>,
}

#[derive(Debug)]
enum Stage {
    Waits(Option<Waker>),
    Sent(Option<Waker>),
    /// It was sent, and waits to be sent again.
    WaitsAgain(Option<Waker>),
    Answered(Reply),
    /// The reply was taken, or nobody waits for it.
    Over,
}

/// The reply to a request that was put into the queue. If dropped before it was sent, it is not sent.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    stage: Arc<Mutex<Stage>>,
    /// Learns whether it was sent.
    room: Option<&'a mut Room>,
}

impl Queue {
    /// True if requests wait, so that a later one must not overtake them.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_sending || !state.waiting.is_empty()
    }

    pub(super) fn push<'a>(
        &self,
        request: Request,
        kind: Option<Kind>,
        slot: u16,
        room: Option<&'a mut Room>,
    ) -> Asked<'a> {
        let stage = Arc::new(Mutex::new(Stage::Waits(None)));
        let queued = Queued {
            request,
            kind,
            slot,
            has_text: false,
            in_window: room.as_ref().is_some_and(|room| room.counts()),
            asked: stage.clone(),
        };
        let is_first = {
            let mut state = self.state.lock();
            state.waiting.push_back(queued);
            state.waiting.len() == 1
        };
        if is_first {
            self.filled.wake();
        }
        Asked { stage, room }
    }

    /// Whether requests wait. Wakes the task as soon as there are any.
    pub(super) fn poll_filled(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.state.lock().waiting.is_empty() {
            return Poll::Ready(());
        }
        self.filled.register(context.waker());
        match self.state.lock().waiting.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    /// The first that wait and whose callers do. They count as sent. Nobody overtakes them until [`sent`](Self::sent) is called.
    pub(super) fn take(&self) -> Vec<Queued> {
        let mut first: Vec<Queued> = {
            let mut state = self.state.lock();
            state.is_sending = true;
            let count = state.waiting.len().min(MOST);
            state.waiting.drain(..count).collect()
        };
        first.retain(Queued::begin);
        first
    }

    pub(super) fn sent(&self) {
        self.state.lock().is_sending = false;
    }

    /// Has these sent once more, before all others, unless their callers have left: what such a caller asked for since, to undo the
    /// request, must not be overtaken by it.
    pub(super) fn again(&self, requests: impl IntoIterator<Item = Queued>) {
        let again: Vec<Queued> = requests.into_iter().filter(Queued::begin_again).collect();
        if again.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        again
            .into_iter()
            .rev()
            .for_each(|queued| state.waiting.push_front(queued));
        drop(state);
        self.filled.wake();
    }
}

impl Queued {
    /// Returns whether its caller still waits. Then it counts as sent.
    fn begin(&self) -> bool {
        let mut stage = self.asked.lock();
        match &mut *stage {
            Stage::Waits(waker) | Stage::WaitsAgain(waker) => {
                *stage = Stage::Sent(waker.take());
                true
            }
            _ => false,
        }
    }

    /// Returns whether its caller still waits. Then it waits to be sent again.
    fn begin_again(&self) -> bool {
        let mut stage = self.asked.lock();
        match &mut *stage {
            Stage::Sent(waker) => {
                *stage = Stage::WaitsAgain(waker.take());
                true
            }
            _ => false,
        }
    }

    /// To be sent again, with the text of its script.
    pub(super) fn with_text(self) -> Self {
        Self {
            has_text: true,
            in_window: false,
            ..self
        }
    }

    /// To be sent again, without others.
    pub(super) fn alone(self) -> Self {
        Self {
            kind: None,
            in_window: false,
            ..self
        }
    }

    pub(super) fn answer(self, reply: Reply) {
        let mut stage = self.asked.lock();
        if let Stage::Sent(waker) = &mut *stage {
            let waker = waker.take();
            *stage = Stage::Answered(reply);
            drop(stage);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Asked<'_> {
    /// The failure of one whose connection has ended, for this reason. If it was not sent yet, it is not sent any more.
    pub(super) fn cut_off(self, why: Error) -> Failure {
        let mut stage = self.stage.lock();
        match *stage {
            Stage::Waits(_) => {
                *stage = Stage::Over;
                Failure::NotExecuted(why)
            }
            _ => Failure::NoReply(why),
        }
    }
}

impl Future for Asked<'_> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let reply = {
            let mut stage = self.stage.lock();
            match std::mem::replace(&mut *stage, Stage::Over) {
                Stage::Answered(reply) => reply,
                mut unanswered => {
                    if let Stage::Waits(waker) | Stage::Sent(waker) | Stage::WaitsAgain(waker) = &mut unanswered {
                        waker
                            .get_or_insert_with(|| context.waker().clone())
                            .clone_from(context.waker());
                    }
                    *stage = unanswered;
                    return Poll::Pending;
                }
            }
        };
        if let Some(room) = self.room.take() {
            room.was_sent();
        }
        Poll::Ready(reply)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.stage.lock(), Stage::Over);
        if let (Stage::Sent(_) | Stage::WaitsAgain(_) | Stage::Answered(_), Some(room)) = (before, self.room.take()) {
            room.was_sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use lock_core::ErrorKind;
    use redis::Value;

    use super::*;
    use crate::connection::window::Window;
    use crate::protocol::ACQUIRE;

    fn request(lock: &str) -> Request {
        Request::new(&ACQUIRE, &[lock, "fence"], &["id", "10", "", "1", "rest"])
    }

    fn locks(taken: &[Queued]) -> Vec<&str> {
        taken.iter().map(|queued| queued.request.lock()).collect()
    }

    #[tokio::test]
    async fn each_gets_its_reply_in_the_order_of_asking() {
        let queue = Queue::default();
        assert!(!queue.is_busy());
        let (first, second) = (
            queue.push(request("a"), None, 0, None),
            queue.push(request("b"), None, 0, None),
        );
        assert!(queue.is_busy());
        let taken = queue.take();
        assert_eq!(locks(&taken), ["a", "b"]);
        assert!(queue.is_busy(), "they are not sent yet");
        queue.sent();
        assert!(!queue.is_busy());
        for (number, queued) in (1..).zip(taken) {
            queued.answer(Ok(Value::Int(number)));
        }
        assert!(matches!(second.await, Ok(Value::Int(2))));
        assert!(matches!(first.await, Ok(Value::Int(1))));
    }

    #[test]
    fn one_that_goes_out_again_is_the_next_unless_its_caller_has_left() {
        let (queue, window) = (Queue::default(), Arc::new(Window::new()));
        let mut room = window.try_room().expect("room");
        let left = queue.push(request("a"), None, 0, Some(&mut room));
        let waiting = ["b", "c"].map(|lock| queue.push(request(lock), None, 0, None));
        let taken = queue.take();
        queue.sent();
        let later = queue.push(request("d"), None, 0, None);
        drop(left);
        queue.again(taken);
        assert_eq!(locks(&queue.take()), ["b", "c", "d"]);
        assert!(room.is_sent(), "it may have been executed");
        room.answered();
        drop((waiting, later));
    }

    #[test]
    fn one_whose_caller_leaves_before_it_goes_out_again_does_not() {
        let (queue, window) = (Queue::default(), Arc::new(Window::new()));
        let mut room = window.try_room().expect("room");
        let asked = queue.push(request("a"), None, 0, Some(&mut room));
        let taken = queue.take();
        queue.again(taken);
        drop(asked);
        assert!(queue.take().is_empty());
        assert!(room.is_sent(), "it may have been executed");
        room.answered();
    }

    #[test]
    fn one_whose_connection_ends_was_not_executed_unless_it_was_sent() {
        let queue = Queue::default();
        let sent = queue.push(request("a"), None, 0, None);
        let _taken = queue.take();
        let waiting = queue.push(request("b"), None, 0, None);
        let why = || Error::new(ErrorKind::Unavailable, "cut");
        assert!(matches!(sent.cut_off(why()), Failure::NoReply(_)));
        assert!(matches!(waiting.cut_off(why()), Failure::NotExecuted(_)));
        assert!(queue.take().is_empty(), "it is not sent later either");
    }

    #[test]
    fn no_more_than_the_most_are_taken_at_once() {
        let queue = Queue::default();
        let asked: Vec<_> = (0..MOST + 1).map(|_| queue.push(request("a"), None, 0, None)).collect();
        assert_eq!([(); 3].map(|()| queue.take().len()), [MOST, 1, 0]);
        drop(asked);
    }

    #[test]
    fn one_that_is_dropped_before_it_was_sent_is_not_sent_and_says_so() {
        let (queue, window) = (Queue::default(), Arc::new(Window::new()));
        let mut rooms = [0; 3].map(|_| window.try_room().expect("room"));
        let [before, after, answered] = &mut rooms;
        let (first, mut second, mut third) = (
            queue.push(request("a"), None, 0, Some(before)),
            queue.push(request("b"), None, 0, Some(after)),
            queue.push(request("c"), None, 0, Some(answered)),
        );
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let mut taken = queue.take();
        assert_eq!(locks(&taken), ["b", "c"]);
        assert!(taken.iter().all(|queued| queued.in_window));
        drop(second);
        taken.pop().expect("two").answer(Ok(Value::Nil));
        assert!((&mut third).now_or_never().is_some_and(|reply| reply.is_ok()));
        drop(third);
        // Nobody waits for this one.
        taken.pop().expect("one").answer(Ok(Value::Nil));
        assert_eq!(rooms.each_ref().map(Room::is_sent), [false, true, true]);
        for room in &mut rooms {
            room.answered();
        }
    }
}
