//! One upgrade, from the first request to the grant that replaces the hold. It passes the local queue, as it passes the
//! server's: all who wait there wait for the hold that it upgrades.

use std::pin::pin;

use super::caller::Caller;
use super::drive::{Driver, StopReason};
use super::pending::PendingAcquire;
use super::shared::Shared;
use crate::backend::Mode;
use crate::background::runner::ensure_running;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Share;
use crate::options::wait::WaitLimit;
use crate::queue::last_word::LastWord;
use crate::sync::Arc;
use crate::time::until;

/// Makes an upgradable hold exclusive. False if others hold the name too, and the caller asks once.
pub(crate) async fn upgrade(shared: &Arc<Shared>, share: &Share<Caller>, wait: WaitLimit) -> Result<bool> {
    ensure_running(&shared.keeper)?;
    let _in_flight = shared.keeper.in_flight();
    // Hears of a close from here on.
    let closing = shared.closing.notified();
    shared.check_open()?;
    let hold = share.hold();
    let lock = &hold.lock;
    let deadline = wait.deadline(lock.limits.operation_timeout);
    let stopped = pin!(async {
        tokio::select! {
            biased;
            _ = hold.lease.ended() => StopReason::Failed(hold.lost_in_upgrade()),
            () = closing => StopReason::Failed(shared.shut_down()),
            () = until(deadline) => StopReason::TooLate,
        }
    });
    let mut driver = Driver {
        shared,
        lock,
        verb: "upgraded",
        wait,
        deadline,
        news: 0,
        stopped,
    };
    // One that was dropped before is undone first: the hold has one upgrade at a time.
    tokio::select! {
        biased;
        () = hold.renewals.upgrade_settled() => {}
        stop = &mut driver.stopped => return driver.stop(stop, LastWord::Nothing).map(|_| false),
    }
    hold.check()?;
    let base = match (hold.mode(), hold.upgradable()) {
        (Mode::Exclusive, _) => return Ok(true),
        (_, Some(base)) => base,
        (_, None) => {
            let message = "the guard was downgraded, and only reads: release it, and acquire an upgradable one";
            return Err(Error::new(ErrorKind::Misconfigured, message).with_name(&lock.name));
        }
    };
    let mut pending = PendingAcquire::upgrade((&shared.backend, &shared.keeper), hold, &base, (wait, deadline));
    match driver.drive(&mut pending).await? {
        Some((hold, armed)) => pending.upgraded(hold, &armed).map(|()| true),
        None => Ok(false),
    }
}
