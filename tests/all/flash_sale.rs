//! The flash sale, run as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Cargo builds the examples before it runs the tests, beside them.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    folder
        .join("examples")
        .join(format!("flash_sale{}", std::env::consts::EXE_SUFFIX))
}

/// Its last line of standard output, its standard error, and its exit code.
fn sell(arguments: &str) -> (String, String, i32) {
    let Output { stdout, stderr, status } = Command::new(example())
        .args(arguments.split_whitespace())
        .output()
        .expect("the example was built");
    let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
    let last = text(stdout).lines().last().unwrap_or_default().to_owned();
    (last, text(stderr), status.code().expect("it ends by itself"))
}

/// What follows `--` in README's first command.
fn first_command_of_the_readme() -> &'static str {
    let command = include_str!("../../README.md")
        .lines()
        .find(|line| line.starts_with("cargo run "))
        .expect("README begins with a command that runs at once");
    let (cargo, arguments) = command.split_once(" -- ").expect("it passes arguments");
    assert_eq!(cargo, "cargo run -p polylock --example flash_sale");
    arguments
}

fn assert_compared(output: &Output) {
    let stdout = String::from_utf8(output.stdout.clone()).expect("it prints UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout} {errors}");
    let results: Vec<i64> = stdout
        .lines()
        .filter(|line| line.starts_with("RESULT"))
        .map(lost)
        .collect();
    let [without, with] = results[..] else {
        panic!("two sales: {stdout} {errors}");
    };
    assert!(without > 0 && with == 0, "{stdout}");
    let verdict = format!("Lost updates: {without} without the lock, 0 with it.");
    assert!(stdout.contains(&verdict), "{stdout}");
}

#[test]
fn the_readme_shows_at_once_what_a_lock_is_for() {
    let mut command = Command::new(example());
    command.args(first_command_of_the_readme().split_whitespace());
    assert_compared(&command.output().expect("the example was built"));
}

/// Where the test was built as the command builds: elsewhere cargo would build everything anew.
#[cfg(not(any(
    feature = "redis",
    feature = "mysql",
    feature = "zookeeper",
    feature = "quorum",
    feature = "serde"
)))]
#[test]
fn the_first_command_of_the_readme_runs_as_it_stands() {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["run", "-p", "polylock", "--example", "flash_sale", "--"])
        .args(first_command_of_the_readme().split_whitespace())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    assert_compared(&command.output().expect("there is a cargo"));
}

fn lost(result: &str) -> i64 {
    let (_, lost) = result.split_once("lost=").expect("a result");
    lost.parse().expect("a number")
}

#[test]
fn fifty_buyers_and_nobody_loses() {
    let (result, errors, code) = sell("");
    assert_eq!(
        (result.as_str(), code),
        ("RESULT sold=50 left=450 lost=0", 0),
        "{errors}"
    );
}

#[test]
fn more_buyers_than_items_sell_out() {
    let (result, errors, code) = sell("--stock 7 --think-ms 1");
    assert_eq!((result.as_str(), code), ("RESULT sold=7 left=0 lost=0", 0), "{errors}");
}

#[test]
fn without_the_lock_updates_are_lost() {
    let (result, errors, code) = sell("--no-lock --think-ms 50");
    assert!(lost(&result) > 0 && code == 0, "{result} {errors}");
    let (result, errors, code) = sell("--no-lock --think-ms 50 --processes 3");
    assert!(lost(&result) > 0 && code == 0, "{result} {errors}");
}

#[test]
fn a_buyer_without_the_lock_is_a_failure_that_names_the_holder() {
    // So many that one of them thinks for longer than the others wait.
    let (result, errors, code) = sell("--buyers 30 --think-ms 2000 --wait 100ms");
    assert!(lost(&result) == 0 && code == 2, "{result} {errors}");
    assert!(
        errors.contains("not acquired within 100ms (held by \"buyer"),
        "{errors}"
    );
}

#[test]
fn what_cannot_work_says_what_to_do() {
    for (arguments, advice) in [
        ("--processes 2", "use --processes 1, or a lock server with --backend"),
        (
            "--backend etcd://host",
            "`etcd`, which polylock does not know: use memory:, redis://",
        ),
        ("--ttl 0s --buyers 1", "choose a longer one"),
        ("--processes 0", "0 is not in 1..=256"),
        ("--wait soon", "invalid value 'soon'"),
    ] {
        let (_, errors, code) = sell(arguments);
        assert!(code == 2 && errors.contains(advice), "{arguments}: {code} {errors}");
    }
}

