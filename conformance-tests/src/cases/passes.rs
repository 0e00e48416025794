//! A hold passes to the next holder of the same process without a request. By capability.

use std::sync::Arc;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Hold, Lease, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{FencingToken, HoldState};

use crate::context::{RawCx, lock_name};
use crate::raw::{Grant, drive, granted, is_renewed};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

/// The number of tokens that a grant reserves here.
const TOKENS: u32 = 4;

/// A hold as it was passed on, and its lease, which nothing has armed.
struct Passed {
    hold: Arc<dyn Hold>,
    lease: Lease,
}

/// A grant with reserved tokens.
async fn grant(cx: &RawCx, client: &Arc<dyn DistributedLock>) -> Result<Grant, Stop> {
    let options = RequestOptions::new(lock_name("a")?, Terms::new(cx.long_ttl().await));
    let (request, control) = options.reserve(TOKENS).start();
    let attempt = cx
        .soon("acquire", drive(&**client, &request))
        .await?
        .or_fail("acquire")?;
    granted(attempt, request, control)?.map_err(|busy| Stop::assertion(format!("free, yet {busy:?}")))
}

fn pass(hold: &Arc<dyn Hold>) -> Result<Option<Passed>, Stop> {
    let lease = Lease::new(lock_name("a")?);
    Ok(hold.pass(&lease).map(|hold| Passed { hold, lease }))
}

fn must_pass(hold: &Arc<dyn Hold>) -> Result<Passed, Stop> {
    pass(hold)?.ok_or_else(|| Stop::assertion("a hold with reserved tokens was not passed on"))
}

impl Passed {
    /// What a renewal says of the hold. `None` where core never renews.
    async fn renewed(&self, cx: &RawCx, client: &Arc<dyn DistributedLock>) -> Result<Option<bool>, Stop> {
        if !is_renewed(client) {
            return Ok(None);
        }
        let renewed = cx.soon("a renewal", self.hold.renew(cx.long_ttl().await)).await?;
        Ok(Some(matches!(renewed.or_fail("renew")?, Renewal::Renewed(_))))
    }

    async fn release(&self, cx: &RawCx) -> Result<ReleaseOutcome, Stop> {
        let released = cx.soon("a release", self.hold.release(ReleaseOptions::default()));
        released.await?.or_fail("release")
    }
}

/// The server knows no other holder, and what was passed on is as good as any hold: it excludes, it is renewed, it is
/// released. Where it is not declared, nothing is passed on.
pub(crate) async fn a_pass_is_the_same_hold(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    let first = grant(cx, &client).await?;
    let passed = pass(&first.hold)?;
    if !Capability::Pass.is_in(client.capabilities()) {
        ensure!(passed.is_none(), "a pass is not declared, yet it was made");
        first.release().await?;
        return Capability::Pass.or_skip(client.capabilities());
    }
    let passed = passed.ok_or_else(|| Stop::assertion("a hold with reserved tokens was not passed on"))?;
    cx.ensure_taken(&other, "a").await?;
    if let Some(is_renewed) = passed.renewed(cx, &client).await? {
        ensure!(is_renewed, "a renewal of what was passed on said that it was lost");
        ensure!(
            passed.lease.state() == HoldState::Held,
            "renewed, and {:?}",
            passed.lease.state()
        );
    }
    cx.ensure_taken(&other, "a").await?;
    let released = passed.release(cx).await?;
    ensure!(
        released == ReleaseOutcome::Released,
        "a release of a live hold answered {released:?}"
    );
    cx.until_free("a", "the last holder's release").await
}

/// Each pass has a larger token than the one before, and there are as many as were reserved.
pub(crate) async fn tokens_grow_over_passes(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    Capability::Pass.or_skip(client.capabilities())?;
    let first = grant(cx, &client).await?;
    let (mut hold, mut last) = (first.hold.clone(), first.token());
    for number in 1..TOKENS {
        let passed = must_pass(&hold)?;
        let token = passed.hold.token();
        ensure_safe!(token > last, "token {token} after {last}, at pass {number}");
        (hold, last) = (passed.hold, token);
    }
    ensure!(pass(&hold)?.is_none(), "passed on more often than tokens were reserved");
    let released = cx.soon("a release", hold.release(ReleaseOptions::default())).await?;
    released.or_fail("release")?;
    let next = cx.grant(&other, "a").await?;
    ensure_safe!(next.token() > last, "token {} after {last}", next.token());
    let single = next.hold.clone();
    ensure!(pass(&single)?.is_none(), "passed on, though no token was reserved");
    next.release().await
}

/// Whatever ends a hold, the next grant's token is above all that it had reserved.
pub(crate) async fn reserved_tokens_are_nobody_elses(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    Capability::Pass.or_skip(client.capabilities())?;
    let robbed = grant(cx, &client).await?;
    cx.take_away("a").await;
    let next = grant(cx, &other).await?;
    ensure_above(next.token(), &robbed)?;
    next.release().await?;
    cx.until_free("a", "all have had it").await
}

/// A pass of the earlier grant, made late, is not mistaken for a later holder.
fn ensure_above(token: FencingToken, earlier: &Grant) -> Verdict {
    let mut hold = earlier.hold.clone();
    // Another case finds out that there are no more.
    for _ in 1..TOKENS {
        let Some(passed) = pass(&hold)? else { break };
        hold = passed.hold;
    }
    ensure_safe!(
        token > hold.token(),
        "token {token} was granted, and {} was reserved before",
        hold.token()
    );
    Ok(())
}

/// A hold that was passed on and taken away is lost, and its release touches no successor.
pub(crate) async fn a_hold_that_was_passed_on_is_lost_like_any_other(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    Capability::Pass.or_skip(client.capabilities())?;
    let first = grant(cx, &client).await?;
    let passed = must_pass(&first.hold)?;
    ensure!(
        passed.renewed(cx, &client).await? != Some(false),
        "a renewal of what was passed on said that it was lost"
    );
    cx.take_away("a").await;
    let successor = cx.grant(&other, "a").await?;
    ensure!(
        passed.renewed(cx, &client).await? != Some(true),
        "renewed after it was taken away"
    );
    let released = passed.release(cx).await?;
    ensure!(
        released == ReleaseOutcome::AlreadyLost,
        "a hold that was taken away was released: {released:?}"
    );
    cx.ensure_taken(&client, "a").await?;
    successor.release().await
}

/// Whatever an earlier holder asks for yet, the lease of the one who has it is not armed by that.
pub(crate) async fn an_earlier_holders_renewal_arms_its_own_lease(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    Capability::Pass.or_skip(client.capabilities())?;
    let first = grant(cx, &client).await?;
    let passed = must_pass(&first.hold)?;
    // Whatever it is answered.
    let _late = cx.soon("the renewal", first.hold.renew(cx.long_ttl().await)).await?;
    ensure!(
        passed.lease.state() == HoldState::Released,
        "armed by another one's renewal: {:?}",
        passed.lease.state()
    );
    passed.release(cx).await?;
    cx.until_free("a", "the last holder's release").await
}
