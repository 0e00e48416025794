//! A selection of the matrix that fits into a test run: `cargo test --release -p torture selection::`.

use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Instant;

use testbed::assert_safe;

/// Seeds for events that happen by chance: one of these runs shows them.
const SEEDS: [&str; 3] = ["7", "8", "9"];

/// Runs the program and prints the seconds that it took. What it prints, its own exit code.
fn torture(arguments: &[&str]) -> (String, i32) {
    let start = Instant::now();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(arguments)
        .output()
        .expect("it can be started");
    println!("{:5.1} s: {}", start.elapsed().as_secs_f64(), arguments.join(" "));
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    (printed, status.code().expect("it ends by itself"))
}

/// A cell of the matrix: its contract is kept.
fn kept(cell: &str) -> String {
    let (backend, faults) = cell.split_once('/').expect("a cell is a backend and its faults");
    kept_under(&["--backend", backend, "--nemesis", faults])
}

fn kept_under(options: &[&str]) -> String {
    kept_with(SEEDS[0], options)
}

fn kept_with(seed: &str, options: &[&str]) -> String {
    kept_for(6, seed, options)
}

/// The checks of how long something took. A busy machine may make anything late, and one run without that shows that the
/// limits are kept.
const TIMED: [&str; 3] = ["recovery", "late-loss", "lost-hold"];

/// Whether a busy machine explains the result of a run: the run broke nothing, or only limits of time.
fn is_disturbed(printed: &str, code: i32) -> bool {
    let mut broken = printed.lines().filter_map(|line| line.strip_prefix("BROKEN check="));
    code == 2 || code == 1 && broken.all(|check| TIMED.contains(&check))
}

fn kept_for(secs: u64, seed: &str, options: &[&str]) -> String {
    let mut disturbed = String::new();
    // The longer a run is, the more comes of it.
    for factor in [1, 1, 2, 4] {
        let secs = (factor * secs).to_string();
        let (printed, code) = torture(&[&["run", "--secs", &secs, "--seed", seed], options].concat());
        if !is_disturbed(&printed, code) {
            assert_safe!(code == 0, "{options:?}\n{printed}");
            return printed;
        }
        println!("{printed}");
        disturbed = printed;
    }
    panic!("{options:?}\n{disturbed}");
}

fn counted(printed: &str, what: &str) -> u64 {
    let result = printed
        .lines()
        .find(|line| line.starts_with("RESULT "))
        .expect("there is a result");
    let word = result
        .split(' ')
        .find_map(|word| word.strip_prefix(what)?.strip_prefix('='));
    word.and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no {what} in {result:?}"))
}

#[testbed::test]
fn redis() {
    for cell in ["redis/stop", "redis/kill", "redis/gap", "redis/script-flush"] {
        kept(cell);
    }
    kept_under(&[
        "--nemesis",
        "hole,oneway,reset,reply-loss,server-kill,client-kill,memory-full",
    ]);
    for cell in ["redis/clock-rate", "redis/disk-full"] {
        kept(cell);
    }
    let printed = kept("redis/clock");
    assert_safe!(counted(&printed, "lost_fenced") == 0, "{printed}");
    // All in one queue: who waits in the same process is passed on to.
    let printed = kept_under(&["--nemesis", "stop,kill", "--locks", "1", "--tasks", "8"]);
    assert!(
        counted(&printed, "passed") > counted(&printed, "holds") / 4,
        "{printed}"
    );
}

/// Names are also held by readers and by permits.
#[testbed::test]
fn redis_modes() {
    for faults in ["stop,gap,kill", "hole,clock-rate"] {
        let printed = kept_under(&["--modes", "--nemesis", faults]);
        assert_safe!(counted(&printed, "torn_fenced") == 0, "{printed}");
    }
}

/// A replica that takes over has whatever counted, and its former master grants nothing meanwhile.
#[testbed::test]
fn redis_sentinel() {
    acknowledged("redis-sentinel", "planned-failover,split-brain", "1s");
    acknowledged("redis-sentinel", "memory-full", "1s");
}