#[cfg(any(feature = "redis", feature = "mysql", feature = "zookeeper"))]
fn four_processes_on(server: Result<testbed::Server, testbed::Error>) {
    let server = server.expect("a server");
    let arguments = format!("--processes 4 --backend {}", server.url());
    let (result, errors, code) = sell(&arguments);
    assert_eq!(
        (result.as_str(), code),
        ("RESULT sold=50 left=450 lost=0", 0),
        "{errors}"
    );
}

#[cfg(feature = "redis")]
#[testbed::test]
async fn four_processes_on_a_redis() {
    four_processes_on(testbed::Redis::new().start().await);
}

#[cfg(feature = "mysql")]
#[testbed::test]
async fn four_processes_on_a_mariadb() {
    four_processes_on(testbed::MariaDb::new().start().await);
}

/// The stock is in the database, and its transactions alone do not protect it.
#[cfg(feature = "mysql")]
#[testbed::test]
async fn without_the_lock_updates_are_lost_in_a_mariadb_too() {
    let server = testbed::MariaDb::new().start().await.expect("a server");
    let (result, errors, code) = sell(&format!("--no-lock --think-ms 50 --backend {}", server.url()));
    assert!(lost(&result) > 0 && code == 0, "{result} {errors}");
}

#[cfg(feature = "zookeeper")]
#[testbed::test]
async fn four_processes_on_a_zookeeper() {
    four_processes_on(testbed::ZooKeeper::new().start().await);
}

/// The test takes the lock in between, so that the sale goes on when a server has been broken and the lock has survived it.
#[cfg(all(feature = "redis", feature = "quorum"))]
#[testbed::test]
async fn four_processes_on_three_redis_of_which_one_forgets_and_one_is_killed() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(testbed::Redis::new().start().await.expect("a server"));
    }
    if testbed::skip_external(&servers) {
        return;
    }
    let urls: Vec<String> = servers.iter().map(testbed::Server::url).collect();
    let url = format!("quorum:?restart_delay=10s|{}", urls.join("|"));
    let connect = async |url: &str| {
        let mut config = polylock::Config::new(url);
        (config.ttl, config.label) = (Some(DELAY), Some("the test".into()));
        config.connect().await.expect("it is there")
    };
    let locks = connect(&url).await;
    // Whoever comes first to a new server waits, too.
    let guard = locks.lock("productA").acquire().await.expect("a grant");
    let sale = tokio::task::spawn_blocking(move || {
        sell(&format!(
            "--processes 4 --buyers 60 --think-ms 40 --ttl 10s --backend {url}"
        ))
    });
    testbed::eventually("it votes", async || {
        let status = locks.status("productA").await;
        status.is_ok_and(|status| status.waiting >= Some(4))
    })
    .await;

    servers[1].restart_without_data().await.expect("it starts again");
    until_it_votes(&urls[1]).await;
    // Two servers kept it, and the third got it back.
    release(guard).await;

    let guard = locks.lock("productA").acquire().await.expect("a grant");
    let delayed = connect(&format!("{}?restart_delay=10s", urls[1])).await;
    let fresh = delayed.lock("another").acquire().await.expect("it is trusted again");
    fresh.release().await.expect("an answer");
    until_it_votes(&urls[1]).await;
    assert!(!sale.is_finished(), "buyers wait for the test's own hold");
    servers[0].kill().expect("it is ours");
    // Two servers kept it.
    release(guard).await;

    let (result, errors, code) = sale.await.expect("the sale ended");
    assert_eq!(
        (result.as_str(), code),
        ("RESULT sold=60 left=440 lost=0", 0),
        "{errors}"
    );
}

#[cfg(all(feature = "redis", feature = "quorum"))]
const DELAY: std::time::Duration = std::time::Duration::from_secs(10);

/// Waits until the server with this URL has voted for the test's own hold, and not for a buyer who asks in vain.
#[cfg(all(feature = "redis", feature = "quorum"))]
async fn until_it_votes(url: &str) {
    let observer = polylock::connect_lazy(url).expect("a valid URL");
    testbed::eventually("it votes", async || {
        let Ok(status) = observer.status("productA").await else {
            return false;
        };
        let label = status.holders.first().and_then(|holder| holder.label.as_deref());
        label.is_some_and(|label| label.starts_with("the test"))
    })
    .await;
}

/// Releases a hold that is not lost. On a busy machine the answer may come later than the call waits, and the release goes on.
#[cfg(all(feature = "redis", feature = "quorum"))]
async fn release(guard: polylock::Guard) {
    if let Err(error) = guard.release().await {
        assert_eq!(error.kind(), polylock::ErrorKind::Unavailable, "{error}");
    }
}
