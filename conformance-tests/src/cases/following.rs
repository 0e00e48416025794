//! Observers that the server tells of changes.

use std::sync::Arc;

use lock_core::backend::request::{RequestControl, Terms};
use lock_core::backend::{AcquireRequest, Change, DistributedLock, LockStatus};

use crate::context::{RawCx, lock_name};
use crate::raw::Grant;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure};

/// Who follows a name hears of each new holder, without asking in between: of one that finds the name free, of one that waited,
/// and of one after a hold that was taken away.
pub(crate) async fn a_follower_hears_of_each_new_holder(cx: &RawCx) -> Verdict {
    let follower = cx.client_with(Capability::Follow).await?;
    let (one, two) = (cx.backend().await, cx.backend().await);
    // Two who follow one name hear of it both.
    let mut following = vec![
        Following::begin(cx, &follower).await?,
        Following::begin(cx, &follower).await?,
    ];
    for _ in 0..3 {
        let first = cx.grant_to(&one, request(cx).await?).await?;
        hear(cx, &mut following, &first, "a holder of a free name").await?;
        let (asked, control) = request(cx).await?;
        let waiting = cx.wait_with(&two, asked, control).await?;
        first.release().await?;
        let what = "the grant to a waiter";
        let second = waiting.grant_soon(cx, what).await?;
        hear(cx, &mut following, &second, "a holder that waited").await?;
        cx.take_away("a").await;
        let third = cx.grant_to(&one, request(cx).await?).await?;
        hear(cx, &mut following, &third, "a holder after one that has lost the name").await?;
        third.release().await?;
        cx.until_free("a", "the release").await?;
    }
    Ok(())
}

/// A request of which the status shows the token.
async fn request(cx: &RawCx) -> Result<(AcquireRequest, RequestControl), Stop> {
    let terms = Terms::new(cx.long_ttl().await).label("a candidate");
    Ok(cx.options("a", terms)?.shows_token(true).start())
}

async fn hear(cx: &RawCx, following: &mut [Following<'_>], holder: &Grant, what: &str) -> Verdict {
    for follower in following {
        follower.hears_of(cx, holder, what).await?;
    }
    Ok(())
}

/// One who asks again only when a change is reported.
struct Following<'a> {
    client: &'a Arc<dyn DistributedLock>,
    change: Change,
}

impl<'a> Following<'a> {
    async fn begin(cx: &RawCx, client: &'a Arc<dyn DistributedLock>) -> Result<Self, Stop> {
        let (status, change) = ask(cx, client).await?;
        ensure!(!status.is_held(), "nobody holds the name, and {status:?}");
        Ok(Self { client, change })
    }

    async fn hears_of(&mut self, cx: &RawCx, holder: &Grant, what: &str) -> Verdict {
        let heard = async {
            loop {
                self.change.happened().await;
                let (status, change) = ask(cx, self.client).await?;
                self.change = change;
                let token = status.holders.first().and_then(|shown| shown.token);
                if token == Some(holder.token()) {
                    return Ok(());
                }
            }
        };
        cx.soon(what, heard).await?
    }
}

async fn ask(cx: &RawCx, client: &Arc<dyn DistributedLock>) -> Result<(LockStatus, Change), Stop> {
    let name = lock_name("a")?;
    cx.soon("follow", client.follow(&name)).await?.or_fail("follow")
}
