//! Renewals that are asked for at the same time go out together: one script call for many holds of one hash slot over one
//! connection. So do the ends of holders that nobody waits for.
//!
//! A batch is a future that all its renewals share. Each of them drives it, so that any of them may be dropped.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use lock_core::backend::{HolderId, SentAt};
use lock_core::{Error, Result};
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};

use crate::client::Client;
use crate::error::Failure;
use crate::names::Keys;
use crate::protocol::arguments::RenewTogetherArguments;
use crate::protocol::{self, RenewedOne, millis, unexpected_reply};
use crate::servers::Route;
use turn::end_of_turn;

mod turn;

/// The most holds in one script call. The server serves nobody else during the call, which takes about a quarter of a
/// millisecond; more in a call saves it nothing.
pub(crate) const MOST: usize = 100;

/// The batches that are open, each for one connection and hash slot.
#[derive(Default)]
pub(crate) struct Renewals {
    open: Mutex<HashMap<Group, Open>>,
}

/// The renewals that one script call may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    what: What,
    generation: u64,
    slot: u16,
    /// Nobody waits for the turn of another runtime, which may not be driven.
    runtime: Option<runtime::Id>,
}

/// The change that a batch makes to its holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Renew,
    End,
}

/// A batch that has not been sent yet. It is gone if nobody waits for it any more.
struct Open {
    entries: Arc<Mutex<Vec<Entry>>>,
    renewing: WeakShared<BoxFuture<'static, Outcome>>,
}

/// One renewal or end of a batch.
struct Entry {
    keys: Vec<String>,
    arguments: Vec<String>,
    /// Alive as long as somebody waits for the answer.
    asker: Weak<()>,
    answer: Arc<Mutex<Option<RenewedOne>>>,
}

/// The outcome of a batch.
#[derive(Clone)]
enum Outcome {
    /// Each has its answer, from a request that was sent then, over this route.
    Answered(SentAt, Route),
    /// The server refused them together, or there was only one.
    OneByOne,
    Failed(Error),
}

/// The answer to one renewal.
pub(crate) enum Gathered {
    /// The hold ends no earlier than its TTL after this moment, as the server of this route has it.
    Renewed(SentAt, Route),
    Lost,
    /// To be asked for alone.
    OneByOne,
}

impl Renewals {
    /// Renews the hold of a name that only one holder may have, together with all others for which this is called before the
    /// runtime's other tasks had their turn.
    ///
    /// # Errors
    /// As if it were sent alone.
    ///
    /// # Cancel safety
    /// If dropped before it was sent, it is not sent. After that, the server may still execute it.
    pub(crate) async fn renew(
        client: &Arc<Client>,
        route: Route,
        keys: &Keys,
        holder: HolderId,
        ttl: Duration,
    ) -> Result<Gathered> {
        let arguments = RenewTogetherArguments {
            holder: holder.to_string().into(),
            ttl: millis(ttl).into(),
        };
        let arguments = arguments.all().map(str::to_owned).to_vec();
        let (outcome, answer) = Self::ask(client, route, What::Renew, (&keys.lock(), arguments)).await;
        match outcome {
            Outcome::OneByOne => Ok(Gathered::OneByOne),
            Outcome::Failed(error) => Err(error),
            Outcome::Answered(sent, route) => match answer {
                Some(RenewedOne::Renewed) => Ok(Gathered::Renewed(sent, route)),
                Some(RenewedOne::Lost) => Ok(Gathered::Lost),
                Some(RenewedOne::Several) => Ok(Gathered::OneByOne),
                None => Err(unexpected_reply()),
            },
        }
    }

    /// Ends whatever the holder has, together with all others for which this is called before the runtime's other tasks had
    /// their turn. Returns whether it had the lock; `None`: it has to be ended alone.
    ///
    /// # Errors
    /// As if it were sent alone.
    pub(crate) async fn end(client: &Arc<Client>, route: Route, keys: &Keys, holder: HolderId) -> Result<Option<bool>> {
        let [lock, _fence, queue, ..] = keys.all();
        let (outcome, answer) = Self::ask(client, route, What::End, (&[lock, queue], vec![holder.to_string()])).await;
        match outcome {
            Outcome::OneByOne => Ok(None),
            Outcome::Failed(error) => Err(error),
            Outcome::Answered(..) => match answer {
                Some(RenewedOne::Renewed) => Ok(Some(true)),
                Some(RenewedOne::Lost) => Ok(Some(false)),
                Some(RenewedOne::Several) => Ok(None),
                None => Err(unexpected_reply()),
            },
        }
    }

