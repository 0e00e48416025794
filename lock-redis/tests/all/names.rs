//! Every name is a lock of its own.

use lock_core::backend::DistributedLock;

use crate::support::{Fixture, TTL, busy, name, release, request, take, with_config};

fn hostile(prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        " a",
        "a ",
        "a\0",
        "a\0b",
        "\0",
        "/",
        "/a",
        "a/",
        "a/b",
        "..",
        ".",
        "*",
        "?",
        "[a]",
        "\n",
        "\r\n",
        "a\r\nb",
        "'",
        "\"",
        "\\",
        "$",
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "{{a}",
        "{a}}",
        "{{a}}",
        "a{b}c",
        "a{b}d",
        "a{}b",
        "a}b",
        "a{b",
        "%7B",
        "%7Ba%7D",
        "%",
        "%25",
        ":",
        ":fence",
        ":lock",
        "a:fence",
        "{a}:fence",
        "{a}:lock",
        "{a}:lock:fence",
        "é",
        "e\u{301}",
        "E\u{301}",
        "ß",
        "ss",
        "🔒",
        "\u{feff}a",
        "nil",
        "0",
        "-1",
        "-0",
        "1e3",
    ]
    .map(String::from)
    .into();
    // What other names' keys are called.
    names.extend([
        format!("{{{prefix}a}}:fence"),
        format!("{prefix}a"),
        format!("{{{prefix}a%7Db}}:lock"),
    ]);
    names.extend([
        "x".repeat(512),
        "x".repeat(511),
        "é".repeat(256),
        "{".repeat(512),
        "}".repeat(512),
        "%".repeat(512),
    ]);
    names
}

#[testbed::test]
async fn distinct_names_never_conflict_and_equal_ones_always_do() {
    let fixture = Fixture::new().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    let names = hostile(&fixture.prefix);
    let mut holds = Vec::new();
    for name in &names {
        holds.push(take(&backend, name).await);
    }
    for (text, hold) in names.iter().zip(&holds) {
        busy(&other, &request(text, TTL).0).await;
        let status = other.status(&name(text)).await.expect("an answer");
        assert_eq!(status.holders[0].token, Some(hold.token()), "{text:?}");
    }
    for (name, hold) in names.iter().zip(&holds) {
        assert!(release(hold).await, "{name:?}");
    }
}

#[testbed::test]
async fn a_prefix_separates_applications() {
    let fixture = Fixture::new().await;
    let with_prefix = |prefix: &str| {
        let prefix = format!("{}{prefix}", fixture.prefix);
        with_config(fixture.config().with_prefix(prefix))
    };
    let (one, two) = (with_prefix("one:"), with_prefix("two:"));
    take(&one, "a").await;
    take(&two, "a").await;
    assert!(two.status(&name("b")).await.expect("an answer").holders.is_empty());
    busy(&with_prefix("one:"), &request("a", TTL).0).await;
}

#[testbed::test]
async fn databases_separate_too() {
    let fixture = Fixture::new().await;
    let there = with_config(fixture.config().with_database(1));
    take(&there, "a").await;
    assert!(!fixture.exists("a").await);
    take(&fixture.backend(), "a").await;
    let error = with_config(fixture.config().with_database(100_000))
        .connect()
        .await
        .expect_err("there are not so many");
    assert_eq!(error.kind(), lock_core::ErrorKind::Misconfigured, "{error:?}");
}
