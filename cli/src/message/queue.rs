//! The messages that wait until standard error takes them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most messages that wait. The rest is dropped, and counted.
const MOST: usize = 1000;

/// Messages in their order, for one thread that writes them.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<String>,
    /// How many were dropped after those that wait.
    dropped: usize,
    is_writing: bool,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                dropped: 0,
                is_writing: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds a message, or drops it if too many wait. Never waits for the output.
    pub(super) fn push(&self, text: String) {
        let mut state = self.lock();
        if state.waiting.len() < MOST {
            let note = state.note();
            state.waiting.extend(note);
            state.waiting.push_back(text);
        } else {
            state.dropped += 1;
        }
        self.changed.notify_all();
    }

    /// Waits for the next message. The one before it counts as written.
    pub(super) fn next(&self) -> String {
        let mut state = self.lock();
        state.is_writing = false;
        self.changed.notify_all();
        loop {
            if let Some(text) = state.waiting.pop_front().or_else(|| state.note()) {
                state.is_writing = true;
                return text;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all messages are written, for this time at most. Returns whether they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let is_busy = |state: &mut State| state.is_writing || state.dropped > 0 || !state.waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A message in place of those that were dropped.
    fn note(&mut self) -> Option<String> {
        match std::mem::take(&mut self.dropped) {
            0 => None,
            dropped => Some(format!(
                "polylock: warning: standard error was blocked, messages dropped: {dropped}\n"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(50);

    fn rest(queue: &Queue) -> Vec<String> {
        let mut rest = Vec::new();
        while !queue.lock().waiting.is_empty() || queue.lock().dropped > 0 {
            rest.push(queue.next());
        }
        rest
    }

    #[test]
    fn what_is_dropped_is_counted_where_it_is_missing() {
        let queue = Queue::new();
        for number in 0..MOST + 2 {
            queue.push(number.to_string());
        }
        assert_eq!(queue.next(), "0");
        queue.push("later".to_owned());
        queue.push("dropped".to_owned());
        let rest = rest(&queue);
        let expected: Vec<String> = (1..MOST).map(|number| number.to_string()).collect();
        assert_eq!(rest[..MOST - 1], expected);
        let note = |dropped| format!("polylock: warning: standard error was blocked, messages dropped: {dropped}\n");
        assert_eq!(rest[MOST - 1..], [note(2), "later".to_owned(), note(1)]);
    }

    #[test]
    fn a_flush_waits_for_the_message_that_is_being_written_but_not_for_ever() {
        let queue = Queue::new();
        assert!(queue.flush(LONG), "there is none");
        queue.push("last".to_owned());
        assert!(!queue.flush(Duration::from_millis(1)), "it waits");
        assert_eq!(queue.next(), "last");
        assert!(!queue.flush(Duration::from_millis(1)), "nobody has written it");
        std::thread::scope(|scope| {
            scope.spawn(|| queue.next());
            assert!(queue.flush(LONG));
            queue.push("so that the thread ends".to_owned());
        });
    }
}
