//! The library's events: on standard error, or collected as findings of `doctor`.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::OutputArgs;
use crate::message::say;

/// The target of all events of the library.
const TARGET: &str = "polylock";

/// Events that `run` reports in its own words.
const SAID: [&str; 1] = ["hold lost"];

/// Writes the library's events to standard error: warnings, all of them with `-v`, none with `-q`, or what `RUST_LOG` says of them.
pub(crate) fn install(output: OutputArgs) {
    let chosen = std::env::var("RUST_LOG").ok();
    let (filter, is_default) = filter(output, chosen.as_deref());
    let layer = Sink(move |level: Level, line: &Line| {
        if !(is_default && SAID.contains(&line.message.as_str())) {
            say(&format!("{}: {}{}", level_name(level), line.message, line.fields));
        }
    });
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
}

/// Which events are written, and whether nobody has chosen them.
fn filter(output: OutputArgs, chosen: Option<&str>) -> (Targets, bool) {
    let level = match (output.quiet, output.verbose) {
        (true, _) => LevelFilter::OFF,
        (false, true) => LevelFilter::DEBUG,
        (false, false) => LevelFilter::WARN,
    };
    // It may be meant for the command, and then names others alone.
    let is_ours = |chosen: &Targets| {
        let names_us = chosen.iter().any(|(target, _)| target.starts_with(TARGET));
        names_us || chosen.default_level().is_some()
    };
    let chosen = chosen.and_then(|text| text.parse().ok());
    match chosen.filter(|chosen| !output.quiet && is_ours(chosen)) {
        Some(chosen) => (chosen, false),
        None => (Targets::new().with_target(TARGET, level), !output.verbose),
    }
}

/// Collects the library's warnings.
pub(crate) fn record() -> Findings {
    let findings = Findings::default();
    let kept = findings.clone();
    let layer = Sink(move |_: Level, line: &Line| {
        let mut kept = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(format!("{}{}", line.message, line.fields));
    });
    let filter = Targets::new().with_target(TARGET, LevelFilter::WARN);
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    findings
}

/// The warnings of the library.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Vec<String>>>);

impl Findings {
    /// All of them, each once.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut seen = std::collections::HashSet::new();
        all.retain(|finding| seen.insert(finding.clone()));
        all
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        _ => "debug",
    }
}

struct Sink<F>(F);

impl<S: Subscriber, F: Fn(Level, &Line) + 'static> Layer<S> for Sink<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        (self.0)(*event.metadata().level(), &line);
    }
}

#[derive(Debug, Default)]
struct Line {
    message: String,
    /// Each with a space before it.
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_chooses_if_it_means_the_library() {
        let warns =
            |output: OutputArgs, chosen: &str| filter(output, Some(chosen)).0.would_enable(TARGET, &Level::WARN);
        let debugs =
            |output: OutputArgs, chosen: &str| filter(output, Some(chosen)).0.would_enable(TARGET, &Level::DEBUG);
        let quiet = OutputArgs {
            quiet: true,
            ..OutputArgs::default()
        };
        let verbose = OutputArgs {
            verbose: true,
            ..OutputArgs::default()
        };
        let usual = OutputArgs::default();
        assert!(warns(usual, "other=trace") && !debugs(usual, "other=trace"));
        assert!(debugs(usual, "polylock=debug") && debugs(usual, "debug,other=off"));
        assert!(!warns(usual, "polylock=off") && !warns(quiet, "debug"));
        assert!(debugs(verbose, "other=off") && !filter(verbose, None).1);
        assert!(filter(usual, Some("other=off")).1 && !filter(usual, Some("polylock=warn")).1);
    }

    #[test]
    fn an_event_is_a_line_with_its_fields() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let sink = Sink(move |level: Level, line: &Line| {
            let text = format!("{}: {}{}", level_name(level), line.message, line.fields);
            kept.lock().unwrap().push(text);
        });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(sink), || {
            tracing::warn!(target: "polylock", server = "h:1", count = 3, "it {} lose locks", "can");
        });
        assert_eq!(
            *lines.lock().unwrap(),
            ["warning: it can lose locks server=h:1 count=3"]
        );
    }
}
