//! Elections whose leader loses its term.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;

use super::elections::{Leading, NAME, candidate};
use super::support::is_pending;
use crate::context::Cx;
use crate::link::Link;
use crate::subject::{ElectionState, Work};
use crate::verdict::{Stop, Verdict, ensure, ensure_safe};

/// When the server falls silent, a leader's own clock ends its term before another candidate is elected. It campaigns again by
/// itself, and leads when the other one resigns.
pub(crate) async fn a_leader_that_is_cut_off_campaigns_again(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (one, two) = (cx.subject_through(&link).await, cx.subject().await);
    let silent = candidate(&one, ttl, "one")?;
    let mut leader = Leading::begin(&silent);
    let term = leader.elected_soon(cx, "the only candidate to be elected").await?;
    let mut waiting = Leading::begin(&candidate(&two, cx.long_ttl().await, "two")?);
    cx.until_places(NAME, 1).await?;
    link.stall();
    let what = "a candidate to be elected when the leader is cut off";
    let next = waiting.elected(cx, cx.freed_by(ttl), what).await?;
    ensure_safe!(next > term, "term {next} after {term}");
    let state = cx.soon("a state without a server", silent.state()).await?;
    ensure_safe!(
        !matches!(state, ElectionState::Leading(_)),
        "another one leads, and the state of the one that is cut off is {state:?}"
    );
    link.heal();
    // It waits again.
    cx.until_places(NAME, 1).await?;
    waiting.resign();
    let again = waiting.followed_by(&mut leader, cx, cx.freed_soon().await).await?;
    ensure_safe!(again > next, "term {again} after {next}");
    Ok(())
}

/// A leader whose hold is taken away is elected again. The work of its new term begins when that of the old one has ended.
pub(crate) async fn the_work_of_two_terms_does_not_overlap(cx: &Cx) -> Verdict {
    struct Working(Arc<AtomicUsize>);
    impl Drop for Working {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (begins, mut began) = unbounded_channel();
    let working = Arc::new(AtomicUsize::new(0));
    let work: Work = Arc::new(move |term| {
        let others = working.fetch_add(1, Ordering::SeqCst);
        let (begins, works) = (begins.clone(), Working(working.clone()));
        Box::pin(async move {
            let _works = works;
            // The case may have seen enough.
            begins.send((term, others)).ok();
            std::future::pending().await
        })
    });
    let ttl = cx.lasting_ttl().await;
    let candidate = candidate(&cx.subject().await, ttl, "one")?;
    let mut leads = Box::pin(candidate.lead(work));
    let mut last = None;
    for _ in 0..3 {
        let what = "the only candidate to be elected, again";
        let next = async {
            tokio::select! {
                next = began.recv() => next,
                ended = &mut leads => panic!("a candidate ended: {ended:?}"),
            }
        };
        let (term, others) = cx
            .within(cx.freed_by(2 * ttl), what, next)
            .await?
            .ok_or_else(|| Stop::assertion("a candidate ended"))?;
        ensure_safe!(
            others == 0,
            "the work of a new term began beside that of {others} others"
        );
        ensure_safe!(last.is_none_or(|last| last < term), "term {term} after {last:?}");
        last = Some(term);
        ensure!(
            is_pending(&mut leads, Duration::from_millis(20)).await,
            "a candidate ended while it led"
        );
        cx.take_away(NAME).await;
    }
    Ok(())
}
