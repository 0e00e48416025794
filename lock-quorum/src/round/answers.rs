//! The answers of the nodes, as they arrive.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::backend::Attempt;
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout};

use super::{Answered, Change, Round};
use crate::rules;

/// How long an acquire that was given up may take to end.
const LONGEST_END: Duration = Duration::from_millis(200);

impl Round<'_> {
    /// The next answer of any node.
    pub(crate) async fn next_answer(&mut self) {
        poll_fn(|context| self.poll_answers(context)).await;
    }

    /// Gives all votes up, and awaits what becomes of those that are under way, which ends soon: perhaps nothing was sent.
    pub(crate) async fn give_up(&mut self) {
        let limit = self.patience().min(LONGEST_END);
        // What the nodes say from here on is that they were given up.
        self.last_busy = self.last_busy();
        self.is_given_up = true;
        for asked in self.asked.iter().flatten() {
            asked.vote.control.give_up();
        }
        let ending = async {
            while self.asked.iter().flatten().any(|asked| asked.call.is_some()) {
                self.next_answer().await;
            }
        };
        // What has not ended by then is undone in the background.
        let _ = timeout(limit, ending).await;
    }

    fn poll_answers(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut is_ready = self.poll_look(context);
        for node in 0..self.asked.len() {
            let Some(asked) = &mut self.asked[node] else { continue };
            if let Some(call) = &mut asked.call
                && let Poll::Ready(attempt) = call.future.as_mut().poll(context)
            {
                asked.call = None;
                self.answered(node, attempt);
                is_ready = Poll::Ready(());
            } else if let Some(change) = &mut asked.change
                && let Poll::Ready(changed) = change.as_mut().poll(context)
            {
                (asked.change, asked.raised_to) = (None, None);
                self.changed(node, changed);
                is_ready = Poll::Ready(());
            }
        }
        is_ready
    }

    fn answered(&mut self, node: usize, attempt: Result<Attempt>) {
        let Some(asked) = &mut self.asked[node] else { return };
        if attempt.is_ok() {
            self.votes.note_sent();
            self.client.has_answered(&asked.vote, asked.at);
            self.request.note_connected();
        }
        match attempt {
            Ok(Attempt::Granted(hold, _armed)) => {
                asked.vote.granted(hold);
                let took = asked.at.elapsed();
                asked.answer = Some(Answered::Granted { took });
            }
            Ok(Attempt::Busy(busy)) => {
                if !asked.vote.has_place {
                    self.votes.forget(&asked.vote);
                }
                asked.answer = Some(Answered::Busy {
                    busy,
                    at: Instant::now(),
                });
            }
            Ok(_) => self.fails(node, Error::new(ErrorKind::Unexpected, "an answer of an unknown kind")),
            Err(error) => {
                if asked.vote.request.was_certainly_not_sent(&error) {
                    self.votes.forget(&asked.vote);
                    self.asked[node] = None;
                } else {
                    self.votes.note_sent();
                }
                self.fails(node, error);
            }
        }
    }

    fn changed(&mut self, node: usize, change: Result<Change>) {
        let Some(asked) = &self.asked[node] else { return };
        match change {
            Ok(Change::Raised(token)) => asked.vote.raised(token),
            Ok(Change::Renewed) => {}
            Ok(Change::Lost) => self.fails(node, Error::new(ErrorKind::Lost, "the vote was lost").retryable(true)),
            Err(error) => self.fails(node, error),
        }
    }

    /// A request that waits may have failed at nodes that answer by now. Others wait there, if one of them is the anchor.
    fn forget_failures(&mut self) {
        for (node, failed) in self.failed.iter_mut().enumerate() {
            let is_over = |error: &mut Error| error.is_retryable() && !self.client.nodes[node].is_suspected();
            failed.take_if(is_over);
        }
    }

    /// The node cannot vote in this round.
    fn fails(&mut self, node: usize, error: Error) {
        if !self.is_given_up {
            self.last_busy = None;
        }
        if error.is_retryable() && !self.is_given_up {
            self.client.nodes[node].suspect(rules::suspicion(self.request.ttl()));
        }
        self.take_back(node);
        self.failed[node] = Some(error);
    }

    /// Looks at the clock, and at what waiting requests have noted.
    pub(crate) fn look(&mut self) {
        self.looked_at = Instant::now();
        if self.only_anchor {
            self.forget_failures();
        }
        for node in 0..self.asked.len() {
            let Some(asked) = &self.asked[node] else { continue };
            match &asked.answer {
                Some(Answered::Granted { .. }) if !asked.vote.is_live() => {
                    let message = "the vote expired before a majority had voted";
                    self.fails(node, Error::new(ErrorKind::Unavailable, message));
                }
                None if asked.vote.has_place => {
                    if let Some(why) = asked.vote.request.unreachable() {
                        self.fails(node, why);
                    } else if self.is_silent(node) {
                        self.client.nodes[node].suspect(rules::suspicion(self.request.ttl()));
                    }
                }
                None if self.is_silent(node) => {
                    self.client.nodes[node].suspect(rules::suspicion(self.request.ttl()));
                }
                _ => {}
            }
        }
    }
}
