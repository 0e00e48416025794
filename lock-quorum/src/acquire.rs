//! One acquire, from the first request to the grant: it asks the nodes, and waits at the anchor while the name is taken.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Mode, Renewal};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::Client;
use crate::error::NodeErrors;
use crate::hold::QuorumHold;
use crate::renew;
use crate::round::Round;
use crate::rules::{self, Answer, Outcome, Token};
use crate::votes::Votes;
use crate::{clean_up, follow};

/// Asks until the name is granted, or it is known that it is not.
pub(crate) async fn acquire(client: &Arc<Client>, request: &AcquireRequest) -> Result<Attempt> {
    check_mode(request.mode())?;
    clean_up::go_on(client);
    if request.is_given_up() && client.known_votes_of(request).is_none() {
        return Err(given_up().not_executed());
    }
    let acquiring = client.begin_acquire(request);
    let votes = &acquiring.votes;
    let attempt = match votes.token() {
        Some(token) => again(client, votes, token).await,
        None => ask(client, votes, request).await,
    };
    if votes.was_sent() {
        // Unless nothing ever was, core abandons the request, and so do we.
        let _sent = request.sending();
    }
    attempt
}

/// How an attempt at the name ended.
enum Ended {
    Attempt(Attempt),
    /// Too many others were at the same name: everybody gives all back and asks again, at another time.
    Collided,
    /// So many nodes are silent that no majority is left, while another one's vote is here: others may have use for it. All votes
    /// are given back.
    Silent(Error),
}

async fn ask(client: &Arc<Client>, votes: &Arc<Votes>, request: &AcquireRequest) -> Result<Attempt> {
    let (mut collisions, mut silences) = (0, 0);
    let mut silent: Option<Error> = None;
    let limit = Limit::of(request);
    loop {
        if limit.is_over() {
            return match (silent, request.last_busy().filter(|_| collisions > 0)) {
                (Some(error), _) => Err(error),
                (None, Some(busy)) => Ok(Attempt::Busy(busy)),
                (None, None) => Err(given_up()),
            };
        }
        match run(Round::new(client, votes, request, silences), &limit).await {
            Ok(Ended::Attempt(attempt)) => return Ok(attempt),
            Ok(Ended::Collided) => silent = None,
            Ok(Ended::Silent(error)) => {
                silent = Some(error);
                silences += 1;
            }
            // It says more: the last attempt may have ended at once.
            Err(error) => return Err(silent.filter(|_| limit.is_over()).unwrap_or(error)),
        }
        collisions += 1;
        tokio::select! {
            () = sleep(pause(collisions, rand::random())) => {}
            () = limit.over() => {}
        }
    }
}

/// How long a request may take: until it is given up, and if it does not wait, a TTL at most. After that it can win nothing.
struct Limit<'a> {
    request: &'a AcquireRequest,
    until: Option<Instant>,
}

impl<'a> Limit<'a> {
    fn of(request: &'a AcquireRequest) -> Self {
        let ttl = request.ttl();
        let until = match request.waits() {
            true => None,
            false => Instant::now().checked_add(ttl),
        };
        Self { request, until }
    }

    fn is_over(&self) -> bool {
        self.request.is_given_up() || self.until.is_some_and(|until| Instant::now() >= until)
    }

    async fn over(&self) {
        let until = async {
            match self.until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.request.given_up() => {}
            () = until => {}
        }
    }
}

/// The pause after so many collisions: `random`, from 0 to 1, of a time that doubles up to 256 ms.
fn pause(collisions: u32, random: f64) -> Duration {
    let longest = Duration::from_millis(1 << collisions.min(8));
    longest.mul_f64(random) + Duration::from_micros(500)
}

/// Everybody who was granted may ask again, and is granted the same.
async fn again(client: &Arc<Client>, votes: &Arc<Votes>, token: FencingToken) -> Result<Attempt> {
    match renew::renew(client, votes, votes.request.ttl()).await? {
        Renewal::Renewed(armed) => {
            let hold = QuorumHold::new(client, votes, token);
            Ok(Attempt::Granted(Arc::new(hold), armed))
        }
        _ => Err(Error::new(
            ErrorKind::Lost,
            "the hold was lost before it was asked for again",
        )),
    }
}

async fn run(mut round: Round<'_>, limit: &Limit<'_>) -> Result<Ended> {
    round.begin();
    loop {
        let request = round.request.clone();
        let anchor = round.waiting_request();
        // They hear of each change from here on.
        let changed = request.changed();
        let noted = anchor.as_ref().map(AcquireRequest::changed);
        let noted = async {
            match noted {
                Some(noted) => noted.await,
                None => std::future::pending().await,
            }
        };
        if round.votes.has_ended() {
            return Err(Error::new(ErrorKind::Unexpected, "this request was abandoned"));
        }
        if limit.is_over() {
            round.give_up().await;
            return round.given_up();
        }
        let decision = match decide(&mut round) {
            Err(_) if round.is_unavailable() => {
                // What the other nodes make of it says whether anything was sent.
                round.give_up().await;
                return Err(round.unavailable());
            }
            decision => decision?,
        };
        match decision {
            Decision::Grant(token) => return grant(round, token),
            Decision::Ended(ended) => return Ok(ended),
            Decision::AskedMore => continue,
            Decision::Wait(until) => {
                // Nothing tells that a suspicion has ended, and with it another node may be the anchor.
                let latest = Instant::now() + request.ttl() / 3;
                let until = until.map_or(latest, |until| until.min(latest));
                let votes = round.votes.clone();
                tokio::select! {
                    biased;
                    () = round.next_answer() => {}
                    () = noted => {}
                    () = changed => {}
                    () = limit.over() => {}
                    () = votes.ended() => {}
                    () = sleep_until(until) => {}
                }
            }
        }
    }
}

