use std::time::Duration;

use lock_core::backend::Busy;
use lock_core::{Error, ErrorKind, FencingToken, LockName};

use super::*;
use crate::protocol::{Ask, Changed, Known, News, Order, Seen, Sound, VoteId};

mod ends;
mod looks;
mod outages;
mod tokens;
mod yields;

const TTL: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_millis(500);

/// Drives an acquire of three nodes, asked in their order, by hand.
struct Client {
    acquire: Acquire<Sound>,
    known: Known,
    now: Instant,
    left: [Duration; 3],
    is_given_up: bool,
    reported: Option<Busy>,
    votes: [Option<VoteId>; 3],
}

impl Client {
    fn new(waits: bool) -> Self {
        Self::wants(Wanted {
            waits,
            ..Self::wanted()
        })
    }

    fn wanted() -> Wanted {
        Wanted {
            name: name(),
            order: vec![0, 1, 2],
            waits: true,
            is_fixed: false,
            patience: PATIENCE,
            has_session: vec![false; 3],
        }
    }

    fn wants(wanted: Wanted) -> Self {
        Self {
            acquire: Acquire::new(wanted, Sound),
            known: Known::new(3),
            now: Instant::now(),
            left: [Duration::ZERO; 3],
            is_given_up: false,
            reported: None,
            votes: [None; 3],
        }
    }

    /// One that waits in the queue of the first node.
    fn waiting() -> Self {
        let mut client = Self::new(true);
        client.step();
        client.hears(0, News::Queued(busy("somebody")));
        client.step();
        client
    }

    /// Decides, and returns what is to be sent.
    fn step(&mut self) -> (Vec<Command>, Step) {
        let mut situation = Situation {
            now: self.now,
            known: &mut self.known,
            ttl: TTL,
            left: &self.left,
            time_left: None,
            is_given_up: self.is_given_up,
            reported: self.reported.take(),
            random: 0.5,
        };
        let step = self.acquire.step(&mut situation);
        self.reported = situation.reported;
        let commands: Vec<Command> = std::iter::from_fn(|| self.acquire.next_command()).collect();
        for command in &commands {
            if let Command::Vote(vote, Order::Ask { node, .. }) = command {
                self.votes[*node] = Some(*vote);
            }
        }
        (commands, step)
    }

    fn hears(&mut self, node: usize, news: News) {
        let vote = self.votes[node].expect("the node was asked");
        self.acquire.handle(Event::Vote(vote, news));
    }

    fn is_granted(&mut self, node: usize, number: u64) {
        self.left[node] = TTL;
        self.hears(node, News::Granted(token(number)));
    }

    fn is_busy(&mut self, node: usize) {
        self.hears(node, News::Busy(busy("somebody")));
    }

