//! At most one at a time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::backend::ReleaseOptions;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::support::LITTLE;
use crate::child::Child;
use crate::context::{Cx, LOOK_AGAIN, RawCx};
use crate::counter::Counter;
use crate::job::Job;
use crate::subject::{Ask, Subject};
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

/// A name that one client has is busy for another one, until it is released.
pub(crate) async fn a_second_client_is_refused(cx: &RawCx) -> Verdict {
    let (first, second) = (cx.backend().await, cx.backend().await);
    let grant = cx.grant(&first, "a").await?;
    cx.ensure_taken(&second, "a").await?;
    grant.release().await?;
    cx.grant(&second, "a").await?.release().await
}

/// Two requests of one client are two holders: an id belongs to an acquisition, not to a client.
pub(crate) async fn a_client_excludes_itself(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let grant = cx.grant(&client, "a").await?;
    cx.ensure_taken(&client, "a").await?;
    ensure!(cx.is_held("a").await?, "the refused request ended the hold");
    grant.release().await?;
    cx.grant(&client, "a").await?.release().await
}

/// A client may hold many names at once, and each release frees its own.
pub(crate) async fn names_are_held_side_by_side(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    let mut grants = Vec::new();
    for name in ["a", "b", "c", "d"] {
        grants.push(cx.grant(&client, name).await?);
    }
    let freed = grants.swap_remove(1);
    freed.hold.release(ReleaseOptions::default()).await.or_fail("release")?;
    for grant in &grants {
        cx.ensure_taken(&other, grant.request.name().as_str()).await?;
    }
    cx.grant(&other, "b").await?.release().await
}

/// Tasks of one client are never inside together.
pub(crate) async fn exclusion_between_tasks(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    exclusion(cx, &[client.clone(), client.clone(), client.clone(), client]).await
}

/// Nor are several clients.
pub(crate) async fn exclusion_between_clients(cx: &Cx) -> Verdict {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(cx.subject().await);
    }
    exclusion(cx, &clients).await
}

/// Nor are they on a name that nobody ever used: what the server keeps of it is made by one of them.
pub(crate) async fn the_first_to_use_a_name_exclude_each_other(cx: &Cx) -> Verdict {
    let mut clients = Vec::new();
    for number in 0..4 {
        let client = cx.subject().await;
        // So that all are connected when the race begins.
        let ask = cx.ask(&format!("own {number}")).await;
        let Some(guard) = client.acquire(&ask).await.or_fail("acquire")? else {
            return Err(Stop::assertion("an acquire that waits for ever was busy"));
        };
        guard.released().await?;
        clients.push(client);
    }
    for round in 0..5 {
        take_turns(cx, &format!("new {round}"), 1, &clients).await?;
    }
    Ok(())
}

async fn exclusion(cx: &Cx, clients: &[Arc<dyn Subject>]) -> Verdict {
    take_turns(cx, "a", 10, clients).await?;
    cx.until_free("a", "everybody has released").await
}

async fn take_turns(cx: &Cx, name: &str, rounds: u32, clients: &[Arc<dyn Subject>]) -> Verdict {
    let (inside, ask) = (Arc::new(AtomicU32::new(0)), cx.ask(name).await);
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(enter_often(client.clone(), ask.clone(), rounds, inside.clone()));
    }
    while let Some(task) = cx
        .within(2 * cx.patience(), "four tasks to take turns", tasks.join_next())
        .await?
    {
        task.map_err(|panic| Stop::assertion(panic.to_string()))??;
    }
    Ok(())
}

async fn enter_often(client: Arc<dyn Subject>, ask: Ask, rounds: u32, inside: Arc<AtomicU32>) -> Verdict {
    for _ in 0..rounds {
        let Some(guard) = client.acquire(&ask).await.or_fail("acquire")? else {
            return Err(Stop::assertion("an acquire that waits for ever was busy"));
        };
        let others = inside.fetch_add(1, Ordering::SeqCst);
        sleep(LITTLE).await;
        inside.fetch_sub(1, Ordering::SeqCst);
        ensure_safe_by_ttl!(others == 0, "{others} were inside already");
        guard.released().await?;
    }
    Ok(())
}

/// Nor are several processes: each adds to a number that nothing else protects, and no addition gets lost.
pub(crate) async fn exclusion_between_processes(cx: &Cx) -> Verdict {
    const ROUNDS: u32 = 15;
    let counter = Counter::start().await.or_fail("listen for processes that count")?;
    let job = Job::Count {
        name: "a".to_owned(),
        ttl: cx.long_ttl().await,
        rounds: ROUNDS,
        counter: counter.address(),
    };
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(Child::start(cx, &job)?);
    }
    // A limit for each addition: all of them together may take long on a busy machine. A hold that a release left behind lasts longer.
    let limit = cx.before_expiry(2 * cx.patience()).await;
    let (mut seen, mut changed) = (counter.number(), Instant::now());
    for child in &mut children {
        let mut says = pin!(child.says(cx, "counted", 3 * ROUNDS * cx.patience()));
        loop {
            match timeout(LOOK_AGAIN, &mut says).await {
                Ok(said) => break said.map(drop)?,
                Err(_) if counter.number() != seen => (seen, changed) = (counter.number(), Instant::now()),
                Err(_) => ensure!(changed.elapsed() < limit, "no process has counted for {limit:?}"),
            }
        }
    }
    let counted = counter.number();
    ensure_safe_by_ttl!(
        counted == u64::from(3 * ROUNDS),
        "of {} additions {counted} are left",
        3 * ROUNDS
    );
    Ok(())
}

/// A lock held by another process is busy here, and free when that process has released it.
pub(crate) async fn another_process_excludes_us(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    let mut child = Child::start(
        cx,
        &Job::Hold {
            name: "a".to_owned(),
            ttl: ask.ttl,
            minimum: None,
        },
    )?;
    let token = child.says(cx, "held", cx.patience()).await?;
    cx.ensure_busy(&client, &ask).await?;
    child.tell("release")?;
    child.says(cx, "released", cx.patience()).await?;
    let guard = cx.hold(&client, &ask).await?;
    let theirs: u64 = token
        .parse()
        .map_err(|_| Stop::assertion(format!("not a token: {token:?}")))?;
    ensure_safe!(
        guard.token().as_u64() > theirs,
        "our token {} is not above theirs, {theirs}",
        guard.token()
    );
    guard.released().await
}

/// Namespaces separate: the same name is another lock in each.
pub(crate) async fn namespaces_are_separate(cx: &Cx) -> Verdict {
    let (here, elsewhere) = (
        cx.subject().await,
        cx.subject_in(&format!("{}_b", cx.namespace())).await,
    );
    let ask = cx.ask("a").await;
    let ours = cx.hold(&here, &ask).await?;
    let theirs = cx.hold(&elsewhere, &ask).await?;
    cx.ensure_busy(&here, &ask).await?;
    ours.released().await?;
    cx.ensure_busy(&elsewhere, &ask).await?;
    theirs.released().await
}
