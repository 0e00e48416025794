//! Who has a lock, as a majority of the nodes sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::select_all;
use lock_core::backend::{Change, HolderStatus, LockStatus, Mode, WaiterStatus};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::time::{Instant, timeout};

use self::asking::{Asking, SUSPICION};
use crate::client::Client;
use crate::label;
use crate::rules::{self, Token};

mod asking;

/// The time to wait for an answer that decides, if those of a majority do not tell who has the lock.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);
/// Meanwhile the nodes are asked again after this time, since somebody may be acquiring or releasing the lock, and then after twice
/// that each time.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// # Errors
/// If a majority does not answer, or a holder may have a majority with the nodes that do not.
pub(crate) async fn status(client: &Client, name: &LockName) -> Result<LockStatus> {
    let nodes = client.nodes.len();
    let mut asking = Asking::begin(client, |node| node.backend.status(name)).await?;
    let until = Instant::now() + LONGEST_DOUBT;
    let mut pause = ASK_AGAIN;
    loop {
        let answers: Vec<LockStatus> = asking.given().cloned().collect();
        if let Ok(status) = combined(&answers, nodes) {
            return Ok(status);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message = format!(
                "it is not known who has the lock: {} of {nodes} nodes have answered, and the others decide",
                answers.len()
            );
            return Err(Error::new(ErrorKind::Unavailable, message).with_source(asking.errors()));
        }
        asking.go_on(pause.min(left)).await?;
        pause *= 2;
    }
}

/// The same, and what completes when a node that answered reports a change. A later holder's majority has one of these nodes, and
/// each of its votes is reported or was seen. If a node did not answer, the vote that decides may be there: so it completes after a
/// while, too. Until then, a holder that may have a majority is shown without a token.
pub(crate) async fn follow(client: &Client, name: &LockName) -> Result<(LockStatus, Change)> {
    let asking = Asking::begin(client, |node| node.backend.follow(name)).await?;
    let answers = asking.answers.into_iter().flatten().flatten();
    let (answers, changes): (Vec<LockStatus>, Vec<Change>) = answers.unzip();
    let is_complete = answers.len() == client.nodes.len();
    let happens = async move {
        let happening = changes
            .into_iter()
            .map(|mut change| Box::pin(async move { change.happened().await }));
        let reported = select_all(happening);
        match is_complete {
            true => _ = reported.await,
            false => _ = timeout(SUSPICION, reported).await,
        }
    };
    let status = combined(&answers, client.nodes.len()).unwrap_or_else(|perhaps| perhaps);
    Ok((status, Change::new(happens)))
}

/// The text that tells a holder from all others at all nodes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity<'a> {
    /// The mark of a quorum's hold.
    Hold(&'a str),
    /// No quorum's: the label, and which one it is of those with the same label at its node, by their tokens.
    Other(Option<&'a str>, usize),
}

/// The status that the answers of a majority give: the holder that a majority of all nodes names holds the lock.
///
/// # Errors
/// If no holder has a majority, and the nodes that have not answered may give it to one: the status with each that may have it.
fn combined(answers: &[LockStatus], nodes: usize) -> std::result::Result<LockStatus, LockStatus> {
    let mut at_nodes: BTreeMap<Identity<'_>, Vec<&HolderStatus>> = BTreeMap::new();
    for status in answers {
        for (identity, holder) in by_identity(status) {
            at_nodes.entry(identity).or_default().push(holder);
        }
    }
    let with_votes = |least: usize| -> Vec<HolderStatus> {
        let holders = at_nodes.iter().filter(|(_, votes)| votes.len() >= least);
        holders
            .map(|(identity, votes)| holder(identity, votes, nodes))
            .collect()
    };
    let needed = rules::majority(nodes);
    let mut holders = with_votes(needed);
    let mut is_known = true;
    if holders.is_empty() {
        holders = with_votes((needed + answers.len()).saturating_sub(nodes));
        is_known = holders.is_empty();
    }
    holders.sort_by_key(|holder| holder.token);
    let mut status = LockStatus::held_by(holders);
    // Whoever waits, waits at one node: the anchor as a rule.
    let longest = answers.iter().max_by_key(|answer| answer.waiting);
    status.waiting = longest.and_then(|answer| answer.waiting);
    let waiters = longest.and_then(|answer| answer.waiters.as_ref());
    status.waiters = waiters.map(|waiters| waiters.iter().map(waiter).collect());
    match is_known {
        true => Ok(status),
        false => Err(status),
    }
}

/// The waiter whose vote waits at a node: without its mark.
fn waiter(vote: &WaiterStatus) -> WaiterStatus {
    let mut waiter = vote.clone();
    waiter.label = vote.label.as_ref().and_then(|label| label::split(label).0);
    waiter
}

/// Each holder at a node. Of two votes for a hold, one that is given back is the shorter one.
fn by_identity(status: &LockStatus) -> BTreeMap<Identity<'_>, &HolderStatus> {
    let mut here: Vec<&HolderStatus> = status.holders.iter().collect();
    here.sort_by_key(|holder| (holder.token, holder.expires_in));
    let mut holders = BTreeMap::new();
    let mut others: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for holder in here {
        let mark = holder.label.as_ref().and_then(|label| label::split(label).1);
        let identity = match mark {
            Some(mark) => Identity::Hold(mark),
            None => {
                let label = holder.label.as_deref();
                let place = others.entry(label).or_default();
                *place += 1;
                Identity::Other(label, *place)
            }
        };
        holders.insert(identity, holder);
    }
    holders
}

