//! Holds over tables that answer as they were told, and note what they were asked.

use std::collections::VecDeque;

use lock_core::LostCause;
use lock_core::backend::request::{RequestOptions, Terms};
use tokio::time::Instant;

use super::*;

const TTL: Duration = Duration::from_secs(10);

/// The answers that are still to be given, and the questions so far: what was asked, and of which table.
#[derive(Default)]
struct Rows {
    locked_rows: LockedRows,
    downgrades: Downgrades,
    renewals: Mutex<VecDeque<Renewed>>,
    /// In which table the hold is.
    is_shared: Mutex<Option<bool>>,
    asked: Mutex<Vec<(&'static str, bool)>>,
}

impl Rows {
    fn note(&self, what: &'static str, is_shared: bool) {
        self.asked.lock().push((what, is_shared));
    }

    fn asked(&self) -> Vec<(&'static str, bool)> {
        std::mem::take(&mut self.asked.lock())
    }

    fn is_in(&self, is_shared: bool) -> bool {
        *self.is_shared.lock() == Some(is_shared)
    }
}

impl LeaseRows for Rows {
    fn locked_rows(&self) -> &LockedRows {
        &self.locked_rows
    }

    fn downgrades(&self) -> &Downgrades {
        &self.downgrades
    }

    async fn renew(self: &Arc<Self>, _: &Held, _: Duration, is_shared: bool) -> Result<Renewed> {
        self.note("renew", is_shared);
        let next = self.renewals.lock().pop_front();
        Ok(next.unwrap_or(match self.is_in(is_shared) {
            true => Renewed::At(SentAt::now()),
            false => Renewed::Lost,
        }))
    }

    async fn release(self: &Arc<Self>, _: &Held, may_share: bool, _: Option<Duration>) -> Result<bool> {
        self.note("release", may_share);
        Ok(self.is_shared.lock().take().is_some())
    }

    /// Takes effect. It is not answered while `renewals` has an answer, which it leaves there.
    async fn downgrade(self: &Arc<Self>, _: &Held, _: Duration) -> Result<Option<SentAt>> {
        let was_there = self.is_shared.lock().replace(true).is_some();
        match self.renewals.lock().is_empty() {
            true => Ok(was_there.then(SentAt::now)),
            false => Err(unavailable()),
        }
    }

    async fn raise(self: &Arc<Self>, _: &Held, _: FencingToken, is_shared: bool) -> Result<bool> {
        self.note("raise", is_shared);
        // A downgrade may be executed before it.
        tokio::task::yield_now().await;
        Ok(self.is_in(is_shared))
    }
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "the server does not answer")
}

