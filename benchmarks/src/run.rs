//! Rounds: in each, all subjects of a workload play one after the other, so that a slow moment of the machine strikes
//! all of them.

use std::time::Duration;

use benchmarks_load::{Figures, Result, Unit};
use tokio::time::timeout;

use crate::benchmark::Benchmark;
use crate::entry::Entry;
use crate::machine;
use crate::results::{LeftOut, Results, Row};
use crate::workload::{self, Workload};

/// How much is played.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The rounds that count.
    pub(crate) rounds: usize,
    /// Of a plain round.
    pub(crate) time: Duration,
    /// The names of the workloads, or what is in them. All, where there is none.
    pub(crate) only: Vec<String>,
    pub(crate) subject: Option<String>,
}

impl Plan {
    fn workloads(&self) -> Result<Vec<Workload>> {
        if self.only.is_empty() {
            return Ok(workload::all());
        }
        let mut wanted = Vec::new();
        for word in &self.only {
            wanted.extend(called(word)?);
        }
        Ok(workload::all()
            .into_iter()
            .filter(|known| wanted.contains(known))
            .collect())
    }
}

/// The workload of this name; where there is none, all that have it in their names.
fn called(word: &str) -> Result<Vec<Workload>> {
    let all = || workload::all().into_iter();
    let mut found: Vec<Workload> = all().filter(|workload| workload.to_string() == word).collect();
    if found.is_empty() {
        found = all().filter(|workload| workload.to_string().contains(word)).collect();
    }
    if found.is_empty() {
        return Err(format!("no workload has {word:?} in its name").into());
    }
    Ok(found)
}

/// Runs everything that is wanted.
pub(crate) async fn run(benchmark: &Benchmark, plan: &Plan) -> Result<Results> {
    let load_before = machine::load();
    let mut results = Results {
        backend: benchmark.backend().name().into(),
        command: machine::command(),
        date: machine::date(),
        took: Duration::ZERO,
        // Asked for now: a server that is busy with what nobody waits for any more may refuse to answer at the end.
        versions: benchmark.versions().await?,
        rows: Vec::new(),
        left_out: Vec::new(),
    };
    for workload in plan.workloads()? {
        let mut entries = benchmark.entries(workload).await;
        if let Some(subject) = &plan.subject {
            entries.retain(|entry| entry.subject == *subject);
        }
        if !entries.is_empty() {
            eprintln!("{} {workload} ...", results.backend);
            play(workload, entries, plan, &mut results).await;
        }
    }
    results.versions.extend(machine::versions());
    results.versions.push((
        "load".into(),
        format!("{load_before} before, {} after", machine::load()),
    ));
    Ok(results)
}

async fn play(workload: Workload, entries: Vec<Entry>, plan: &Plan, results: &mut Results) {
    let first_row = results.rows.len();
    let order: Vec<String> = entries.iter().map(|entry| entry.subject.clone()).collect();
    let mut rounds = Rounds {
        workload,
        playing: Vec::new(),
        results,
    };
    for mut entry in entries {
        let entered = match &mut entry.participant {
            Ok(participant) => participant.enter().await.map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        match entered {
            Ok(()) => rounds.playing.push(entry),
            Err(why) => rounds.leave_out(&entry, why, !entry.is_optional),
        }
    }
    // The first warms up.
    for round in 0..=plan.rounds {
        rounds.play(workload.time(plan.time), round).await;
    }
    for entry in &mut rounds.playing {
        if let Ok(participant) = &mut entry.participant {
            participant.leave().await;
        }
    }
    // They came as the rounds did.
    results.rows[first_row..].sort_by_key(|row| order.iter().position(|subject| *subject == row.subject));
}

struct Rounds<'a> {
    workload: Workload,
    playing: Vec<Entry>,
    results: &'a mut Results,
}

impl Rounds<'_> {
    /// One round; who fails is out.
    async fn play(&mut self, time: Duration, round: usize) {
        let mut turn = 0;
        // Each round begins with another one.
        let first = round % self.playing.len().max(1);
        self.playing.rotate_left(first);
        while let Some(entry) = self.playing.get_mut(turn) {
            let Ok(participant) = &mut entry.participant else {
                turn += 1;
                continue;
            };
            let limit = time + self.workload.patience();
            let (why, is_failure) = match timeout(limit, participant.round(time)).await {
                Ok(Ok(figures)) => {
                    let subject = entry.subject.clone();
                    if round > 0 {
                        self.note(&subject, figures);
                    }
                    turn += 1;
                    continue;
                }
                Ok(Err(error)) => (format!("failed in round {round}: {error}"), !entry.is_optional),
                Err(_) => (format!("too slow: round {round} took more than {limit:?}"), false),
            };
            participant.leave().await;
            let entry = self.playing.remove(turn);
            let workload = self.workload.to_string();
            let rows = &mut self.results.rows;
            rows.retain(|row| row.workload != workload || row.subject != entry.subject);
            self.leave_out(&entry, why, is_failure);
        }
        let turns = self.playing.len().max(1);
        self.playing.rotate_right(first % turns);
    }

    fn note(&mut self, subject: &str, figures: Figures) {
        let workload = self.workload.to_string();
        // How many there were in a round says nothing more than how many in a second.
        for (unit, value) in figures.into_iter().filter(|(unit, _)| *unit != Unit::Pairs) {
            let rows = &mut self.results.rows;
            let same = |row: &&mut Row| row.workload == workload && row.subject == subject && row.unit == unit;
            match rows.iter_mut().find(same) {
                Some(row) => row.values.push(value),
                None => rows.push(Row {
                    workload: workload.clone(),
                    subject: subject.into(),
                    unit,
                    values: vec![value],
                }),
            }
        }
    }

    fn leave_out(&mut self, entry: &Entry, why: String, is_failure: bool) {
        eprintln!("  {} is left out: {why}", entry.subject);
        self.results.left_out.push(LeftOut {
            workload: self.workload.to_string(),
            subject: entry.subject.clone(),
            why,
            is_failure,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_chosen_by_name_or_by_a_part_of_it() {
        let names = |word| -> Vec<String> { called(word).unwrap().iter().map(ToString::to_string).collect() };
        assert_eq!(names("own-1"), ["own-1"]);
        assert_eq!(names("beside"), ["beside-1", "beside-10", "beside-100"]);
        assert!(called("nothing").is_err());
        let plan = Plan {
            rounds: 9,
            time: Duration::ZERO,
            only: vec!["read".into(), "own-64".into(), "read-16".into()],
            subject: None,
        };
        let chosen: Vec<String> = plan.workloads().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(chosen, ["own-64", "read-16"]);
    }
}
