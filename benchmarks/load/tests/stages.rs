//! What a round counts, on a lock whose behaviour is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use benchmarks_load::{Client, Figures, Lock, Mode, Result, Stage, Subject, Unit, Workload};
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
async fn two_clients_share_one_name() {
    let subject = Fair::new();
    let figures = round(&subject, "two-3").await;
    assert_eq!(subject.clients.load(Ordering::Relaxed), 2);
    assert!(figure(&figures, Unit::Share) > 0.5, "{figures:?}");
}

/// In which so many may be inside, whatever they ask for; a writer alone.
struct Shared {
    most: u32,
    turns: Arc<Semaphore>,
}

impl Shared {
    fn new(most: u32, writer_takes: u32) -> Self {
        Self {
            most: writer_takes,
            turns: Arc::new(Semaphore::new(most as usize)),
        }
    }
}

struct SharedLock {
    turns: Arc<Semaphore>,
    takes: u32,
}

impl Subject for Shared {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        let (most, turns) = (self.most, self.turns.clone());
        Ok(Self { most, turns })
    }
}

impl Client for Shared {
    type Lock = SharedLock;

    async fn lock(&self, _name: &str) -> Result<SharedLock> {
        let (turns, takes) = (self.turns.clone(), self.most);
        Ok(SharedLock { turns, takes })
    }

    async fn lock_in(&self, name: &str, mode: Mode) -> Result<SharedLock> {
        match mode {
            Mode::Exclusive => self.lock(name).await,
            _ => Ok(SharedLock {
                turns: self.turns.clone(),
                takes: 1,
            }),
        }
    }
}

impl Lock for SharedLock {
    type Held = OwnedSemaphorePermit;

    async fn acquire(&mut self) -> Result<OwnedSemaphorePermit> {
        Ok(self.turns.clone().acquire_many_owned(self.takes).await?)
    }

    async fn release(&mut self, permit: OwnedSemaphorePermit) -> Result<()> {
        drop(permit);
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// Plays rounds of a second until one of them shows enough, or an error. If a busy machine stands still, a round shows
/// nothing.
async fn play(subject: &Shared, workload: &str, is_enough: impl Fn(&Figures) -> bool) -> Result<Figures> {
    const ROUNDS: usize = 10;
    let mut stage = Stage::enter(subject, workload.parse::<Workload>().unwrap()).await?;
    let mut figures = stage.round(Duration::from_secs(1)).await?;
    for _ in 1..ROUNDS {
        if is_enough(&figures) {
            break;
        }
        figures = stage.round(Duration::from_secs(1)).await?;
    }
    Ok(figures)
}

/// Plays it until more than this is counted.
async fn play_for_more(subject: Shared, workload: &str, unit: Unit, than: f64) {
    let figures = play(&subject, workload, |figures| figure(figures, unit) > than).await;
    let figures = figures.unwrap();
    assert!(figure(&figures, unit) > than, "{figures:?}");
}

#[tokio::test]
async fn readers_and_permits_are_inside_together() {
    play_for_more(Shared::new(4, 4), "read-4", Unit::Pairs, 0.0).await;
    play_for_more(Shared::new(16, 16), "rw-90", Unit::MicrosLongestWrite, 0.0).await;
    // One permit is left to whom the readers leave one.
    play_for_more(Shared::new(11, 11), "beside-10", Unit::Pairs, 0.0).await;
    play_for_more(Shared::new(16, 16), "permits-64", Unit::Pairs, 64.0).await;
}

async fn failed(subject: Shared, workload: &str) -> String {
    let played = play(&subject, workload, |_| false).await;
    played.unwrap_err().to_string()
}

#[tokio::test]
async fn a_lock_that_breaks_its_word_is_found_out() {
    // A writer that leaves room for readers.
    let error = failed(Shared::new(16, 8), "rw-50").await;
    assert!(error.contains(" was granted beside "), "{error}");
    let error = failed(Shared::new(17, 17), "permits-64").await;
    assert_eq!(error, "Permit { of: 16 } was granted beside 0 writers and 16 others");
    let error = failed(Shared::new(2, 1), "one-4").await;
    assert!(error.starts_with("Exclusive was granted beside 1 writers"), "{error}");
    let error = play_exclusive_in_a_mode().await;
    assert_eq!(error, "it has nothing like Shared");
}

async fn play_exclusive_in_a_mode() -> String {
    let entered = Stage::enter(&Fair::new(), "read-4".parse::<Workload>().unwrap()).await;
    entered.expect_err("it has no readers").to_string()
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
