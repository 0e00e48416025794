//! The examples on a Redis.

use testbed::steady::blocking::eventually;

use super::*;

async fn redis() -> testbed::Server {
    testbed::Redis::new().start().await.expect("a server")
}

#[testbed::test]
async fn quickstart_and_fenced_write() {
    let server = redis().await;
    assert_quickstart(&run("quickstart", &[&server.url()]));
    assert_fenced_write(&run("fenced_write", &[&server.url()]));
}

#[testbed::test]
async fn another_process_leads_after_a_kill_and_after_a_stop() {
    let server = redis().await;
    let start = || {
        let candidate = Example::start("leader", &[&server.url(), "1"]);
        candidate.wait_for("waits for its turn");
        candidate
    };
    let first = start();
    first.wait_for("leads, term");
    let second = start();
    first.signal(Signal::KILL);
    second.wait_for("leads, term");
    let third = start();
    second.signal(Signal::INT);
    third.wait_for(&format!("the leader is \"process {}\"", third.child.id()));
    second.finish();
}

#[testbed::test]
async fn a_cron_job_runs_on_one_host() {
    let server = redis().await;
    assert_one_cron_job(&server.url(), "60");
}

#[cfg(feature = "blocking")]
#[testbed::test]
async fn one_of_three_instances_migrates() {
    let (server, folder) = (redis().await, tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("schema.txt");
    let arguments = [&server.url(), file.to_str().expect("UTF-8")];
    let instances: Vec<Example> = (0..3).map(|_| Example::start("migration", &arguments)).collect();
    let mut lines: Vec<String> = instances.into_iter().flat_map(Example::finish).collect();
    lines.sort();
    assert_eq!(lines, ["migrated 3 steps", "nothing to migrate", "nothing to migrate"]);
    assert_eq!(std::fs::read_to_string(file).expect("it is there").lines().count(), 3);
    assert_worker_pool(&run("worker_pool", &[&server.url()]));
}

/// Ships an order until this is the status. On a busy machine the server may be slower than the service waits.
fn assert_ships(address: &str, expected: &str, meanwhile: &[&str]) {
    eventually(&format!("an answer {expected}"), || {
        let status = answer(begin_to_ship(address, 1));
        let is_it = status == expected;
        assert!(is_it || meanwhile.contains(&status.as_str()), "{status}");
        is_it.then_some(()).ok_or(status)
    });
}

#[testbed::test]
async fn a_service_without_its_server_answers_503() {
    let server = redis().await;
    let (_service, address) = service(&server.url());
    assert_ships(&address, "200", &["409", "503"]);
    server.kill().expect("it runs");
    assert_ships(&address, "503", &["409"]);
    server.restart().await.expect("it starts again");
    assert_ships(&address, "200", &["409", "503"]);
}
