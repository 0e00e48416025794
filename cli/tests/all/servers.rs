//! The same on MySQL, PostgreSQL and ZooKeeper, in short.

use crate::support::{Running, run};

async fn holds_excludes_and_loses(server: testbed::Server, url: &str) {
    let text = "trap 'echo told; exit 0' TERM; echo got; while :; do sleep 0.05; done";
    let line = ["run", "--lock", "a", "--label", "the first", "--shell", text];
    let holder = Running::start(url, &line);
    holder.wait_for("got");
    let taken = run(url, &["run", "--lock", "a", "--try", "--", "echo", "started"]);
    assert_eq!((taken.code, taken.output.len()), (Some(75), 0), "{taken:?}");
    let status = run(url, &["status", "--lock", "a"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.output.join("").contains("the first"), "{status:?}");
    let doctor = run(url, &["doctor"]);
    assert!(matches!(doctor.code, Some(0 | 1)), "{doctor:?}");
    server.kill().expect("it runs");
    let ended = holder.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(76), vec!["told".to_owned()]),
        "{}",
        ended.messages
    );
}

#[testbed::test]
async fn mysql() {
    let server = testbed::MariaDb::new().start().await.expect("a server");
    let url = server.url();
    let migrated = run(&(url.clone() + "?require=failover&trusting=failover"), &["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    holds_excludes_and_loses(server, &url).await;
}

#[testbed::test]
async fn postgres() {
    let server = testbed::Postgres::new().start().await.expect("a server");
    let url = server.url();
    let folder = tempfile::tempdir().expect("a folder");
    let (file, password) = (folder.path().join("polylock.toml"), folder.path().join("password"));
    let (login, address) = url.rsplit_once('@').expect("a user");
    let (user, secret) = login.rsplit_once(':').expect("a password");
    std::fs::write(&password, secret).expect("it is ours");
    let text = format!("url = \"{user}@{address}\"\npassword_file = {password:?}\nrequire = [\"failover\"]");
    std::fs::write(&file, text).expect("it is ours");
    let migrated = run("", &["migrate", "--config", file.to_str().expect("UTF-8")]);
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let text = "echo got; sleep 60";
    let holder = Running::start(&url, &["run", "--lock", "b", "--label", "me", "--shell", text]);
    holder.wait_for("got");
    let listed = run(&url, &["list"]);
    assert!(
        listed.code == Some(0) && listed.output.join("").contains('b'),
        "{listed:?}"
    );
    let status = run(&url, &["status", "--lock", "b", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.output.join("\n")).expect("JSON");
    let token = status["holders"][0]["token"].as_str().expect("a token");
    let broken = run(&url, &["break", "--lock", "b", "--token", token, "--now", "--yes"]);
    assert_eq!(broken.code, Some(0), "{broken:?}");
    assert_eq!(run(&url, &["run", "--lock", "b", "--try", "--", "true"]).code, Some(0));
    drop(holder);
    holds_excludes_and_loses(server, &url).await;
}

#[testbed::test]
async fn zookeeper() {
    let server = testbed::ZooKeeper::new().start().await.expect("a server");
    let url = server.url();
    // The lease is as long as the session timeout of 10 s, whatever the TTL. A server that renews it does not end the command.
    let line = ["run", "--lock", "b", "--ttl", "1m", "--grace", "10s", "--", "true"];
    let ended = run(&url, &line);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.messages.contains("choose a session timeout"), "{ended:?}");
    holds_excludes_and_loses(server, &url).await;
}
