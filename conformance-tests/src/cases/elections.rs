//! Elections: terms one after the other, and another leader soon after the last one has gone.

use std::sync::Arc;
use std::time::Duration;

use lock_core::FencingToken;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::child::Child;
use crate::context::{Cx, Pauses};
use crate::job::Job;
use crate::link::Link;
use crate::subject::{Candidate, Elected, ElectionState, Subject, SubjectGuard, Then, Work};
use crate::verdict::{OrFail, Skip, Stop, Verdict, ensure, ensure_safe};

pub(super) const NAME: &str = "leader";
const TERMS: usize = 100;
/// A third of it is the pause of one who resigned.
const LONG_PAUSE_TTL: Duration = Duration::from_secs(15);

/// The ttl of candidates of which one that has led must not lead again before another one.
pub(super) async fn long_pause_ttl(cx: &Cx) -> Duration {
    LONG_PAUSE_TTL.max(cx.ttl()).min(cx.long_ttl().await)
}

pub(super) fn candidate(subject: &Arc<dyn Subject>, ttl: Duration, value: &str) -> Result<Arc<dyn Candidate>, Stop> {
    subject
        .candidate(NAME, ttl, value)
        .ok_or(Stop::Skipped(Skip::NoElections))
}

/// A candidate that leads whenever it is elected, and tells when its work begins. The work ends when it is told to resign.
pub(super) struct Leading {
    leads: JoinHandle<()>,
    began: UnboundedReceiver<FencingToken>,
    resign: UnboundedSender<()>,
}

impl Leading {
    pub(super) fn begin(candidate: &Arc<dyn Candidate>) -> Self {
        let (begins, began) = unbounded_channel();
        let (resign, resigns) = unbounded_channel();
        let resigns = Arc::new(tokio::sync::Mutex::new(resigns));
        let work: Work = Arc::new(move |term| {
            let (begins, resigns) = (begins.clone(), resigns.clone());
            Box::pin(async move {
                // The case may have seen enough.
                begins.send(term).ok();
                let told = resigns.lock().await.recv().await;
                told.map_or(Then::Stop, |()| Then::Campaign)
            })
        });
        let candidate = candidate.clone();
        let leads = tokio::spawn(async move {
            if let Err(error) = candidate.lead(work).await {
                panic!("lead: {error}");
            }
        });
        Self { leads, began, resign }
    }

    /// Its next term, which begins within this time.
    pub(super) async fn elected(&mut self, cx: &Cx, within: Duration, what: &str) -> Result<FencingToken, Stop> {
        let term = cx.within(within, what, self.began.recv()).await?;
        term.ok_or_else(|| Stop::assertion(format!("a candidate ended: {what}")))
    }

    /// Its next term, which begins soon: nothing has to expire before.
    pub(super) async fn elected_soon(&mut self, cx: &Cx, what: &str) -> Result<FencingToken, Stop> {
        self.elected(cx, cx.freed_soon().await, what).await
    }

    /// The next term of another candidate, which is elected within this time, before this one is again.
    pub(super) async fn followed_by(
        &mut self,
        other: &mut Self,
        cx: &Cx,
        within: Duration,
    ) -> Result<FencingToken, Stop> {
        tokio::select! {
            next = other.elected(cx, within, "the other candidate to be elected") => next,
            again = self.began.recv() => {
                Err(Stop::assertion(format!("the leader's term is over, and it leads again in term {again:?}")))
            }
        }
    }

    /// Returns whether no term of this candidate begins soon.
    pub(super) async fn is_waiting(&mut self) -> bool {
        timeout(Duration::from_millis(20), self.began.recv()).await.is_err()
    }

    pub(super) fn resign(&self) {
        // A candidate that ended is found out by whoever waits for it.
        self.resign.send(()).ok();
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.leads.abort();
    }
}

/// A leader's process is killed: another candidate is elected within the TTL.
pub(crate) async fn a_killed_leader_is_followed(cx: &Cx) -> Verdict {
    let follower = candidate(&cx.subject().await, cx.ttl(), "parent")?;
    // Its term must last until it is killed.
    let ttl = cx.lasting_ttl().await;
    let job = Job::Lead {
        name: NAME.to_owned(),
        ttl,
    };
    let mut child = Child::start(cx, &job)?;
    let term: FencingToken = child
        .says(cx, "leads", cx.patience())
        .await?
        .parse()
        .map_err(|_| Stop::assertion("a child that leads without a term"))?;
    let mut follows = Leading::begin(&follower);
    cx.until_places(NAME, 1).await?;
    child.kill()?;
    let what = "a candidate to be elected after the leader was killed";
    let next = follows.elected(cx, cx.freed_by(ttl), what).await?;
    ensure_safe!(next > term, "term {next} after {term}");
    Ok(())
}

