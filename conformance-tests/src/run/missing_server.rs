//! A server that goes missing in the middle of a run.

use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::subject_test;
use crate::harness::{Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::subject::Subject;
use crate::summary::FOLDER;

/// Its start fails, or panics.
#[derive(Debug)]
struct Gone<const PANICS: bool>;

#[async_trait]
impl<const PANICS: bool> Harness for Gone<PANICS> {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        match PANICS {
            true => panic!("the harness has a bug"),
            false => Err(NoServer::Missing("the server has gone".to_owned())),
        }
    }

    fn attach(_address: &str) -> Self {
        Self
    }

    fn address(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        Timing::paused()
    }

    async fn subject(&self, _namespace: &str, _route: &Route) -> Arc<dyn Subject> {
        unreachable!("it did not start")
    }

    async fn take_away(&self, _namespace: &str, _name: &str) {}

    async fn restart(&self, _data: Data) {}

    fn auxiliary_names(&self, _namespace: &str, _name: &str) -> Vec<String> {
        Vec::new()
    }
}

#[test]
#[ignore = "another test runs it in a process of its own, which writes a report"]
#[should_panic(expected = "the server has gone")]
fn missing() {
    subject_test::<Gone<false>>("suite::mine", "a_dropped_guard_releases");
}

#[test]
#[ignore = "another test runs it in a process of its own, which writes a report"]
#[should_panic(expected = "the harness has a bug")]
fn panicking() {
    subject_test::<Gone<true>>("suite::mine", "a_watch_keeps_nothing_alive");
}

#[test]
fn is_in_the_report_as_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    for test in ["missing", "panicking"] {
        let run = Command::new(std::env::current_exe().expect("this program"))
            .args([format!("run::missing_server::{test}").as_str(), "--exact", "--ignored"])
            .env(FOLDER, folder.path())
            .output()
            .expect("it runs");
        assert!(run.status.success(), "{run:?}");
    }
    let report = std::fs::read(folder.path().join("report.json")).expect("a report");
    let report: Vec<Value> = serde_json::from_slice(&report).expect("JSON");
    let expected = [
        ("mine::a_dropped_guard_releases", "no server: the server has gone"),
        ("mine::a_watch_keeps_nothing_alive", "the harness has a bug"),
    ];
    assert_eq!(report.len(), expected.len(), "{report:?}");
    for (told, (test, because)) in report.iter().zip(expected) {
        assert_eq!((&told["test"], &told["result"]), (&json!(test), &json!("failed")));
        let told = told["because"].as_str().unwrap_or_default();
        assert!(told.contains(because), "{told}");
    }
}
