//! `parts-16`: what single operations of the runtime and of the system cost, of which the cost of a pair is made.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};
use lock_core::backend::HolderId;
use rustix::time::ClockId;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use super::weigh::cpu;
use crate::participant::Participant;

/// Between two turns of the other tasks.
const BATCH: u64 = 100;

pub(crate) fn participants(tasks: usize) -> Vec<(&'static str, Box<dyn Participant>)> {
    let (notify, mutex, shared) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0_u64)), Arc::new(()));
    let changes = Arc::new(watch::Sender::new(0_u64));
    vec![
        part("timer", tasks, || begin(sleep(Duration::from_secs(5)))),
        part("notify, shared by all", tasks, move || begin(notify.notified())),
        part("notify of one's own", tasks, || begin(Notify::new().notified())),
        part("watch, shared by all", tasks, move || {
            let mut changed = changes.subscribe();
            begin(async { drop(changed.changed().await) });
        }),
        part("mutex, shared by all", tasks, move || {
            *mutex.lock().expect("nothing panics while it is locked") += 1;
        }),
        part("arc, shared by all", tasks, move || drop(black_box(shared.clone()))),
        part("handle of the runtime", tasks, || {
            drop(black_box(Handle::try_current()))
        }),
        part("clock", tasks, || {
            black_box(Instant::now());
        }),
        part("process id", tasks, || {
            black_box(std::process::id());
        }),
        part("holder id", tasks, || {
            black_box(HolderId::random());
        }),
        part("box of 1 kB", tasks, || drop(black_box(Box::new([0_u8; 1024])))),
    ]
}

/// Polls it once, as somebody who waits, and drops it.
fn begin(future: impl Future<Output = ()>) {
    let _ = pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

fn part(
    name: &'static str,
    tasks: usize,
    operation: impl Fn() + Send + Sync + 'static,
) -> (&'static str, Box<dyn Participant>) {
    let operation: Arc<Operation> = Arc::new(operation);
    (name, Box::new(Part { tasks, operation }))
}

type Operation = dyn Fn() + Send + Sync;

struct Part {
    tasks: usize,
    operation: Arc<Operation>,
}

#[async_trait]
impl Participant for Part {
    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let deadline = Instant::now() + time;
        let before = cpu(ClockId::ProcessCPUTime);
        let mut tasks = JoinSet::new();
        for _ in 0..self.tasks {
            tasks.spawn(repeat(self.operation.clone(), deadline));
        }
        let mut done = 0;
        while let Some(many) = tasks.join_next().await {
            done += many?;
        }
        let nanos = (cpu(ClockId::ProcessCPUTime) - before).as_nanos() as f64 / done as f64;
        Ok(vec![(Unit::NanosPerOperation, nanos)])
    }
}

async fn repeat(operation: Arc<Operation>, deadline: Instant) -> u64 {
    let mut done = 0;
    while Instant::now() < deadline {
        for _ in 0..BATCH {
            operation();
        }
        done += BATCH;
        yield_now().await;
    }
    done
}