/// The holder that has these votes.
fn holder(identity: &Identity<'_>, votes: &[&HolderStatus], nodes: usize) -> HolderStatus {
    let mut holder = HolderStatus::new();
    if let Identity::Hold(mark) = identity {
        holder = holder.with_id(*mark);
    }
    // Each node has a clock of its own: this is for people.
    holder.since = votes.iter().filter_map(|vote| vote.since).min();
    let label = votes.iter().find_map(|vote| vote.label.as_ref());
    if let Some(label) = label.and_then(|label| label::split(label).0) {
        holder = holder.with_label(label);
    }
    let mode = votes.iter().find_map(|vote| vote.mode);
    let tokens = votes.iter().filter_map(|vote| vote.token);
    let token = match mode {
        Some(mode) if mode != Mode::Exclusive => token_of_sharer(tokens, nodes),
        _ => token(tokens, nodes),
    };
    if let Some(token) = token {
        holder = holder.with_token(token);
    }
    let mut ends: Vec<_> = votes.iter().filter_map(|vote| vote.expires_in).collect();
    ends.sort_unstable_by(|one, other| other.cmp(one));
    if let Some(end) = ends.get(rules::majority(nodes) - 1) {
        holder = holder.with_expires_in(*end);
    }
    match mode {
        Some(mode) => holder.with_mode(mode),
        None => holder,
    }
}

/// Of a minority of tokens, or of two that differ, the hold's may be any in between.
fn token(votes: impl Iterator<Item = FencingToken>, nodes: usize) -> Option<FencingToken> {
    match rules::token(votes, nodes) {
        Token::Decided(token) => Some(token),
        Token::Raise(_) | Token::Undecided => None,
    }
}

