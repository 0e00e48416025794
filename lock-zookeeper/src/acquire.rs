//! One acquire, as its caller sees it: a session, a claim, and a task that works on the claim until it is granted.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::claims::{Claim, Grant, Outcome, Stage};
use crate::client::Client;
use crate::connection::Room;
use crate::error;
use crate::hold::ZooKeeperHold;
use crate::names;
use crate::protocol;

pub(crate) use self::token::{MAX_OFFSET, exhausted, other_data};

mod enqueue;
mod minimum;
mod task;
mod task_end;
mod token;
mod wait;

/// The interval at which a request reports why there is no session.
const REPORT: Duration = Duration::from_millis(100);

/// The answer of one session.
enum Answer {
    Attempt(Attempt),
    /// Nothing is known: another session may answer.
    SessionEnded(Error),
}

/// Acquires. A try whose session has just ended is asked again on another one.
pub(crate) async fn acquire(client: &Arc<Client>, request: &AcquireRequest) -> Result<Attempt> {
    if !protocol::is_known(request.mode()) {
        let message = format!("lock-zookeeper does not know the mode {:?}", request.mode());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let began = Instant::now();
    // Core repeats only requests that wait.
    let may_repeat = || !request.waits() && began.elapsed() < client.config.connect_timeout();
    loop {
        match attempt(client, request).await? {
            Answer::Attempt(attempt) => return Ok(attempt),
            Answer::SessionEnded(_) if may_repeat() && !request.is_given_up() => {}
            Answer::SessionEnded(error) => return Err(error),
        }
    }
}

/// Starts or joins the claim's task, and waits for its answer.
async fn attempt(client: &Arc<Client>, request: &AcquireRequest) -> Result<Answer> {
    let holder = request.holder();
    if client.claims.is_retired(holder) {
        return Err(retired());
    }
    if let Some(claim) = client.claims.get(holder)
        && let Stage::Granted(grant) = claim.stage()
    {
        return grant_again(client, &claim, grant).await.map(Answer::Attempt);
    }
    let running = client.claims.get(holder);
    let running = running.and_then(|claim| claim.session().map(|session| (claim, session)));
    let (claim, session) = match running {
        Some(running) => running,
        None => {
            // A request that never had a session leaves nothing in memory.
            let directory = names::directory(client.config.root(), request.name());
            let room = room_for(client, request, &directory).await?;
            let session = room.session().clone();
            let claim = client
                .claims
                .open(request, || (directory, protocol::prefix(holder, request.mode())))
                .ok_or_else(retired)?;
            task::start(&client.claims, &claim, &session, Some(room), &client.config);
            let session = claim.session().unwrap_or(session);
            (claim, session)
        }
    };
    let limit = client.config.connect_timeout();
    let stage = tokio::select! {
        biased;
        stage = claim.answer(limit) => stage,
        () = client.sessions.unserved(&session) => {
            claim.detach_task(&session);
            Some(claim.stage())
        }
    };
    let attempt = match stage {
        Some(Stage::Granted(grant)) => {
            if request.minimum().is_some() {
                client.sweeper.sweep(&grant.session, client.config.root());
            }
            let hold = ZooKeeperHold::new(client.clone(), claim.clone(), grant);
            let armed = hold.arm()?;
            Attempt::Granted(Arc::new(hold), armed)
        }
        Some(Stage::Ended(Outcome::Busy(busy))) => Attempt::Busy(busy),
        Some(Stage::Ended(Outcome::Failed(error))) => return Err(error),
        Some(Stage::Ended(Outcome::Released | Outcome::Undone | Outcome::NotOurs)) => {
            return Err(retired());
        }
        Some(Stage::Ended(Outcome::SessionEnded) | Stage::Idle | Stage::Asking | Stage::Queued) => {
            return Ok(Answer::SessionEnded(error::session_ended(session.outage())));
        }
        None => return Err(error::no_answer(limit, session.outage())),
    };
    Ok(Answer::Attempt(attempt))
}

/// Waits for room in a session to send the request over, and notes meanwhile why there is none.
async fn room_for(client: &Client, request: &AcquireRequest, directory: &str) -> Result<Room> {
    let outage = || client.sessions.outage(request.name());
    let reporting = async {
        loop {
            if let Some(why) = outage() {
                request.note_unreachable(why);
            }
            sleep(REPORT).await;
        }
    };
    let reached = tokio::select! {
        biased;
        room = client.sessions.reserve(request.name(), directory) => room,
        () = request.given_up() => Err(error::given_up(outage())),
        never = reporting => never,
    };
    reached.map_err(|error| match client.claims.get(request.holder()) {
        // An earlier call may have sent the request.
        Some(claim) if claim.has_leftover() => error,
        _ => error.not_executed(),
    })
}

/// A granted request that is repeated gets the same grant, if the hold is still ours.
async fn grant_again(client: &Arc<Client>, claim: &Arc<Claim>, grant: Arc<Grant>) -> Result<Attempt> {
    let hold = ZooKeeperHold::new(client.clone(), claim.clone(), grant);
    match hold.confirm().await? {
        Some(armed) => Ok(Attempt::Granted(Arc::new(hold), armed)),
        None => Err(Error::new(ErrorKind::Lost, "the hold was lost")),
    }
}

/// Deletes what the request may have left at the server, and retires its id.
pub(crate) async fn abandon(client: &Client, request: &AcquireRequest) -> Result<()> {
    let holder = request.holder();
    let Some(claim) = client.claims.get(holder) else {
        client.claims.retire(holder);
        return Ok(());
    };
    claim.undo.send_replace(true);
    client.outcome(&claim).await?;
    if claim.has_leftover() {
        // Its session has ended: a task on another session deletes what is left.
        let session = client.sessions.any().await?;
        task::start(&client.claims, &claim, &session, None, &client.config);
        match client.outcome(&claim).await? {
            Outcome::Failed(error) if claim.has_leftover() => return Err(error),
            _ if claim.has_leftover() => return Err(error::session_ended(session.outage())),
            _ => {}
        }
    }
    client.claims.retire(holder);
    Ok(())
}

fn retired() -> Error {
    Error::new(
        ErrorKind::Unexpected,
        "this holder id was released or abandoned: start a new request",
    )
}
