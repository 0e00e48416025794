//! The connection's task that sends the requests of its queue: those for which one script call will do go out together.

use std::borrow::Cow;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll};

use foldhash::fast::RandomState;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;

use super::Reply;
use super::queue::Queued;
use super::run::is_unknown;
use super::session::Session;
use super::state::Shared;
use crate::error::{Failure, refuses_all};
use crate::protocol::Kind;

/// Sends what is in the session's queue, in the order in which it was asked for. Never returns.
pub(super) async fn gather(shared: Arc<Shared>, session: Session) {
    let mut calls = FuturesUnordered::new();
    loop {
        poll_fn(|context| {
            drive(&mut calls, context);
            session.queue().poll_filled(context)
        })
        .await;
        let mut is_turn_over = false;
        poll_fn(|context| {
            drive(&mut calls, context);
            end_turn(&mut is_turn_over, context)
        })
        .await;
        for call in calls_for(session.queue().take()) {
            session.count_in_window(call.in_window());
            let mut sending = Box::pin(send(&shared, &session, call));
            // The first poll hands it to the driver, so this is the order in which the server has them.
            if poll_fn(|context| Poll::Ready(sending.as_mut().poll(context).is_pending())).await {
                calls.push(sending);
            }
        }
        session.queue().sent();
    }
}

/// Polls calls until each waits for its reply.
fn drive(calls: &mut FuturesUnordered<impl Future<Output = ()>>, context: &mut Context<'_>) {
    while let Poll::Ready(Some(())) = calls.poll_next_unpin(context) {}
}