/// The token that a majority shows. A node may show the token with which a sharer was admitted, though it was raised since: then the one
/// in the middle may be none of the hold's.
fn token_of_sharer(votes: impl Iterator<Item = FencingToken>, nodes: usize) -> Option<FencingToken> {
    let mut shown: BTreeMap<FencingToken, usize> = BTreeMap::new();
    for token in votes {
        *shown.entry(token).or_default() += 1;
    }
    let mut decided = shown.into_iter().filter(|(_, votes)| *votes >= rules::majority(nodes));
    decided.next().map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn combined(answers: &[LockStatus], nodes: usize) -> LockStatus {
        super::combined(answers, nodes).expect("it is known who has the lock")
    }

    /// The labels of those that may have the lock, if it is not known who has it.
    fn perhaps(answers: &[LockStatus], nodes: usize) -> Option<Vec<String>> {
        let status = super::combined(answers, nodes).err()?;
        let holders = status.holders.iter();
        let shown = holders.map(|holder| (holder.token, holder.expires_in, holder.label.as_deref()));
        let labels = shown.map(|shown| match shown {
            (None, None, Some(label)) => label.to_owned(),
            shown => panic!("nobody knows that: {shown:?}"),
        });
        Some(labels.collect())
    }

    fn held(label: &str, token: u64, seconds: u64) -> LockStatus {
        let token = FencingToken::new(token).unwrap();
        let rest = Duration::from_secs(seconds);
        let holder = HolderStatus::new()
            .with_label(label)
            .with_token(token)
            .with_expires_in(rest);
        LockStatus::held(holder).with_waiting(1)
    }

    #[test]
    fn a_holder_has_a_majority_the_middle_token_and_the_second_longest_rest() {
        let status = combined(&[held("a", 7, 20), held("a", 9, 15), held("a", 8, 10)], 3);
        let [holder] = status.holders.as_slice() else {
            panic!("{status:?}")
        };
        assert_eq!(holder.token, FencingToken::new(8));
        assert_eq!(holder.expires_in, Some(Duration::from_secs(15)));
        assert_eq!((holder.label.as_deref(), status.waiting), (Some("a"), Some(1)));
    }

    #[test]
    fn a_holder_has_its_mark_as_id_and_is_there_since_its_first_vote() {
        let since = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let vote = |seconds: Option<u64>| {
            let mut status = held("a #00000001", 7, 20);
            status.holders[0].since = seconds.map(since);
            status
        };
        let holder = combined(&[vote(Some(9)), vote(None), vote(Some(8))], 3)
            .holders
            .remove(0);
        assert_eq!((holder.id.as_deref(), holder.since), (Some("00000001"), Some(since(8))));
        // No quorum's.
        let holder = combined(&[held("a", 7, 20), held("a", 7, 20)], 3).holders.remove(0);
        assert_eq!((holder.id, holder.since), (None, None));
    }

    #[test]
    fn the_longest_queue_of_a_node_is_shown_without_marks() {
        let labelled = |label: &str| WaiterStatus::new().with_label(label);
        let queue = |labels: &[&str]| held("a", 7, 20).with_waiters(labels.iter().map(|label| labelled(label)));
        let status = combined(&[queue(&[]), queue(&["b #00000001", "c"]), queue(&["d"])], 3);
        assert_eq!(
            (status.waiting, status.waiters),
            (Some(2), Some(vec![labelled("b"), labelled("c")]))
        );
        // Its node knows only how many they are.
        let status = combined(&[held("a", 7, 20), held("a", 7, 20)], 3);
        assert_eq!((status.waiting, status.waiters), (Some(1), None));
    }

    /// Not every server shows the token of each holder.
    #[test]
    fn a_token_that_cannot_be_told_is_not_shown() {
        let mut silent = held("a", 8, 10);
        silent.holders[0].token = None;
        let token = |votes: &[LockStatus]| combined(votes, 3).holders[0].token;
        assert_eq!(token(&[held("a", 7, 20), held("a", 9, 15), silent.clone()]), None);
        assert_eq!(
            token(&[held("a", 8, 20), held("a", 8, 15), silent.clone()]),
            FencingToken::new(8)
        );
        assert_eq!(token(&[held("a", 8, 20), silent.clone(), silent]), None);
    }

    /// The nodes with 7 and 9 made it, which raised the 7. The third vote came later, with 8 or 3. A Redis shows a reader's own token even
    /// if it was raised.
    #[test]
    fn a_reader_s_token_is_shown_if_a_majority_shows_it() {
        let reader = |token| {
            let mut status = held("a", token, 10);
            status.holders[0].mode = Some(Mode::Shared);
            status
        };
        let token = |tokens: [u64; 3]| combined(&tokens.map(reader), 3).holders[0].token;
        assert_eq!((token([7, 9, 8]), token([7, 9, 3])), (None, None));
        assert_eq!(token([9, 9, 8]), FencingToken::new(9));
        assert_eq!(token([7, 9, 9]), FencingToken::new(9));
    }

    #[test]
    fn a_minority_holds_nothing() {
        let free = LockStatus::free().with_waiting(0);
        assert!(!combined(&[held("a", 7, 20), free.clone(), free.clone()], 3).is_held());
        assert!(!combined(&[held("a", 7, 20), held("b", 7, 20), free], 3).is_held());
    }

    /// A node has not answered.
    #[test]
    fn it_is_not_known_who_holds_what_another_vote_decides() {
        let (free, a) = (LockStatus::free(), held("a", 7, 20));
        let is = |labels: &[&str]| Some(labels.iter().map(|label| (*label).to_owned()).collect());
        assert_eq!(perhaps(&[a.clone(), free.clone()], 3), is(&["a"]));
        assert_eq!(perhaps(&[a.clone(), held("b", 7, 20)], 3), is(&["a", "b"]));
        assert!(combined(&[a.clone(), a.clone()], 3).is_held());
        assert!(!combined(&[free.clone(), free.clone()], 3).is_held());
        let one = [a.clone(), free.clone(), free.clone(), free.clone()];
        assert!(!combined(&one, 5).is_held());
        let two = [a.clone(), a.clone(), held("b", 7, 20), free];
        assert_eq!(perhaps(&two, 5), is(&["a"]), "b cannot have three");
        // A second reader, of which too little is seen, does not hide the first one.
        let both = LockStatus::held_by([held("a", 7, 20), held("b", 7, 20)].map(|mut status| status.holders.remove(0)));
        assert_eq!(combined(&[a, both], 3).holders.len(), 1);
    }

    /// Each of two readers with the same label has two nodes, and one node has both.
    #[test]
    fn holds_with_the_same_label_are_told_apart() {
        let [one, other] = ["a #00000001", "a #00000002"];
        let both = LockStatus::held_by([held(one, 1, 9), held(other, 6, 8)].map(|mut status| status.holders.remove(0)));
        let status = combined(&[held(one, 4, 9), both, held(other, 7, 8)], 3);
        let shown = |holder: &HolderStatus| (holder.label.as_deref().map(str::to_owned), holder.expires_in);
        let a = |seconds| (Some("a".to_owned()), Some(Duration::from_secs(seconds)));
        assert_eq!(status.holders.iter().map(shown).collect::<Vec<_>>(), [a(9), a(8)]);
        // Neither of them has a majority.
        assert!(!combined(&[held(one, 4, 9), held(other, 7, 8), LockStatus::free()], 3).is_held());
        // Nor has one that votes twice at one node.
        let twice = LockStatus::held_by([1, 2].map(|token| held(one, token, 9).holders.remove(0)));
        assert!(!combined(&[twice, LockStatus::free(), LockStatus::free()], 3).is_held());
    }

    #[test]
    fn each_reader_is_shown() {
        let reader = |token| held("a", token, 10).holders.remove(0);
        let both = LockStatus::held_by([reader(1), reader(2)]);
        assert_eq!(combined(&[both.clone(), both], 3).holders.len(), 2);
    }
}
