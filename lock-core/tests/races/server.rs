//! The scripted backend, with pauses before and after each effect, and what it guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lock_core::backend::DistributedLock;
use lock_core::{Guard, HoldState, Locker, MemoryBackend};
use shuttle::rand::{Rng, thread_rng};

use crate::scripted::{Pass, Scripted};

/// A clone is another client of the same server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    backend: Scripted,
    used: Arc<AtomicBool>,
    /// How many read what the guards protect.
    readers: Arc<AtomicUsize>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            backend: Scripted::new(MemoryBackend::new().capabilities(), 2),
            used: Arc::default(),
            readers: Arc::default(),
        }
    }
}

impl Server {
    pub(crate) fn locker(&self) -> Locker {
        Locker::new(self.backend.clone())
    }

    /// From here on holds are passed on without a request.
    pub(crate) fn passes(&self) {
        self.backend.pass(Pass::AsItIs);
    }

    /// The connection ends, and all holds with it.
    pub(crate) fn tell_of_losses(&self) {
        self.backend.tell_of_losses();
    }

    pub(crate) async fn is_free(&self, name: &str) -> bool {
        !self.backend.is_held(name).await
    }

    /// How many wait at the server.
    pub(crate) async fn waiting(&self, name: &str) -> usize {
        self.backend.waiting(name).await
    }

    /// From here on, every fourth answer is lost, until there were three of them.
    pub(crate) fn lose_answers(&self) {
        self.backend.lose_answers(3, || thread_rng().gen_ratio(1, 4));
    }

    /// Whether any hold was renewed after its release had begun.
    pub(crate) fn renewed_after_release(&self) -> bool {
        self.backend.renewed_after_release()
    }

    /// Uses what the guard protects: nobody else does meanwhile.
    pub(crate) async fn work(&self, guard: &Guard) {
        self.write(guard).await;
        assert_eq!(guard.state(), HoldState::Held);
    }

    /// The same, where renewals may fail.
    pub(crate) async fn write(&self, guard: &Guard) {
        assert!(!self.used.swap(true, Ordering::SeqCst), "two at once");
        let _using = Using(&self.used);
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "somebody reads");
        for _ in 0..2 {
            shuttle::future::yield_now().await;
        }
        assert!(guard.check().is_ok());
    }

    /// Reads what the guard protects: nobody else writes meanwhile.
    pub(crate) async fn read(&self, guard: &Guard) {
        self.read_on(guard).await;
        assert_eq!(guard.state(), HoldState::Held);
    }

    /// The same, where renewals may fail.
    pub(crate) async fn read_on(&self, guard: &Guard) {
        self.readers.fetch_add(1, Ordering::SeqCst);
        let _reading = Reading(&self.readers);
        for _ in 0..2 {
            assert!(!self.used.load(Ordering::SeqCst), "somebody writes");
            shuttle::future::yield_now().await;
        }
        assert!(guard.check().is_ok());
    }
}

struct Reading<'a>(&'a AtomicUsize);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Using<'a>(&'a AtomicBool);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