/// A fault that ends no hold runs alone: then none may be lost.
fn acknowledged(backend: &str, nemesis: &str, ttl: &str) {
    let options = ["--backend", backend, "--nemesis", nemesis, "--ttl", ttl];
    kept_under(&[&options[..], &["--replicas", "1"]].concat());
}

#[testbed::test]
fn redis_cluster() {
    // Many holds outlast the replacement of a master.
    acknowledged("redis-cluster", "stale-replica", "2s");
    acknowledged("redis-cluster", "slot-halfway", "1s");
}

#[testbed::test]
fn mysql_row() {
    kept_under(&["--backend", "mysql-row", "--nemesis", "stop,kill,hole"]);
}

/// Three stopped waiters cost the others a ttl each at most.
#[testbed::test]
fn stopped_waiters_of_sql_servers() {
    for backend in ["mysql-row", "mysql-lease", "postgres-lease"] {
        kept_under(&[
            "--backend",
            backend,
            "--procs",
            "8",
            "--locks",
            "1",
            "--tasks",
            "1",
            "--stopped",
            "3",
        ]);
    }
}

#[testbed::test]
fn mysql_lease() {
    for faults in [
        "stop,kill,hole,oneway,reset,reply-loss,client-kill,query-kill",
        "server-kill,read-lock,disk-full,connections-full,clock-back-for-good,clock-rate",
    ] {
        kept_under(&["--backend", "mysql-lease", "--nemesis", faults]);
    }
}

#[testbed::test]
fn postgres_lease() {
    for faults in [
        "stop,kill,hole,oneway,reset,reply-loss,client-kill,query-kill",
        "server-kill,read-lock,connections-full,clock-back-for-good,clock-rate",
    ] {
        kept_under(&["--backend", "postgres-lease", "--nemesis", faults]);
    }
}

#[testbed::test]
fn postgres_session() {
    kept_under(&["--backend", "postgres-session", "--nemesis", "stop,kill,hole"]);
    kept_under(&["--backend", "postgres-session", "--modes", "--nemesis", "stop,kill"]);
}

#[testbed::test]
fn zookeeper() {
    kept_under(&["--backend", "zookeeper", "--nemesis", "stop,kill,hole"]);
    kept_under(&[
        "--backend",
        "zookeeper",
        "--modes",
        "--nemesis",
        "kill,reset,reply-loss",
    ]);
}

#[testbed::test]
fn zookeeper_ensemble() {
    kept("zookeeper-ensemble/leader-kill");
}

#[testbed::test]
fn quorum() {
    kept_under(&["--backend", "quorum3", "--nemesis", "stop,kill,node-cut"]);
    // One node after the other loses its data, and gives fresh votes when the delay is over.
    let nemesis = ["--nemesis", "server-lose", "--restart-delay", "2s"];
    let printed = kept_for(10, SEEDS[0], &[&["--backend", "quorum3"], &nemesis[..]].concat());
    assert_safe!(counted(&printed, "overlaps") == 0, "{printed}");
    assert_safe!(counted(&printed, "refused") == 0, "{printed}");
}

/// The fence alone protects those who do not look at their guard.
#[testbed::test]
fn without_checks_only_the_fence_protects() {
    let lost_some = SEEDS.iter().any(|seed| {
        let printed = kept_with(seed, &["--nemesis", "stop", "--no-deadline-checks"]);
        assert_safe!(counted(&printed, "lost_fenced") == 0, "{printed}");
        counted(&printed, "lost") > 0
    });
    assert!(lost_some, "nothing was lost without a fence: this proves nothing");
}

/// The number of mutants that run side by side. They are to be caught on a busy machine, too.
const AT_ONCE: usize = 3;

