//! `waiters-10000`: what it costs to wait.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{Client, Error, Figures, Lock, Result, Subject, Unit};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::sleep;

use super::memory::Mutexes;
use super::polylock::Polylock;
use super::weigh::{apart, bytes_each, one_thread};
use crate::entry::MakeBackend;
use crate::participant::Participant;
use crate::workload::MANY;

pub(crate) fn participants(make: &MakeBackend, with_mutex: bool) -> Vec<(&'static str, Box<dyn Participant>)> {
    let mut participants: Vec<(_, Box<dyn Participant>)> =
        vec![("polylock", Box::new(Waiters::new(Polylock(make.clone()))))];
    if with_mutex {
        participants.push(("plain", Box::new(Waiters::new(Mutexes::default()))));
    }
    participants
}

struct Waiters<S> {
    subject: Arc<S>,
    rounds: u32,
}

impl<S> Waiters<S> {
    fn new(subject: S) -> Self {
        let subject = Arc::new(subject);
        Self { subject, rounds: 0 }
    }
}

#[async_trait]
impl<S: Subject> Participant for Waiters<S> {
    async fn round(&mut self, _time: Duration) -> Result<Figures> {
        self.rounds += 1;
        let name = format!("waited for/{}", self.rounds);
        let subject = self.subject.clone();
        // Held by another client, so that the waiters' client has to ask the server.
        let mut lock = subject.connect().await?.lock(&name).await?;
        let held = lock.acquire().await?;
        let bytes = apart(move || {
            let runtime = one_thread()?;
            let client = runtime.block_on(subject.connect())?;
            let (bytes, waiting) = bytes_each(MANY, &runtime, wait(&client, &name))?;
            let entered = runtime.enter();
            drop(waiting);
            drop(entered);
            // What was sent is undone.
            runtime.block_on(async { sleep(Duration::from_millis(100)).await });
            Ok(bytes)
        });
        let bytes = bytes.await?;
        lock.release(held).await?;
        Ok(vec![(Unit::BytesPerWaiter, bytes)])
    }
}

/// Tasks that wait, and have had the time to be told so.
async fn wait<C: Client>(client: &C, name: &str) -> Result<LocalSet> {
    let tasks = LocalSet::new();
    let (begun, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let all_wait = tasks.run_until(async {
        for _ in 0..MANY {
            let mut lock = client.lock(name).await?;
            let (begun, ended) = (begun.clone(), ended.clone());
            spawn_local(async move {
                begun.set(begun.get() + 1);
                let acquired = lock.acquire().await;
                ended.set(ended.get() + 1);
                acquired
            });
        }
        while begun.get() < MANY {
            yield_now().await;
        }
        sleep(Duration::from_millis(50)).await;
        match ended.get() {
            0 => Ok(()),
            ended => Err(Error::from(format!("{ended} of {MANY} did not wait"))),
        }
    });
    all_wait.await?;
    Ok(tasks)
}