enum Decision {
    Grant(FencingToken),
    Ended(Ended),
    /// A node was asked: its answer may be there.
    AskedMore,
    /// For the next answer, until then at the latest.
    Wait(Option<Instant>),
}

fn decide(round: &mut Round<'_>) -> Result<Decision> {
    round.look();
    if round.ask_after_suspected() {
        return Ok(Decision::AskedMore);
    }
    let anchor = round.anchor();
    let answers = round.answers();
    let nodes = answers.len();
    if let Some(token) = round.token() {
        return Ok(token_decision(round, token));
    }
    if round.waits() && answers[anchor] == Answer::Busy {
        return Ok(wait_at(round, anchor));
    }
    if round.has_new_anchor(anchor) {
        round.give_back_all_but(anchor);
        round.ask_anchor_again(anchor);
        return Ok(Decision::AskedMore);
    }
    if answers[anchor] == Answer::Granted {
        round.go_on_from_anchor();
        let busy: Vec<usize> = (0..nodes).filter(|node| round.may_yield(*node)).collect();
        if !busy.is_empty() {
            round.ask_others(&busy);
            return Ok(Decision::AskedMore);
        }
    }
    match rules::outcome(&answers, anchor, round.asked_again()) {
        Outcome::Busy if round.waits() => {
            round.note_taken();
            round.report_busy(anchor);
            round.pass_anchor_by(anchor);
            Ok(Decision::Ended(Ended::Collided))
        }
        Outcome::Busy => Ok(Decision::Ended(Ended::Attempt(Attempt::Busy(round.busy(anchor))))),
        Outcome::Unavailable if round.is_unavailable() => Err(round.unavailable()),
        Outcome::Unavailable if round.has_votes_in_vain() => Ok(Decision::Ended(Ended::Silent(round.unavailable()))),
        _ if round.ask_spare_nodes() => Ok(Decision::AskedMore),
        _ => {
            if round.is_taken() {
                round.report_busy(anchor);
            }
            Ok(Decision::Wait(round.next_look()))
        }
    }
}

/// A majority has voted.
fn token_decision(round: &mut Round<'_>, token: Token) -> Decision {
    match token {
        Token::Decided(token) => match round.raises_above(token) {
            Some(higher) => {
                round.raise(higher);
                Decision::Wait(round.next_look())
            }
            None if round.renew_short_votes() => Decision::Wait(round.next_look()),
            None => Decision::Grant(token),
        },
        Token::Raise(token) => match round.stragglers() {
            // An answer that is on its way may decide it.
            Some(until) => Decision::Wait(Some(until)),
            None => {
                round.raise(token);
                Decision::Wait(round.next_look())
            }
        },
        Token::Undecided => Decision::Wait(round.next_look()),
    }
}

/// The anchor says that the name is taken. The other nodes are given back, and the request waits in its queue.
fn wait_at(round: &mut Round<'_>, anchor: usize) -> Decision {
    round.note_taken();
    round.give_back_all_but(anchor);
    round.report_busy(anchor);
    round.look_around(anchor);
    if round.is_waiting_at(anchor) {
        round.pass_terms_on(anchor);
        return Decision::Wait(round.next_look());
    }
    match round.ask_anchor_again(anchor) {
        None => Decision::AskedMore,
        Some(later) => Decision::Wait(round.next_look().map_or(Some(later), |look| Some(look.min(later)))),
    }
}

fn grant(round: Round<'_>, token: FencingToken) -> Result<Ended> {
    let (client, votes) = (round.client.clone(), round.votes.clone());
    let armed = round.becomes_hold(token)?;
    let hold = QuorumHold::new(&client, &votes, token);
    follow::follow(&client, &votes);
    Ok(Ended::Attempt(Attempt::Granted(Arc::new(hold), armed)))
}

impl Round<'_> {
    /// The result of a request that was given up: busy if that was the last word.
    fn given_up(&self) -> Result<Ended> {
        match self.last_busy.clone() {
            Some(busy) if self.waits() => Ok(Ended::Attempt(Attempt::Busy(busy))),
            _ => {
                let error = self.errors().into_error(GIVEN_UP);
                Err(match self.may_be_sent() {
                    true => error,
                    false => error.not_executed(),
                })
            }
        }
    }
}

const GIVEN_UP: &str = "given up before a majority of the nodes had answered";

fn given_up() -> Error {
    NodeErrors::default().into_error(GIVEN_UP)
}

/// Permits that several holders share cannot be counted by majorities.
fn check_mode(mode: Mode) -> Result<()> {
    let message = match mode {
        Mode::Permits(permits) if permits.of() > 1 => {
            "a quorum keeps no semaphore above 1: each node counts the permits that it gave, and no node counts all; use one server"
        }
        Mode::Upgradable => "a quorum has no upgradable holds: acquire the write side at once, or use one server",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Unsupported, message).not_executed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_quarter_of_a_second() {
        assert_eq!(pause(1, 1.0), Duration::from_micros(2_500));
        assert_eq!(pause(1, 0.0), Duration::from_micros(500));
        assert_eq!(pause(99, 1.0), Duration::from_micros(256_500));
    }
}
