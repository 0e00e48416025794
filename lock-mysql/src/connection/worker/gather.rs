//! Small jobs of many callers in one text, so that a round trip serves all who wait for one.

use std::collections::HashSet;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use lock_core::backend::{HolderId, SentAt};
use tokio::time::Instant;

use super::super::driver::{execute, execute_into};
use super::{Exit, Phase, Reply, Worker};
use crate::error::SqlError;
use crate::protocol::{HoldRenewal, Job, JobDone, RenewalStatements, StatementResult};

/// The most jobs in one text, so that it stays far below any server's `max_allowed_packet`.
const MOST_JOBS: usize = 250;
/// The most commits in one text: they are answered together.
const MOST_PARTS: usize = 64;

pub(in super::super) struct Gathered {
    pub(in super::super) job: Job,
    pub(in super::super) reply: Reply<JobDone>,
}

/// Around the statements of a transaction. The server's `completion_type` does not begin another one after it.
const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Some statements of a text, and whom they serve.
struct Part {
    statements: Vec<String>,
    is_transaction: bool,
    serves: Serves,
}

enum Serves {
    One(Reply<JobDone>),
    /// Renewals of one TTL and one kind.
    Renewals(Vec<Renewal>),
}

/// A renewal that somebody waits for. Several may be of one hold: on a slow line, core renews one again that waits for an answer.
struct Renewal {
    statements: Arc<dyn RenewalStatements>,
    hold: HoldRenewal,
    reply: Reply<JobDone>,
}

impl Worker {
    /// Runs the jobs in as few texts as can be. A connection that has nothing more to do counts as idle.
    pub(super) async fn gather(&mut self, mut jobs: Vec<Gathered>) -> ControlFlow<Exit> {
        self.phase = Phase::InUse;
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(MOST_JOBS));
            jobs.retain(|job| !job.reply.is_closed());
            self.run_parts(parts(jobs)).await?;
            jobs = rest;
        }
        self.phase = Phase::Idle {
            since: Instant::now(),
            // The server keeps it for longer than that from the last statement on.
            extended: true,
        };
        Continue(())
    }

    /// Runs the parts, and those behind one that the server refused once more. Renewals run one by one if only some of them
    /// were made, or if the server refused them together.
    async fn run_parts(&mut self, mut parts: Vec<Part>) -> ControlFlow<Exit> {
        while !parts.is_empty() {
            let later = parts.split_off(parts.len().min(MOST_PARTS));
            let statements = parts.iter().flat_map(|part| part.statements.iter().map(String::as_str));
            let text = statements.collect::<Vec<_>>().join(";");
            let (sent, mut results) = (SentAt::now(), Vec::new());
            let executed = execute_into(&mut self.connection, text, None, &mut results).await;
            if executed.as_ref().err().is_none_or(|error| error.code().is_some()) {
                self.last_answer.note();
            }
            let (mut rest, mut results, mut again) = (parts.into_iter(), results.into_iter(), Vec::new());
            for part in rest.by_ref() {
                let results: Vec<_> = results.by_ref().take(part.statements.len()).collect();
                if results.len() == part.statements.len() {
                    again.append(&mut part.answer(sent, results));
                    continue;
                }
                let error = executed.err().unwrap_or(SqlError::UnexpectedAnswer("answer"));
                // Interrupted, a statement was rolled back, and the connection serves on. One that ends takes its
                // transaction along.
                let serves_on = error.is_refusal() || error.is_interrupted();
                let goes_on = serves_on && self.roll_back(&part).await;
                match part.serves {
                    // One of them may be the reason.
                    Serves::Renewals(renewals) if goes_on && holds(&renewals).len() > 1 => {
                        again.append(&mut one_by_one(renewals));
                    }
                    serves => serves.fail(error),
                }
                if !goes_on {
                    // The others learn that the connection has ended.
                    return Break(Exit::Disconnected);
                }
                break;
            }
            parts = rest.chain(again).chain(later).collect();
        }
        Continue(())
    }

    /// Ends the transaction that a refused statement has left open, with its row locks, before anything else runs in it.
    /// Returns whether that worked.
    async fn roll_back(&mut self, part: &Part) -> bool {
        !part.is_transaction || execute(&mut self.connection, ROLLBACK.to_owned()).await.is_ok()
    }
}

impl Renewal {
    /// True if one statement can renew both.
    fn goes_with(&self, other: &Self) -> bool {
        let kind = |renewal: &Self| (renewal.hold.ttl, renewal.hold.is_shared);
        !self.hold.is_alone && !other.hold.is_alone && kind(self) == kind(other)
    }

    fn answer(self, sent: SentAt, is_renewed: bool) {
        let result = StatementResult {
            matched: u64::from(is_renewed),
            ..StatementResult::default()
        };
        drop(self.reply.send(Ok(JobDone { sent, result })));
    }
}

