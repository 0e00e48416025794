//! The tables, as the pages show them.

use std::fmt::Write;
use std::time::Duration;

use conformance_tests::cases;
use lock_core::{Guarantee, Verdict};

use super::servers::Answer;

const BEGIN: &str = "<!-- written by cargo xtask guarantees -->\n";
const END: &str = "<!-- end -->";

/// The events that a hold survives. The other guarantees are options.
const SURVIVED: [Guarantee; 6] = [
    Guarantee::ServerCrash,
    Guarantee::Failover,
    Guarantee::Partition,
    Guarantee::ClockStep,
    Guarantee::ConnectionLoss,
    Guarantee::NoEviction,
];

/// The page with this between its marks.
pub(super) fn replaced(page: &str, written: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has a mark");
    let (_, after) = rest.split_once(END).expect("the mark has an end");
    format!("{before}{BEGIN}{written}{END}{after}")
}

/// For docs/guarantees.md: what each server keeps, and what shows it.
pub(super) fn tables(answers: &[Answer]) -> String {
    let is_survived = |guarantee: &Guarantee| SURVIVED.contains(guarantee);
    let mut text = verdicts(answers, is_survived);
    text.push('\n');
    text += &verdicts(answers, |guarantee| !is_survived(guarantee));
    text + "\n" + &proofs(answers)
}

fn verdicts(answers: &[Answer], is_shown: impl Fn(&Guarantee) -> bool) -> String {
    let shown = |answer: &Answer| -> Vec<(Guarantee, Verdict)> {
        let verdicts = answer.verdicts.iter().filter(|(guarantee, _)| is_shown(guarantee));
        verdicts.cloned().collect()
    };
    let ids: Vec<String> = shown(&answers[0])
        .iter()
        .map(|(guarantee, _)| format!("`{}`", guarantee.id()))
        .collect();
    let mut text = format!("| server | {} |\n|---|{}\n", ids.join(" | "), "---|".repeat(ids.len()));
    for answer in answers {
        let cells: Vec<String> = shown(answer).iter().map(cell).collect();
        writeln!(text, "| {} | {} |", answer.server.title, cells.join(" | ")).expect("text");
    }
    text
}

fn cell((guarantee, verdict): &(Guarantee, Verdict)) -> String {
    match (guarantee, verdict) {
        (Guarantee::Ttl(shortest), Verdict::Yes) => format!("from {shortest:?}"),
        (_, Verdict::Yes) => "yes".to_owned(),
        (_, Verdict::No { .. }) => "no".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// The cases that a backend must pass, and the cells of torture.
fn proofs(answers: &[Answer]) -> String {
    let mut text = "| id | shown by | on |\n|---|---|---|\n".to_owned();
    for case in cases::all() {
        if let Some(id) = case.guarantee {
            writeln!(text, "| `{id}` | the case `{}` | each server with a yes |", case.name).expect("text");
        }
    }
    for answer in answers {
        for (id, cell) in answer.server.cells {
            writeln!(text, "| `{id}` | the torture cell `{cell}` | {} |", answer.server.title).expect("text");
        }
    }
    text
}

/// A row of the README's table: the first server whose title begins like this, when to choose it, and when the lock of a process that
/// crashed is free.
const CHOICES: [(&str, &str, &str); 9] = [
    ("Redis, Valkey", "locks are many or short", "after the TTL"),
    (
        "Redis (`restart_delay",
        "the same, and the server may be restarted or replaced",
        "after the TTL",
    ),
    (
        "Redis with one replica",
        "the same, and no delay may follow a failover",
        "after the TTL",
    ),
    (
        "MySQL, MariaDB: row locks",
        "you run one already, and hold few locks at a time",
        "at once; after the TTL if its machine is gone",
    ),
    (
        "MySQL, MariaDB (`strategy=lease`)",
        "you run one already, and hold many locks, or long ones",
        "after the TTL",
    ),
    ("PostgreSQL", "you run one already", "after the TTL"),
    (
        "PostgreSQL (`strategy=session`)",
        "the same, and a lock must be free as soon as its process ends",
        "at once; after the session timeout if its machine is gone",
    ),
    (
        "ZooKeeper, ensemble of three (`heartbeat",
        "locks must survive the loss of a server",
        "after the session timeout",
    ),
    (
        "Quorum of three Redis",
        "acquires must go on while one server is down, and you run no ensemble",
        "after the TTL",
    ),
];

/// For the README.
pub(super) fn choice(answers: &[Answer]) -> String {
    let mut text = "| server | choose it if | shortest TTL | after a crash, the lock is free | a lock survives |\n|---|---|---|---|---|\n"
        .to_owned();
    for (server, choose, free) in CHOICES {
        let answer = answers.iter().find(|answer| answer.server.title.starts_with(server));
        let Answer {
            server,
            verdicts,
            capabilities,
        } = answer.expect("a server of the list");
        let survived = verdicts
            .iter()
            .filter(|(guarantee, verdict)| SURVIVED.contains(guarantee) && verdict.is_yes());
        let survived: Vec<String> = survived.map(|(guarantee, _)| format!("`{}`", guarantee.id())).collect();
        let ttl = shortest(capabilities.shortest_ttl);
        writeln!(
            text,
            "| {} | {choose} | {ttl} | {free} | {} |",
            server.title,
            survived.join(", ")
        )
        .expect("text");
    }
    text
}

fn shortest(ttl: Duration) -> String {
    match ttl.subsec_millis() {
        0 => format!("{} s", ttl.as_secs()),
        _ => format!("{} ms", ttl.as_millis()),
    }
}