/// In one of these runs a mutant is caught. The last ones are for a busy machine, whose own pauses count for less beside
/// longer faults.
const CHANCES: [&[&str]; 5] = [
    &["--seed", SEEDS[0]],
    &["--seed", SEEDS[1]],
    &["--seed", SEEDS[2]],
    &["--seed", "10", "--secs", "30", "--ttl", "1s"],
    &["--seed", "11", "--secs", "60", "--ttl", "2s"],
];

fn assert_caught(line: &str) {
    let (mutant, check) = line.split_once(' ').expect("a mutant and its check");
    let broken = format!("BROKEN check={check}\n");
    let mut all_printed = String::new();
    let is_caught = CHANCES.iter().any(|chance| {
        let (printed, code) = torture(&[&["run", "--mutant", mutant], *chance].concat());
        all_printed += &printed;
        code == 1 && printed.contains(&broken)
    });
    assert!(is_caught, "{mutant}\n{all_printed}");
}

/// Every bug that is put in is caught, by its own check; and the same run without it is kept.
#[testbed::test]
fn mutants_are_caught() {
    let (mutants, code) = torture(&["mutants"]);
    assert_eq!(code, 0);
    assert!(mutants.lines().count() >= 6, "{mutants}");
    let lines = Mutex::new(mutants.lines());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(line) = { lines.lock().expect("no thread panics while it has it").next() } {
                    assert_caught(line);
                }
            });
        }
    });
    // These faults break nothing without the mutants; `stop`, `kill` and `gap` are above.
    for faults in ["hole,delay", "server-lose"] {
        kept_under(&["--nemesis", faults]);
    }
}

#[test]
fn whatever_shows_nothing_exits_with_2() {
    for wrong in [
        &["run", "--nemesis", "earthquake"][..],
        &["run", "--procs", "0"],
        &["run", "--ttl", "soon"],
        &["run", "--mutant", "none-such"],
        &["run", "--tasks", "0"],
        &["run", "--procs", "4", "--stopped", "4"],
        &["run", "--mutant", "connection-leak", "--backend", "zookeeper"],
        &["run", "--backend", "zookeeper", "--nemesis", "clock"],
        &["run", "--backend", "zookeeper", "--nemesis", "leader-kill"],
        &["run", "--backend", "redis", "--nemesis", "split-brain"],
        &["run", "--backend", "redis", "--replicas", "1"],
        &["run", "--backend", "redis-cluster", "--min-replicas"],
        &["check", "/no/such/directory"],
        &["walk"],
    ] {
        let (printed, code) = torture(wrong);
        assert_eq!(code, 2, "{wrong:?}\n{printed}");
        assert!(printed.contains("error"), "{wrong:?}\n{printed}");
    }
}

#[test]
fn a_server_that_does_not_start_exits_with_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(["run", "--secs", "1"])
        .env_remove("POLYLOCK_REDIS_URL")
        .env("POLYLOCK_REDIS_SERVER", "/no/such/program")
        .output()
        .expect("it can be started");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A run can be judged again from what it left.
#[testbed::test]
fn a_history_is_judged_alone() {
    // So short that a busy machine may leave no time for a fault.
    let is_shown = ["2", "8", "32"].iter().any(|secs| is_judged_alone(secs));
    assert!(is_shown, "no picture shows both holds and faults");
}

/// Whether the picture of such a run shows faults.
fn is_judged_alone(secs: &str) -> bool {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_str().expect("its name is plain");
    let ran = torture(&["run", "--secs", secs, "--nemesis", "stop", "--dir", path]);
    println!("{}", ran.0);
    if !ran.0.contains("RESULT ") {
        return false;
    }
    // Whatever it shows, both say so.
    assert_eq!(torture(&["check", path]), ran);
    let page = std::fs::read_to_string(dir.path().join("timeline.html")).expect("there is a picture");
    assert!(page.contains("<svg"), "{page}");
    page.contains("stop for")
}

/// As in `torture matrix --list | head`.
#[test]
fn a_list_ends_quietly_if_nobody_reads_on() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(["matrix", "--list"])
        .stdout(writer)
        .output()
        .expect("it can be started");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
}
