//! What a round counts, on a lock whose behaviour is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use benchmarks_load::{Client, Figures, Lock, Result, Stage, Subject, Unit, Workload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Serves in order, and sees whether it excludes.
#[derive(Clone)]
struct Fair {
    turns: Arc<Semaphore>,
    inside: Arc<AtomicU32>,
    clients: Arc<AtomicU32>,
}

impl Fair {
    fn new() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(1)),
            inside: Arc::default(),
            clients: Arc::default(),
        }
    }
}

impl Subject for Fair {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        self.clients.fetch_add(1, Ordering::Relaxed);
        Ok(self.clone())
    }
}

impl Client for Fair {
    type Lock = Self;

    async fn lock(&self, _name: &str) -> Result<Self> {
        Ok(self.clone())
    }
}

impl Lock for Fair {
    type Held = OwnedSemaphorePermit;

    async fn acquire(&mut self) -> Result<OwnedSemaphorePermit> {
        let permit = self.turns.clone().acquire_owned().await?;
        assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0);
        Ok(permit)
    }

    async fn release(&mut self, permit: OwnedSemaphorePermit) -> Result<()> {
        self.inside.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
        tokio::task::yield_now().await;
        Ok(())
    }
}

async fn round(subject: &Fair, workload: &str) -> Figures {
    let mut stage = Stage::enter(subject, workload.parse::<Workload>().unwrap())
        .await
        .unwrap();
    // A stage can be played again; and for longer than a busy machine stands still.
    stage.round(Duration::from_millis(20)).await.unwrap();
    stage.round(Duration::from_secs(3)).await.unwrap()
}

fn figure(figures: &Figures, unit: Unit) -> f64 {
    let found = figures.iter().find(|(known, _)| *known == unit);
    found.unwrap_or_else(|| panic!("no {unit} in {figures:?}")).1
}

#[tokio::test]
async fn one_name_goes_round() {
    let subject = Fair::new();
    let figures = round(&subject, "one-4").await;
    assert_eq!(subject.clients.load(Ordering::Relaxed), 1);
    assert!(figure(&figures, Unit::PairsPerSecond) > 0.0);
    assert!(figure(&figures, Unit::Share) > 0.5, "{figures:?}");
}

#[tokio::test]
async fn a_hand_off_is_from_one_client_to_another() {
    let subject = Fair::new();
    let figures = round(&subject, "handoff-3").await;
    assert_eq!(subject.clients.load(Ordering::Relaxed), 3);
    let (median, worst) = (figure(&figures, Unit::MicrosMedian), figure(&figures, Unit::Micros99));
    assert!(0.0 < median && median <= worst, "{figures:?}");

    // It hands on to nobody.
    assert_eq!(round(&subject, "handoff-1").await, []);
}