fn locked() -> Renewed {
    Renewed::Locked(Error::new(ErrorKind::Unavailable, "the row is locked"))
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

/// A hold with token 5, of so many, whose lease is armed.
fn hold(mode: Mode, reserved: u32) -> (Arc<Rows>, LeaseHold<Rows>) {
    let rows = Arc::new(Rows::default());
    *rows.is_shared.lock() = Some(mode != Mode::Exclusive);
    let name = LockName::new("a").unwrap();
    let (request, _control) = RequestOptions::new(name, Terms::new(TTL)).mode(mode).start();
    request.lease().arm(SentAt::now(), TTL).unwrap();
    let hold = LeaseHold::new(&rows, &request, token(5), reserved);
    (rows, hold)
}

fn is_renewed(renewal: Result<Renewal>) -> bool {
    matches!(renewal.unwrap(), Renewal::Renewed(_))
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_raised_and_released_in_its_table() {
    for (mode, is_shared) in [(Mode::Exclusive, false), (Mode::Shared, true)] {
        let (rows, hold) = hold(mode, 1);
        assert!(is_renewed(hold.renew(TTL).await));
        hold.raise_token(token(9)).await.unwrap();
        let release = || hold.release(ReleaseOptions::default());
        assert_eq!(release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(release().await.unwrap(), ReleaseOutcome::AlreadyLost);
        let asked = ["renew", "raise", "release", "release"].map(|what| (what, is_shared));
        assert_eq!(rows.asked(), asked);
        assert_eq!(hold.raise_token(token(9)).await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!is_renewed(hold.renew(TTL).await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_without_an_answer_leaves_the_hold_in_either_table() {
    let (rows, hold) = hold(Mode::Exclusive, 2);
    rows.renewals.lock().push_back(Renewed::Lost);
    let error = hold.downgrade(TTL).await.unwrap_err();
    assert_eq!(error.name().map(LockName::as_str), Some("a"));
    assert!(rows.downgrades.contains(hold.held.holder));
    assert!(is_renewed(hold.renew(TTL).await));
    hold.raise_token(token(9)).await.unwrap();
    let both = [("renew", false), ("renew", true), ("raise", false), ("raise", true)];
    assert_eq!(rows.asked(), both);
    assert!(is_renewed(hold.downgrade(TTL).await));
    assert!(is_renewed(hold.renew(TTL).await));
    hold.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(rows.asked(), [("renew", true), ("release", true)]);
    let holder = hold.held.holder;
    drop(hold);
    assert!(!rows.downgrades.contains(holder));
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_during_a_renewal_is_no_loss() {
    let (rows, hold) = hold(Mode::Exclusive, 2);
    rows.renewals.lock().push_back(locked());
    // The renewal pauses, since the row is locked. Then the downgrade moves the row.
    let (renewed, downgraded) = tokio::join!(hold.renew(TTL), hold.downgrade(TTL));
    assert!(is_renewed(downgraded));
    assert!(is_renewed(renewed));
    assert_eq!(rows.asked(), [("renew", false), ("renew", false), ("renew", true)]);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_raised_during_a_downgrade() {
    let (rows, hold) = hold(Mode::Exclusive, 2);
    let (raised, downgraded) = tokio::join!(hold.raise_token(token(9)), hold.downgrade(TTL));
    assert!(is_renewed(downgraded));
    raised.unwrap();
    assert_eq!(rows.asked(), [("raise", false), ("raise", true)]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_locked_is_tried_again_and_then_noted() {
    let (rows, hold) = hold(Mode::Exclusive, 1);
    let name = hold.held.name.clone();
    rows.renewals.lock().extend([locked(), locked()]);
    assert!(is_renewed(hold.renew(TTL).await));
    assert_eq!(rows.asked().len(), 3);
    assert!(!rows.locked_rows.contains(&name));

    let begun = Instant::now();
    rows.renewals.lock().extend(vec![locked(); PAUSES.len() + 2]);
    let error = hold.renew(TTL).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() >= Duration::from_millis(PAUSES.iter().sum()));
    assert_eq!(rows.asked().len(), PAUSES.len() + 1);
    assert!(rows.locked_rows.contains(&name));

    // From then on once, until one succeeds.
    hold.renew(TTL).await.unwrap_err();
    assert_eq!(rows.asked().len(), 1);
    assert!(is_renewed(hold.renew(TTL).await));
    assert!(!rows.locked_rows.contains(&name));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_is_not_revived() {
    let (rows, hold) = hold(Mode::Exclusive, 1);
    hold.lease.lose(LostCause::Disconnected);
    assert!(!is_renewed(hold.renew(TTL).await));
    assert!(!is_renewed(hold.downgrade(TTL).await));
    assert!(rows.asked().is_empty());
    assert!(!rows.downgrades.contains(hold.held.holder));
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_passed_on_while_it_is_exclusive_and_tokens_are_left() {
    let next = Lease::new(LockName::new("a").unwrap());
    let (_rows, first) = hold(Mode::Exclusive, 3);
    let second = first.pass(&next).unwrap();
    let third = second.pass(&next).unwrap();
    assert_eq!([second.token(), third.token()], [token(6), token(7)]);
    assert!(third.pass(&next).is_none());
    assert!(hold(Mode::Exclusive, 0).1.pass(&next).is_none());
    assert!(hold(Mode::Shared, 3).1.pass(&next).is_none());
    first.downgrade(TTL).await.unwrap();
    assert!(first.pass(&next).is_none());
}
