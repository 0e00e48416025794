//! The limit on unanswered acquires of a connection. Acquires beyond it wait in this process. If one of those is
//! cancelled, it was never sent, and nothing has to be undone.
//!
//! The server also executes acquires whose callers have gone, before those of callers that still wait. So each acquire
//! that is cancelled unanswered makes the window smaller, and each one that is answered in time makes it larger. After
//! an outage, or under too much load, answers come in time again.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The window of a connection on which no acquire was cancelled.
const LARGEST: usize = 1024;

/// Enough to keep a server busy that is not far away.
const SMALLEST: usize = 16;

/// By how much one cancelled acquire makes the window smaller. One that is answered makes it larger by one: it stays as it is
/// where one in nine is cancelled.
const STEP: usize = 8;

/// The driver has a slot for each of these acquires, and for all else that is sent meanwhile.
pub(super) const DRIVER_SLOTS: usize = 2 * LARGEST;

/// The acquires of one connection. The server answers in order: a reply to any request is one to all before it, also to
/// those of which nobody waits for the reply.
#[derive(Debug)]
pub(super) struct Window {
    room: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    size: usize,
    /// The number by which the window shrinks as soon as acquires are answered.
    excess: usize,
    sent: u64,
    answered: u64,
}

/// The right to send an acquire. Dropped before it was sent, it is given back. Dropped after that without
/// [`answered`](Self::answered), the acquire was cancelled.
#[derive(Debug)]
#[must_use]
pub(crate) struct Room {
    /// `None`: it takes none.
    window: Option<Arc<Window>>,
    is_sent: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            room: Semaphore::new(LARGEST),
            state: Mutex::new(State {
                size: LARGEST,
                excess: 0,
                sent: 0,
                answered: 0,
            }),
        }
    }

    /// Room for one acquire, if there is any now.
    pub(super) fn try_room(self: &Arc<Self>) -> Option<Room> {
        self.room.try_acquire().ok()?.forget();
        Some(Room::of(self))
    }

    /// Room for one acquire, as soon as there is any. The first that waits gets it first.
    pub(super) async fn room(self: &Arc<Self>) -> Room {
        self.room.acquire().await.expect("it is never closed").forget();
        Room::of(self)
    }

    /// So many acquires go out.
    pub(super) fn count(&self, sent: usize) {
        self.state.lock().sent += sent as u64;
    }

    /// The number of acquires that were sent. Hand it to [`answered`](Self::answered) with the reply to the next
    /// request.
    pub(super) fn sent(&self) -> u64 {
        self.state.lock().sent
    }

    /// Notes the answer to a request that was sent after `sent` acquires.
    pub(super) fn answered(&self, sent: u64) {
        let mut state = self.state.lock();
        let newly = sent.saturating_sub(state.answered);
        state.answered += newly;
        self.give_back(&mut state, usize::try_from(newly).unwrap_or(usize::MAX));
    }

    fn give_back(&self, state: &mut State, room: usize) {
        let unwanted = room.min(state.excess);
        state.excess -= unwanted;
        if room > unwanted {
            self.room.add_permits(room - unwanted);
        }
    }

    fn grow(&self) {
        let mut state = self.state.lock();
        if state.size < LARGEST {
            state.size += 1;
            self.give_back(&mut state, 1);
        }
    }

    fn shrink(&self) {
        let mut state = self.state.lock();
        let less = STEP.min(state.size - SMALLEST);
        state.size -= less;
        state.excess += less - self.room.forget_permits(less);
    }
}

impl Room {
    fn of(window: &Arc<Window>) -> Self {
        Self {
            window: Some(window.clone()),
            is_sent: false,
        }
    }

    /// Of an acquire that goes out in any case.
    pub(crate) fn unlimited() -> Self {
        Self {
            window: None,
            is_sent: false,
        }
    }

    /// The acquire goes out.
    pub(crate) fn sending(&mut self) {
        if let Some(window) = &self.window
            && !self.is_sent
        {
            window.count(1);
        }
        self.is_sent = true;
    }

    /// The acquire went out, and was counted.
    pub(super) fn was_sent(&mut self) {
        self.is_sent = true;
    }

    pub(super) fn counts(&self) -> bool {
        self.window.is_some() && !self.is_sent
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// It was answered, or its connection ended.
    pub(crate) fn answered(&mut self) {
        if let Some(window) = self.window.take() {
            match self.is_sent {
                true => window.grow(),
                false => window.give_back(&mut window.state.lock(), 1),
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            match self.is_sent {
                true => window.shrink(),
                false => window.give_back(&mut window.state.lock(), 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of acquires that can be sent now.
    fn room(window: &Arc<Window>) -> usize {
        let rooms: Vec<_> = std::iter::from_fn(|| window.try_room()).collect();
        rooms.len()
    }

    fn send(window: &Arc<Window>) -> Room {
        let mut room = window.try_room().expect("room");
        room.sending();
        room
    }

    #[test]
    fn a_reply_makes_room_for_as_many_as_were_sent_before_it() {
        let window = Arc::new(Window::new());
        let mut first = send(&window);
        let early = window.sent();
        let mut second = send(&window);
        let late = window.sent();
        assert_eq!(room(&window), LARGEST - 2);
        window.answered(late);
        // One that was sent earlier: it was counted.
        window.answered(early);
        second.answered();
        first.answered();
        assert_eq!(room(&window), LARGEST);
    }

    #[test]
    fn cancelled_acquires_make_it_smaller_and_answered_ones_larger() {
        let window = Arc::new(Window::new());
        let sent: Vec<_> = (0..LARGEST).map(|_| send(&window)).collect();
        assert!(window.try_room().is_none());
        drop(sent);
        window.answered(window.sent());
        assert_eq!(room(&window), SMALLEST);
        for size in SMALLEST..SMALLEST + 100 {
            assert_eq!(room(&window), size);
            let mut sent = send(&window);
            window.answered(window.sent());
            sent.answered();
        }
        drop(send(&window));
        window.answered(window.sent());
        assert_eq!(room(&window), SMALLEST + 100 - STEP);
    }

    #[test]
    fn one_that_was_not_sent_is_given_back() {
        let window = Arc::new(Window::new());
        drop(window.try_room().expect("room"));
        window.try_room().expect("room").answered();
        assert_eq!(room(&window), LARGEST);
        // Its connection's task has counted it.
        let mut taken = window.try_room().expect("room");
        window.count(1);
        taken.was_sent();
        assert_eq!(room(&window), LARGEST - 1);
        window.answered(window.sent());
        taken.answered();
        assert_eq!(room(&window), LARGEST);
    }
}
