//! The tables of events and metrics in the docs of the crate: they have what is seen, and nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use metrics_util::debugging::DebugValue;
use metrics_util::{CompositeKey, MetricKind};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::lives::{a_life_of_haste, a_life_of_trouble, an_eventful_life, an_operators_life};
use super::{measured, subscribed};

const DOCS: &str = include_str!("../../../src/events.md");

#[test]
fn every_metric_and_label_has_its_name_in_the_docs() {
    let named = |(key, _): (CompositeKey, DebugValue)| {
        let kind = match key.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = key.key().labels().map(|label| match label.key() {
            "election" => " election=NAME".to_owned(),
            key => format!(" {key}={}", label.value()),
        });
        format!("{kind} {}{}", key.key().name(), labels.collect::<String>())
    };
    let lives = async {
        an_eventful_life(str::to_owned).await;
        a_life_of_trouble(str::to_owned).await;
        a_life_of_haste().await;
        an_operators_life(str::to_owned).await;
    };
    let seen: BTreeSet<_> = measured(lives).into_iter().map(named).collect();
    assert_same(&seen, &metrics());
}

/// Which spans and events there were, each as a row of the docs' table.
#[derive(Clone, Default)]
struct Rows(Arc<Mutex<BTreeSet<String>>>);

impl Rows {
    fn add(&self, name: &str, metadata: &Metadata<'_>) {
        assert_eq!(metadata.target(), "polylock", "{name}");
        let fields = metadata.fields().iter().map(|field| field.name());
        let fields: Vec<_> = fields
            .filter(|name| *name != "message")
            .map(|name| format!("`{name}`"))
            .collect();
        let row = format!("| {name} | `{}` | {} |", metadata.level(), fields.join(", "));
        self.0.lock().unwrap().insert(row.replace("|  |", "| |"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Rows {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let metadata = attributes.metadata();
        self.add(&format!("span `{}`", metadata.name()), metadata);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.add(&format!("`{}`", message.0), event.metadata());
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[test]
fn every_span_and_event_has_its_name_in_the_docs() {
    let seen = Rows::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    subscribed(subscriber, async {
        an_eventful_life(str::to_owned).await;
        a_life_of_trouble(str::to_owned).await;
        a_life_of_haste().await;
        an_operators_life(str::to_owned).await;
    });
    let mut documented = spans_and_events();
    // These come from threads of the API without async, which have their own subscriber: a unit test of that looks for the first.
    documented.retain(|row| !row.contains("a callback of a lost lock"));
    assert_same(&seen.0.lock().unwrap(), &documented);
}

fn assert_same(seen: &BTreeSet<String>, documented: &BTreeSet<String>) {
    let undocumented: Vec<_> = seen.difference(documented).collect();
    let unseen: Vec<_> = documented.difference(seen).collect();
    assert!(
        undocumented.is_empty() && unseen.is_empty(),
        "not in the docs: {undocumented:#?}; in the docs alone: {unseen:#?}"
    );
}

/// Every span and event, as its row of the table.
fn spans_and_events() -> BTreeSet<String> {
    rows("| span or event | level | fields |").map(String::from).collect()
}

/// Every metric, with every value of its label.
fn metrics() -> BTreeSet<String> {
    let metrics = rows("| metric | kind | label |").flat_map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = in_backticks(columns[1]).next().expect("a name");
        let kind = columns[2].split(':').next().expect("a kind");
        let kind = if ["histogram", "gauge"].contains(&kind) {
            kind
        } else {
            "counter"
        };
        let mut label = in_backticks(columns[3]);
        match label.next() {
            None => vec![format!("{kind} {name}")],
            // Any name is a value of this one.
            Some("election") => vec![format!("{kind} {name} election=NAME")],
            Some(key) => label.map(|value| format!("{kind} {name} {key}={value}")).collect(),
        }
    });
    metrics.collect()
}

fn rows(header: &'static str) -> impl Iterator<Item = &'static str> {
    let below = DOCS.lines().skip_while(move |line| *line != header).skip(2);
    below.take_while(|line| line.starts_with('|'))
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}