    fn passes(&mut self, time: Duration) {
        self.now += time;
    }
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn busy(holder: &str) -> Busy {
    Busy::new().with_holder(holder)
}

fn unavailable() -> News {
    News::Failed {
        error: Error::new(ErrorKind::Unavailable, "no connection"),
        is_gone: true,
    }
}

fn unreachable() -> News {
    News::Unreachable(Error::new(ErrorKind::Unavailable, "no connection"))
}

/// The nodes that are asked for a vote, and how.
fn asked(commands: &[Command]) -> Vec<(usize, Ask)> {
    let asked = commands.iter().filter_map(|command| match command {
        Command::Vote(_, Order::Ask { node, ask, .. }) => Some((*node, *ask)),
        _ => None,
    });
    asked.collect()
}

/// The votes that are given back.
fn given_back(commands: &[Command]) -> Vec<VoteId> {
    let given_back = commands.iter().filter_map(|command| match command {
        Command::Vote(vote, Order::GiveBack) => Some(*vote),
        _ => None,
    });
    given_back.collect()
}

/// The nodes whose votes are changed, the tokens to which they are raised, and whether they are renewed.
fn changed(client: &Client, commands: &[Command]) -> Vec<(usize, Option<FencingToken>, bool)> {
    let changed = commands.iter().filter_map(|command| match command {
        Command::Vote(vote, Order::Change { raise, renew }) => {
            let node = client.votes.iter().position(|asked| asked == &Some(*vote));
            Some((node.expect("a vote that counts"), *raise, *renew))
        }
        _ => None,
    });
    changed.collect()
}

fn reports(commands: &[Command]) -> Vec<Busy> {
    let reports = commands.iter().filter_map(|command| match command {
        Command::ReportBusy(busy) => Some(busy.clone()),
        _ => None,
    });
    reports.collect()
}

/// When the driver is to look again.
fn waits_until(step: &Step) -> Option<Instant> {
    match step {
        Step::Wait(until) => Some(*until),
        Step::Done(_) => None,
    }
}

fn refused(step: &Step) -> Option<&Busy> {
    match step {
        Step::Done(Outcome::Busy(busy)) => Some(busy),
        _ => None,
    }
}

/// Whether the time was over before a majority had answered, and the nodes that failed.
fn failed(step: &Step) -> Option<(bool, Vec<usize>)> {
    match step {
        Step::Done(Outcome::Failed(failure)) => {
            let nodes = failure.nodes.iter().map(|(node, _)| *node).collect();
            Some((failure.is_given_up, nodes))
        }
        _ => None,
    }
}

fn granted(step: &Step) -> Option<FencingToken> {
    match step {
        Step::Done(Outcome::Granted(token)) => Some(*token),
        _ => None,
    }
}

#[test]
fn the_pause_doubles_up_to_a_quarter_of_a_second() {
    assert_eq!(pause(1, 1.0), Duration::from_micros(2_500));
    assert_eq!(pause(1, 0.0), Duration::from_micros(500));
    assert_eq!(pause(99, 1.0), Duration::from_micros(256_500));
}

#[test]
fn all_nodes_are_asked_at_once_and_the_median_is_the_token() {
    let mut client = Client::new(true);
    let (commands, _) = client.step();
    assert_eq!(asked(&commands), [(0, Ask::Forever), (1, Ask::Once), (2, Ask::Once)]);
    for (node, token) in [(0, 9), (1, 7), (2, 8)] {
        client.is_granted(node, token);
    }
    assert_eq!(granted(&client.step().1), Some(token(8)));
}

#[test]
fn a_lower_vote_is_raised_when_the_third_does_not_answer() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    let (commands, step) = client.step();
    assert!(
        commands.is_empty() && matches!(step, Step::Wait(_)),
        "the third may decide it"
    );
    client.passes(Duration::from_millis(2));
    let (commands, _) = client.step();
    let [Command::Vote(vote, Order::Change { raise, renew: false })] = commands[..] else {
        panic!("{commands:?}")
    };
    assert_eq!((Some(vote), raise), (client.votes[1], Some(token(9))));
    client.hears(1, News::Changed(Ok(Changed::Raised(token(9)))));
    assert_eq!(granted(&client.step().1), Some(token(9)));
}

/// The node may store the larger token by now, and a status would show it.
#[test]
fn a_raise_that_was_sent_counts_although_an_answer_decides_a_lower_token() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    client.step();
    client.passes(Duration::from_millis(2));
    client.step();
    client.is_granted(2, 8);
    assert_eq!(
        granted(&client.step().1),
        None,
        "the median is 8, and node 2 may store 9"
    );
    client.hears(1, News::Changed(Ok(Changed::Raised(token(9)))));
    // The vote of the third is raised as well, or the first two decide.
    assert_eq!(granted(&client.step().1), Some(token(9)));
}