/// A leader's task is dropped: another candidate is elected soon, long before the TTL is over.
pub(crate) async fn a_dropped_leader_is_followed(cx: &Cx) -> Verdict {
    let ttl = cx.long_ttl().await;
    let (one, two) = (cx.subject().await, cx.subject().await);
    let mut first = Leading::begin(&candidate(&one, ttl, "one")?);
    let term = first.elected_soon(cx, "the only candidate to be elected").await?;
    let mut second = Leading::begin(&candidate(&two, ttl, "two")?);
    cx.until_places(NAME, 1).await?;
    drop(first);
    let what = "a candidate to be elected after the leader was dropped";
    let next = second.elected_soon(cx, what).await?;
    ensure_safe!(next > term, "term {next} after {term}");
    Ok(())
}

/// A leader resigns, and campaigns again: another candidate leads first, each time.
///
/// The pause of whoever resigned is longer than a busy machine stands still, and no term expires meanwhile.
pub(crate) async fn whoever_resigns_lets_another_lead(cx: &Cx) -> Verdict {
    let (one, two, three) = (cx.subject().await, cx.subject().await, cx.subject().await);
    let ttl = long_pause_ttl(cx).await;
    let patience = cx.patience() + ttl;
    let mut first = Leading::begin(&candidate(&one, ttl, "one")?);
    let term = first.elected(cx, patience, "the only candidate to be elected").await?;
    let mut second = Leading::begin(&candidate(&two, ttl, "two")?);
    cx.until_places(NAME, 1).await?;
    first.resign();
    let next = first.followed_by(&mut second, cx, patience).await?;
    ensure_later(next, term)?;
    let mut third = Leading::begin(&candidate(&three, ttl, "three")?);
    cx.until_places(NAME, 1).await?;
    second.resign();
    let what = "one who resigned to be elected again";
    let last = tokio::select! {
        last = second.followed_by(&mut third, cx, patience) => last?,
        // Its pause may be over.
        last = first.elected(cx, patience, what) => return ensure_later(last?, next),
    };
    ensure_later(last, next)?;
    // Nobody is left but those who resigned.
    drop(third);
    let again = tokio::select! {
        again = first.elected(cx, patience, what) => again?,
        again = second.elected(cx, patience, what) => again?,
    };
    ensure_later(again, last)
}

fn ensure_later(term: FencingToken, before: FencingToken) -> Verdict {
    ensure_safe!(term > before, "term {term} after {before}");
    Ok(())
}

/// A hundred terms, of two clients in turn: each is larger than the one before. An observer sees no term twice and none that
/// is older than what it saw, and it sees the last one.
pub(crate) async fn terms_grow_and_the_last_one_is_seen(cx: &Cx) -> Verdict {
    let (one, two, three) = (cx.subject().await, cx.subject().await, cx.subject().await);
    let ttl = cx.long_ttl().await;
    let mut seen = candidate(&three, cx.ttl(), "three")?.observe();
    let (tell, mut told) = unbounded_channel();
    let observing = tokio::spawn(async move {
        loop {
            let leader = seen.changed().await;
            if tell.send(leader).is_err() {
                return;
            }
        }
    });
    let (mut last, mut held, mut previous) = (None, None, None);
    for (number, client) in [&one, &two].into_iter().cycle().enumerate().take(TERMS) {
        if let Some(term) = held.take() {
            resign(term).await?;
        }
        // Another candidate each time: it has not led before, and need not pause.
        let candidate = candidate(client, ttl, &format!("leader {number}"))?;
        let what = "a candidate to be elected whom nobody opposes";
        let term = cx.soon(what, candidate.campaign()).await?.or_fail(what)?;
        ensure_safe!(
            last.is_none_or(|last| last < term.token()),
            "term {} after {last:?}",
            term.token()
        );
        if number == 0 {
            let what = "an observer to see the first term";
            previous = Some(next_seen(cx, &mut told, previous, what).await?.term);
        }
        last = Some(term.token());
        held = Some(term);
    }
    let what = "an observer to see the last term";
    while previous != last {
        let leader = next_seen(cx, &mut told, previous, what).await?;
        previous = Some(leader.term);
        if previous == last {
            let expected = format!("leader {}", TERMS - 1);
            ensure_value(cx, leader.value.as_deref(), &expected).await?;
        }
    }
    let nothing = timeout(cx.ttl() / 2, told.recv()).await;
    ensure!(nothing.is_err(), "an observer saw the last term, and then {nothing:?}");
    observing.abort();
    match held {
        Some(term) => resign(term).await,
        None => Ok(()),
    }
}

