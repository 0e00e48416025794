//! `list` and `break`: what operators do to locks that are not theirs.

use crate::support::{Running, redis, run};

/// A process that holds the lock `a`, and its token. It renews the lock every two seconds, and learns then that it was broken.
fn holder(url: &str) -> (Running, String) {
    let holder = Running::start(url, &["hold", "--lock", "a", "--ttl", "6s"]);
    let line = holder.line();
    let token = line.strip_prefix("token ").expect("its token").to_owned();
    (holder, token)
}

fn is_held(url: &str) -> bool {
    let status = run(url, &["status", "--lock", "a"]);
    assert!(matches!(status.code, Some(0 | 1)), "{status:?}");
    status.code == Some(0)
}

#[testbed::test]
async fn list_prints_the_names_that_are_held() {
    let server = redis().await;
    let url = server.url();
    let empty = run(&url, &["list"]);
    assert_eq!((empty.code, empty.output.len()), (Some(0), 0), "{empty:?}");
    let holder = Running::start(&url, &["hold", "--lock", "a/1", "--lock", "a\n2", "--lock", "b"]);
    for _ in 0..3 {
        holder.line();
    }
    let sorted = |arguments: &[&str]| {
        let listed = run(&url, arguments);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let mut lines = listed.output;
        lines.sort();
        lines
    };
    assert_eq!(sorted(&["list"]), ["\"a\\n2\"", "a/1", "b"]);
    assert_eq!(sorted(&["list", "a/", "--held"]), ["a/1"]);
    assert_eq!(
        sorted(&["list", "a", "--json"]),
        [r#"{"name":"a/1"}"#, r#"{"name":"a\n2"}"#]
    );
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(sorted(&["list"]), [""; 0]);
}

#[testbed::test]
async fn break_ends_a_hold_when_its_lease_ends_or_at_once() {
    let server = redis().await;
    let url = server.url();
    for (how, says) in [(&[][..], "free in"), (&["--now", "--yes"][..], "may act for up to")] {
        let (holder, token) = holder(&url);
        let broken = run(&url, &[&["break", "--lock", "a", "--token", &token], how].concat());
        assert_eq!(broken.code, Some(0), "{broken:?}");
        assert!(broken.messages.contains(says), "{broken:?}");
        holder.wait_for_message("was lost");
        assert_eq!(holder.end().code, Some(76));
        // As soon as the lease would have ended.
        let next = run(&url, &["run", "--lock", "a", "--wait", "60s", "--", "true"]);
        assert_eq!(next.code, Some(0), "{next:?}");
        let again = run(&url, &["break", "--lock", "a", "--token", &token]);
        assert_eq!(again.code, Some(1), "{again:?}");
    }
}

#[testbed::test]
async fn break_changes_nothing_without_the_token_or_an_answer() {
    let server = redis().await;
    let url = server.url();
    let (holder, token) = holder(&url);
    let unasked = run(&url, &["break", "--lock", "a", "--token", &token, "--now"]);
    assert_eq!(unasked.code, Some(64), "{unasked:?}");
    assert!(unasked.messages.contains("nothing was changed"), "{unasked:?}");
    let without = run(&url, &["break", "--lock", "a"]);
    assert_eq!(without.code, Some(64), "{without:?}");
    let other = run(&url, &["break", "--lock", "a", "--token", "1", "--now", "--yes"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(is_held(&url));
    assert_eq!(holder.end().code, Some(0));
}