#[test]
fn whoever_is_refused_by_the_anchor_gives_back_and_waits_there() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(1, 7);
    client.hears(0, News::Queued(busy("somebody")));
    let (commands, step) = client.step();
    assert_eq!(
        given_back(&commands),
        client.votes[1..].iter().flatten().copied().collect::<Vec<_>>()
    );
    assert!(commands.iter().any(|command| matches!(command, Command::ReportBusy(_))));
    assert!(matches!(step, Step::Wait(_)));
    // The anchor votes: the others are asked, which their holders give back soon.
    client.left[1] = Duration::ZERO;
    client.is_granted(0, 8);
    let (commands, _) = client.step();
    let asked = asked(&commands);
    assert!(
        matches!(asked[..], [(1, Ask::Within(_)), (2, Ask::Within(_))]),
        "{asked:?}"
    );
}

#[test]
fn a_try_is_refused_by_the_anchor_and_not_by_a_minority() {
    let mut client = Client::new(false);
    client.step();
    client.hears(2, News::Busy(busy("somebody")));
    assert!(matches!(client.step().1, Step::Wait(_)));
    client.hears(0, News::Busy(busy("somebody")));
    let (_, step) = client.step();
    assert!(
        matches!(&step, Step::Done(Outcome::Busy(found)) if *found == busy("somebody")),
        "{step:?}"
    );
}

#[test]
fn an_answer_counts_for_its_own_vote_alone() {
    let mut client = Client::new(true);
    client.step();
    let before = client.votes;
    client.is_granted(1, 7);
    client.hears(0, News::Queued(busy("somebody")));
    client.step();
    client.left[1] = Duration::ZERO;
    client.is_granted(0, 8);
    client.step();
    assert_ne!(before[1], client.votes[1]);
    // The vote that was given back is granted late.
    client.left[1] = TTL;
    client
        .acquire
        .handle(Event::Vote(before[1].unwrap(), News::Granted(token(9))));
    assert_eq!(granted(&client.step().1), None);
}

#[test]
fn an_expired_vote_gives_neither_belief_nor_token() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    client.left[0] = Duration::ZERO;
    let (_, step) = client.step();
    assert_eq!(granted(&step), None);
}

#[test]
fn who_gives_up_while_the_name_is_taken_hears_that() {
    let mut client = Client::waiting();
    client.is_given_up = true;
    let (commands, step) = client.step();
    assert!(
        matches!(commands[..], [Command::Vote(_, Order::GiveUp)]),
        "{commands:?}"
    );
    assert!(matches!(step, Step::Wait(_)), "for what becomes of the request");
    client.hears(0, News::Busy(Busy::new()));
    let (_, step) = client.step();
    assert!(
        matches!(&step, Step::Done(Outcome::Busy(found)) if *found == busy("somebody")),
        "{step:?}"
    );
}

#[test]
fn a_waiter_passes_an_anchor_by_whose_holder_has_no_majority() {
    let mut client = Client::waiting();
    for _ in 0..2 {
        client.passes(PATIENCE);
        let (commands, _) = client.step();
        let look = commands.iter().find_map(|command| match command {
            Command::Look { look, .. } => Some(*look),
            _ => None,
        });
        let seen = [vec!["somebody".into()], Vec::new(), Vec::new()].map(Seen::Holders);
        client
            .acquire
            .handle(Event::Looked(look.expect("it is time to look"), seen.into()));
        client.step();
    }
    let passed_by = [0, 1].map(|node| client.known.is_passed_by(&name(), node, client.now));
    assert_eq!(passed_by, [true, false]);
}

/// Asked once more, the vote of a request whose time is up would be refused at once, again and again.
#[test]
fn a_request_that_waited_for_a_while_is_asked_anew_when_its_node_decides() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(0, 8);
    for node in [1, 2] {
        client.hears(node, News::Busy(busy("somebody")));
    }
    let (commands, _) = client.step();
    assert!(
        matches!(asked(&commands)[..], [(1, Ask::Within(_)), (2, Ask::Within(_))]),
        "{commands:?}"
    );
    client.hears(1, News::Busy(busy("somebody")));
    client.left[0] = Duration::ZERO;
    assert_eq!(asked(&client.step().0), [(1, Ask::Forever)]);
}