/// A candidate that waited for its election is seen like any other, while others wait behind it: by observers, and by the
/// state of another candidate.
pub(crate) async fn a_candidate_that_waited_is_seen(cx: &Cx) -> Verdict {
    let (one, two, three) = (cx.subject().await, cx.subject().await, cx.subject().await);
    let follower = candidate(&three, cx.ttl(), "three")?;
    let mut seen = follower.observe();
    // No term of theirs expires on a busy machine.
    let ttl = long_pause_ttl(cx).await;
    let mut leader = Leading::begin(&candidate(&one, ttl, "one")?);
    let mut values = ["one", "two"];
    let mut term = leader.elected_soon(cx, "the only candidate to be elected").await?;
    let mut waiting = Leading::begin(&candidate(&two, ttl, "two")?);
    cx.until_places(NAME, 1).await?;
    for _ in 0..2 {
        let what = "an observer to see who leads while others wait";
        let elected = cx.within(cx.ttl() + cx.patience(), what, seen.changed()).await?;
        let elected = elected.or_fail("observe")?;
        ensure!(
            elected.term == term,
            "{term} is the leader's term, and an observer saw {elected:?}"
        );
        ensure_value(cx, elected.value.as_deref(), values[0]).await?;
        ensure_follows(cx, &*follower, term, values[0]).await?;
        leader.resign();
        let what = "the candidate that waits to be elected";
        let next = waiting.elected_soon(cx, what).await?;
        ensure_safe!(next > term, "term {next} after {term}");
        term = next;
        std::mem::swap(&mut leader, &mut waiting);
        values.swap(0, 1);
        // The one that resigned waits again.
        cx.until_places(NAME, 1).await?;
    }
    Ok(())
}

/// The observer's next report, which must be a later term than the one before.
async fn next_seen(
    cx: &Cx,
    told: &mut UnboundedReceiver<lock_core::Result<Elected>>,
    previous: Option<FencingToken>,
    what: &str,
) -> Result<Elected, Stop> {
    let leader = cx.within(cx.ttl() + cx.patience(), what, told.recv()).await?;
    let leader = leader
        .ok_or_else(|| Stop::assertion("the observer ended"))?
        .or_fail("observe")?;
    ensure_safe!(
        previous.is_none_or(|previous| previous < leader.term),
        "an observer saw term {} after {previous:?}",
        leader.term
    );
    Ok(leader)
}

/// A server that shows labels shows the leader's value. Asked while this leader has its term.
async fn ensure_value(cx: &Cx, shown: Option<&str>, expected: &str) -> Verdict {
    let label = cx.holder_of(NAME).await?;
    ensure!(
        shown.map_or(label.is_none(), |shown| shown == expected),
        "the leader's value is {expected:?}, shown is {shown:?}, and its hold's label is {label:?}"
    );
    Ok(())
}

async fn ensure_follows(cx: &Cx, follower: &dyn Candidate, term: FencingToken, value: &str) -> Verdict {
    let is_expected = |state: &ElectionState| matches!(state, ElectionState::Following(seen, _) if *seen == term);
    match state_in_the_end(cx, follower, is_expected).await {
        ElectionState::Following(seen, shown) if seen == term => ensure_value(cx, shown.as_deref(), value).await,
        state => Err(Stop::assertion(format!(
            "a leader has the term {term}, and the state is {state:?}"
        ))),
    }
}

/// The state that is expected, or another one. On a busy machine a server may answer too late, and a quorum may not know the token of the
/// leader until all nodes have answered.
async fn state_in_the_end(
    cx: &Cx,
    candidate: &dyn Candidate,
    is_expected: impl Fn(&ElectionState) -> bool,
) -> ElectionState {
    let (end, mut pauses) = (Instant::now() + cx.patience(), Pauses::new());
    loop {
        let state = candidate.state().await;
        if is_expected(&state) || cx.timing().paused || Instant::now() >= end {
            return state;
        }
        pauses.pass().await;
    }
}

async fn resign(term: Box<dyn SubjectGuard>) -> Verdict {
    term.released().await
}

/// The state that a health endpoint returns: electing, leading, following with the leader's value, unreachable.
pub(crate) async fn the_state_of_an_election_is_known(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.long_ttl().await);
    let (one, two) = (cx.subject().await, cx.subject_through(&link).await);
    let (leader, follower) = (candidate(&one, ttl, "address 1")?, candidate(&two, ttl, "address 2")?);
    let is_electing = |state: &ElectionState| *state == ElectionState::Electing;
    let state = state_in_the_end(cx, &*follower, is_electing).await;
    ensure!(
        state == ElectionState::Electing,
        "nobody leads, and the state is {state:?}"
    );
    let term = cx.soon("campaign", leader.campaign()).await?.or_fail("campaign")?;
    let state = leader.state().await;
    ensure!(
        state == ElectionState::Leading(term.token()),
        "it leads, and its state is {state:?}"
    );
    ensure_follows(cx, &*follower, term.token(), "address 1").await?;
    link.cut();
    let state = cx.soon("a state without a server", follower.state()).await?;
    ensure!(
        state == ElectionState::Unreachable,
        "no server, and the state is {state:?}"
    );
    resign(term).await?;
    let state = state_in_the_end(cx, &*leader, is_electing).await;
    ensure!(
        state == ElectionState::Electing,
        "it has resigned, and its state is {state:?}"
    );
    Ok(())
}