impl Part {
    fn one(statements: Vec<String>, is_transaction: bool, reply: Reply<JobDone>) -> Self {
        Self {
            statements,
            is_transaction,
            serves: Serves::One(reply),
        }
    }

    /// Renewals that go together. A hold by itself has a transaction, which fails if somebody has locked its row.
    fn renewals(renewals: Vec<Renewal>) -> Self {
        let (statements, is_transaction) = match (renewals.first(), &*holds(&renewals)) {
            (Some(first), [one]) => (transaction(first.statements.alone(one)), true),
            (Some(first), holds) => (first.statements.together(first.hold.ttl, holds), false),
            (None, _) => (Vec::new(), false),
        };
        Self {
            statements,
            is_transaction,
            serves: Serves::Renewals(renewals),
        }
    }

    /// Answers all whom it serves, but for renewals together of which it is not known that they were made: returns these, to be
    /// made one by one.
    fn answer(self, sent: SentAt, mut results: Vec<StatementResult>) -> Vec<Self> {
        if self.is_transaction {
            // Of its commit.
            results.pop();
        }
        let result = results.pop().unwrap_or_default();
        let renewals = match self.serves {
            Serves::One(reply) => {
                drop(reply.send(Ok(JobDone { sent, result })));
                return Vec::new();
            }
            Serves::Renewals(renewals) => renewals,
        };
        let Some(first) = renewals.first() else {
            return Vec::new();
        };
        let holds = holds(&renewals);
        let renewed = match first.statements.renewed(&holds, &result) {
            Ok(renewed) => renewed,
            Err(error) => {
                Serves::Renewals(renewals).fail(error);
                return Vec::new();
            }
        };
        let renewed = holds.iter().zip(renewed).filter(|(_, renewed)| *renewed);
        let renewed: HashSet<HolderId> = renewed.map(|(hold, _)| hold.holder).collect();
        let (made, missing): (Vec<_>, Vec<_>) = renewals
            .into_iter()
            .partition(|renewal| renewed.contains(&renewal.hold.holder));
        made.into_iter().for_each(|renewal| renewal.answer(sent, true));
        if holds.len() > 1 {
            return one_by_one(missing);
        }
        missing.into_iter().for_each(|renewal| renewal.answer(sent, false));
        Vec::new()
    }
}

impl Serves {
    fn fail(self, error: SqlError) {
        match self {
            Self::One(reply) => drop(reply.send(Err(error))),
            Self::Renewals(renewals) => {
                for renewal in renewals {
                    drop(renewal.reply.send(Err(error.for_another())));
                }
            }
        }
    }
}

/// Each hold once.
fn holds(renewals: &[Renewal]) -> Vec<HoldRenewal> {
    let mut seen = HashSet::new();
    let holds = renewals.iter().map(|renewal| &renewal.hold);
    holds.filter(|hold| seen.insert(hold.holder)).cloned().collect()
}

/// The texts of a transaction.
fn transaction(statements: Vec<String>) -> Vec<String> {
    let mut all = vec![BEGIN.to_owned()];
    all.extend(statements);
    all.push(COMMIT.to_owned());
    all
}

/// A part for each hold.
fn one_by_one(renewals: Vec<Renewal>) -> Vec<Part> {
    parts_of(renewals, |one, another| one.hold.holder == another.hold.holder)
}

/// A part for each group of renewals that belong together.
fn parts_of(renewals: Vec<Renewal>, belong_together: impl Fn(&Renewal, &Renewal) -> bool) -> Vec<Part> {
    let mut groups: Vec<Vec<Renewal>> = Vec::new();
    for renewal in renewals {
        let is_its = |group: &&mut Vec<Renewal>| group.first().is_some_and(|first| belong_together(first, &renewal));
        match groups.iter_mut().find(is_its) {
            Some(group) => group.push(renewal),
            None => groups.push(vec![renewal]),
        }
    }
    groups.into_iter().map(Part::renewals).collect()
}

/// As few parts for the renewals as can be, which come first, and one for each statement or transaction.
fn parts(jobs: Vec<Gathered>) -> Vec<Part> {
    let (mut renewals, mut others) = (Vec::new(), Vec::new());
    for Gathered { job, reply } in jobs {
        match job {
            Job::Statement(sql) => others.push(Part::one(vec![sql], false, reply)),
            Job::Transaction(statements) => others.push(Part::one(transaction(statements), true, reply)),
            Job::Renew(statements, hold) => renewals.push(Renewal {
                statements,
                hold,
                reply,
            }),
        }
    }
    let mut parts = parts_of(renewals, Renewal::goes_with);
    parts.append(&mut others);
    parts
}