/// Is ready after the tasks that are ready now have had their turn: they ask, too. A task that was woken would else be the next to run.
fn end_turn(is_over: &mut bool, context: &Context<'_>) -> Poll<()> {
    if std::mem::replace(is_over, true) {
        return Poll::Ready(());
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

/// One call.
struct Call {
    /// `None`: it is of one request that shares no call.
    kind: Option<Kind>,
    requests: Vec<Queued>,
}

/// The calls for these requests, in this order. Requests for one name keep theirs. Others may change it.
fn calls_for(queued: Vec<Queued>) -> Vec<Call> {
    let (mut calls, mut open): (Vec<Call>, Vec<Call>) = (Vec::new(), Vec::new());
    // By their hashes: two names of one hash only share no call.
    let mut names = HashSet::with_capacity_and_hasher(queued.len(), RandomState::default());
    let most = queued.len();
    for queued in queued {
        let name = names.hasher().hash_one(queued.request.lock());
        if queued.kind.is_none() || names.contains(&name) {
            calls.append(&mut open);
            names.clear();
        }
        if queued.kind.is_none() {
            calls.push(Call::of(queued, 1));
            continue;
        }
        names.insert(name);
        match open.iter_mut().find(|call| call.serves(&queued)) {
            Some(call) => call.requests.push(queued),
            None => open.push(Call::of(queued, most)),
        }
    }
    calls.append(&mut open);
    calls
}

impl Call {
    /// With room for so many, if its kind may have them.
    fn of(queued: Queued, most: usize) -> Self {
        let kind = queued.kind;
        let mut requests = Vec::with_capacity(kind.map_or(1, |kind| kind.most().min(most)));
        requests.push(queued);
        Self { kind, requests }
    }

    /// The number of its acquires that the connection's window counts.
    fn in_window(&self) -> usize {
        self.requests.iter().filter(|queued| queued.in_window).count()
    }

    /// Sends it, as one of its kind, or of its only request. A script that the server does not know is not executed.
    async fn run(&self, shared: &Shared, session: &Session, kind: Option<Kind>) -> Reply {
        let all: Vec<_> = self.requests.iter().map(|queued| &queued.request).collect();
        let (script, (keys, arguments)) = match kind {
            Some(kind) => (kind.script(), kind.call(&all)),
            None => (
                all[0].script,
                (all[0].keys().collect(), all[0].arguments().map(Cow::Borrowed).collect()),
            ),
        };
        let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
        let with_text = self.requests.iter().any(|queued| queued.has_text);
        shared.run_once(session, script, &keys, &arguments, with_text).await
    }

    /// True if this one can go out with the others.
    fn serves(&self, queued: &Queued) -> bool {
        let first = &self.requests[0];
        self.kind == queued.kind
            && first.slot == queued.slot
            && (self.kind)
                .is_some_and(|kind| self.requests.len() < kind.most() && kind.suits(&first.request, &queued.request))
    }
}

/// Sends a call, and answers its requests. Those that have to be sent again wait for that in the queue: their callers may have left.
async fn send(shared: &Shared, session: &Session, call: Call) {
    let kind = call.kind.filter(|_| call.requests.len() > 1);
    let reply = call.run(shared, session, kind).await;
    if is_unknown(&reply) {
        return session.queue().again(call.requests.into_iter().map(Queued::with_text));
    }
    let replies = replies_to_each(kind, &reply, call.requests.len());
    let mut alone = Vec::new();
    for (queued, reply) in call.requests.into_iter().zip(replies) {
        match reply {
            Some(reply) => queued.answer(reply),
            None => alone.push(queued.alone()),
        }
    }
    session.queue().again(alone);
    // Last, so that the callers learn the server's reply and not that the connection has ended.
    shared.note(session, &reply);
}

/// The reply to each request of a call of this kind. `None` for one that has to be asked alone.
fn replies_to_each(kind: Option<Kind>, reply: &Reply, asked: usize) -> Vec<Option<Reply>> {
    match (kind, reply) {
        (Some(kind), Ok(together)) => match kind.replies(together, asked) {
            Some(all) => all.into_iter().map(|one| one.map(Ok)).collect(),
            // This is no reply of our script, nor is it of one that was sent alone.
            None => vec![Some(Ok(Value::Nil)); asked],
        },
        // One of them may be the reason.
        (Some(_), Err(Failure::Rejected(error))) if !refuses_all(error) => vec![None; asked],
        _ => vec![Some(reply.clone()); asked],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::queue::Queue;
    use crate::protocol::{ACQUIRE, CONFIRM, END, Request};

    fn grant(lock: &str) -> Request {
        Request::new(&ACQUIRE, &[lock, "fence"], &["id", "10", "", "1", "rest"])
    }

    fn end(lock: &str) -> Request {
        Request::new(&END, &[lock, "queue"], &["id 7 10", "3 100 x    "])
    }

    fn special(lock: &str) -> Request {
        Request::new(&CONFIRM, &[lock, "fence"], &["id", "10", "", "", "rest"])
    }

    /// The calls for these requests, with the names of each.
    fn calls(requests: Vec<(Request, u16)>) -> Vec<String> {
        let queue = Queue::default();
        let asked: Vec<_> = (requests.into_iter())
            .map(|(request, slot)| {
                let kind = {
                    let (keys, arguments): (Vec<&str>, Vec<&str>) =
                        (request.keys().collect(), request.arguments().collect());
                    Request::kind_of(request.script, &keys, &arguments)
                };
                queue.push(request, kind, slot, None)
            })
            .collect();
        let calls = calls_for(queue.take());
        drop(asked);
        let shown = |call: &Call| {
            let names: Vec<&str> = call.requests.iter().map(|queued| queued.request.lock()).collect();
            match call.kind {
                Some(kind) => format!("{kind:?} {}", names.join(" ")),
                None => format!("alone {}", names.join(" ")),
            }
        };
        calls.iter().map(shown).collect()
    }

    fn in_one_slot(requests: Vec<Request>) -> Vec<String> {
        calls(requests.into_iter().map(|request| (request, 0)).collect())
    }

    #[test]
    fn requests_of_one_kind_share_a_call() {
        let all = vec![grant("a"), end("b"), grant("c"), end("d")];
        assert_eq!(in_one_slot(all), ["Grant a c", "End b d"]);
    }

    #[test]
    fn requests_for_one_name_keep_their_order() {
        let all = vec![end("a"), grant("b"), grant("a"), end("c"), end("a")];
        assert_eq!(in_one_slot(all), ["End a", "Grant b", "Grant a", "End c", "End a"]);
        let all = vec![end("a"), special("b"), grant("c"), grant("d")];
        assert_eq!(in_one_slot(all), ["End a", "alone b", "Grant c d"]);
    }

    #[test]
    fn a_call_has_no_more_than_its_most() {
        let all = (0..2 * Kind::Grant.most() + 1).map(|number| grant(&number.to_string()));
        let sizes: Vec<_> = in_one_slot(all.collect())
            .iter()
            .map(|call| call.split(' ').count() - 1)
            .collect();
        assert_eq!(sizes, [32, 32, 1]);
    }

    #[test]
    fn a_call_has_one_slot() {
        let all = vec![(grant("a"), 1), (grant("b"), 2), (grant("c"), 1)];
        assert_eq!(calls(all), ["Grant a c", "Grant b"]);
    }
}
