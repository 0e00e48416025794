//! Time that passes just before a backend takes the moment of sending.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use lock_core::backend::SentAt;

/// The time that passes before each moment of sending, on the threads of one case's runtime.
#[derive(Debug)]
pub(crate) struct SendingDelay {
    paused: bool,
    micros: AtomicU64,
}

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Arc<SendingDelay>>> = const { RefCell::new(None) };
}

impl SendingDelay {
    /// No time passes yet. `paused` says whether the runtime's clock is.
    pub(crate) fn new(paused: bool) -> Arc<Self> {
        Arc::new(Self {
            paused,
            micros: AtomicU64::new(0),
        })
    }

    /// Counts this thread as one of the case's.
    pub(crate) fn begin_thread(self: &Arc<Self>) {
        let delay = self.clone();
        SentAt::pause_before(move || delay.pass());
        OF_THIS_THREAD.set(Some(self.clone()));
    }

    fn pass(&self) {
        let delay = Duration::from_micros(self.micros.load(Ordering::SeqCst));
        if delay.is_zero() {
            return;
        }
        if self.paused {
            // Its first poll moves the clock.
            let advance = pin!(tokio::time::advance(delay));
            let _ = advance.poll(&mut Context::from_waker(Waker::noop()));
        } else {
            tokio::task::block_in_place(|| std::thread::sleep(delay));
        }
    }
}

/// From here on so much time passes before each moment of sending that the case's runtime takes.
pub(crate) fn delay_sending(delay: Duration) {
    OF_THIS_THREAD.with_borrow(|of_this_thread| {
        if let Some(of_this_thread) = of_this_thread {
            let micros = delay.as_micros().try_into().unwrap_or(u64::MAX);
            of_this_thread.micros.store(micros, Ordering::SeqCst);
        }
    });
}
