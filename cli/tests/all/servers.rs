//! The same on MySQL and ZooKeeper, in short.

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
    assert_eq!(run(&url, &["migrate"]).code, Some(0));
    holds_excludes_and_loses(server, &url).await;
}

#[testbed::test]
async fn zookeeper() {
    let server = testbed::ZooKeeper::new().start().await.expect("a server");
    let url = server.url();
    holds_excludes_and_loses(server, &url).await;
}