    /// Adds these keys and arguments to a batch. Returns the outcome of the batch, and the answer to this entry.
    async fn ask(
        client: &Arc<Client>,
        route: Route,
        what: What,
        (keys, arguments): (&[&str], Vec<String>),
    ) -> (Outcome, Option<RenewedOne>) {
        let (asker, answer) = (Arc::new(()), Arc::default());
        let entry = Entry {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            arguments,
            asker: Arc::downgrade(&asker),
            answer: Arc::clone(&answer),
        };
        let outcome = client.renewals.join(client, route, what, entry).await;
        drop(asker);
        let answer = *answer.lock();
        (outcome, answer)
    }

    /// The batch that serves the entry: the open one of its group, or a new one.
    fn join(
        &self,
        client: &Arc<Client>,
        route: Route,
        what: What,
        entry: Entry,
    ) -> Shared<BoxFuture<'static, Outcome>> {
        let group = Group {
            what,
            generation: route.generation(),
            slot: route.slot(),
            runtime: Handle::try_current().ok().map(|runtime| runtime.id()),
        };
        let mut open = self.open.lock();
        if let Some(batch) = open.get(&group)
            && let Some(renewing) = batch.renewing.upgrade()
        {
            let mut entries = batch.entries.lock();
            // Those of a batch that was sent are taken out.
            if (1..MOST).contains(&entries.len()) {
                entries.push(entry);
                return renewing;
            }
        }
        let entries = Arc::new(Mutex::new(vec![entry]));
        let renewing = send(client.clone(), route, group, entries.clone()).boxed().shared();
        let batch = Open {
            entries,
            renewing: renewing.downgrade().expect("it was not polled yet"),
        };
        // Those that were dropped before their first turn.
        open.retain(|_, batch| batch.renewing.upgrade().is_some());
        open.insert(group, batch);
        renewing
    }

    /// Nothing more joins the batch.
    fn close(&self, group: Group, entries: &Arc<Mutex<Vec<Entry>>>) -> Vec<Entry> {
        let mut open = self.open.lock();
        // It may have been full, and another one may have taken its place.
        if open
            .get(&group)
            .is_some_and(|batch| Arc::ptr_eq(&batch.entries, entries))
        {
            open.remove(&group);
        }
        std::mem::take(&mut entries.lock())
    }
}

/// Lets other renewals join the batch, then renews each hold whose caller still waits.
async fn send(client: Arc<Client>, mut route: Route, group: Group, entries: Arc<Mutex<Vec<Entry>>>) -> Outcome {
    // All renewals that are due in this turn join.
    end_of_turn().await;
    let mut entries = client.renewals.close(group, &entries);
    entries.retain(|entry| entry.asker.strong_count() > 0);
    if entries.len() < 2 {
        return Outcome::OneByOne;
    }
    let keys: Vec<&str> = entries.iter().flat_map(|entry| &entry.keys).map(|key| &**key).collect();
    let arguments = entries.iter().flat_map(|entry| &entry.arguments);
    let arguments: Vec<&str> = arguments.map(|argument| &**argument).collect();
    let sent = SentAt::now();
    let script = match group.what {
        What::Renew => &protocol::RENEW_TOGETHER,
        What::End => &protocol::END_TOGETHER,
    };
    match client.servers.run_together(&mut route, script, &keys, &arguments).await {
        Ok(reply) => match protocol::renewed_together(&reply, entries.len()) {
            Some(answers) => {
                for (entry, renewed) in entries.iter().zip(answers) {
                    *entry.answer.lock() = Some(renewed);
                }
                Outcome::Answered(sent, route)
            }
            None => Outcome::Failed(unexpected_reply()),
        },
        // One of them may be the reason.
        Err(Failure::Rejected(_)) => Outcome::OneByOne,
        Err(failure) => Outcome::Failed(route.lock_error(failure)),
    }
}

impl fmt::Debug for Renewals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewals")
            .field("open", &self.open.lock().len())
            .finish()
    }
}
