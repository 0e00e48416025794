//! The page on metrics, and the dashboard, which ask for what there is.

use std::collections::BTreeSet;

use serde_json::Value;

const EVENTS: &str = include_str!("../../lock-core/src/events.md");
const DASHBOARD: &str = include_str!("../../docs/grafana.json");
const PAGE: &str = include_str!("../../docs/metrics.md");

/// Every name of a metric in this text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_part = |character: char| character.is_ascii_lowercase() || character == '_';
    let words = text.split(|character| !is_part(character));
    words.filter(|word| word.starts_with("polylock_")).collect()
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let documented = metrics(EVENTS);
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(
            PAGE.contains(&format!("| {title} |")),
            "docs/metrics.md lacks {title:?}"
        );
        for target in panel["targets"].as_array().expect("targets") {
            for name in metrics(target["expr"].as_str().expect("a query")) {
                let name = name.trim_end_matches("_bucket").trim_end_matches("_count");
                assert!(documented.contains(name), "{title}: {name}");
                asked += 1;
            }
        }
    }
    assert!(asked > 5, "{asked}");
}

#[test]
#[cfg(feature = "metrics")]
fn the_example_prints_buckets() {
    let printed = crate::examples::run("metrics", &[]);
    for line in [
        "# the second one: lock \"orders/42\": not acquired within 20ms (held by",
        "polylock_wait_seconds_bucket{outcome=\"timed_out\",le=\"0.01\"} 0",
        "polylock_wait_seconds_bucket{outcome=\"timed_out\",le=\"+Inf\"} 1",
        "polylock_hold_seconds_count{ended=\"released\"} 1",
        "polylock_holds 0",
    ] {
        assert!(
            printed.iter().any(|printed| printed.starts_with(line)),
            "{line:?} in {printed:#?}"
        );
    }
}
