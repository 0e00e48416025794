//! Any name is a name of its own.

use lock_core::backend::DistributedLock;

use crate::support::*;

#[testbed::test]
async fn distinct_names_never_meet() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let longest = "x".repeat(512);
    let nearly = format!("{}y", "x".repeat(511));
    let names = [
        "job",
        "Job",
        "JOB",
        "Jöb",
        "job ",
        " job",
        "job\0",
        "job\0a",
        "\0",
        "a/b",
        "a//b",
        "{a}",
        "'; DROP TABLE x; --",
        "\\",
        "%",
        "_",
        "ß",
        "ss",
        "\u{1F512}",
        "e\u{301}",
        "é",
        "x''",
        "\n",
        &longest,
        &nearly,
    ];
    let mut held = Vec::new();
    for name in names {
        held.push(grant(&backend, name, secs(60)).await);
    }
    for name in names {
        assert!(observer.is_locked(name).await, "{name:?}");
        assert!(try_once(&backend, name).await.is_err(), "{name:?}");
    }
    for granted in &held {
        granted.release().await;
    }
    for name_ in names {
        assert!(!backend.status(&name(name_)).await.unwrap().is_held(), "{name_:?}");
    }
}

#[testbed::test]
async fn tables_are_namespaces() {
    let (fixture, other) = (Fixture::shared().await, Fixture::shared().await);
    let granted = grant(&fixture.backend(), "a", secs(10)).await;
    let elsewhere = grant(&other.backend(), "a", secs(10)).await;
    assert_ne!(fixture.table, other.table);
    drop((granted, elsewhere));
}

#[testbed::test]
async fn labels_may_be_any_text() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let long = "ö".repeat(200);
    for (label, kept) in [
        ("it's \0 \u{1F512}", "it's \0 \u{1F512}"),
        (long.as_str(), &long[..254]),
    ] {
        let terms = lock_core::backend::request::Terms::new(secs(10)).label(label);
        let granted = ask(
            &backend,
            lock_core::backend::request::RequestOptions::new(name(label), terms),
        )
        .await
        .unwrap();
        let status = backend.status(&name(label)).await.unwrap();
        assert_eq!(status.holders[0].label.as_deref(), Some(kept));
        granted.release().await;
    }
}
