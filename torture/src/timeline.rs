//! A picture of a run: who believed what, when, and what was broken meanwhile.

use std::fmt::Write;

use crate::clock::millis;
use crate::history::History;
use crate::judge::holds::{Hold, operations};
use crate::record::Strike;
use crate::verdict::Verdict;

const WIDTH: f64 = 4000.0;
const LABELS: f64 = 90.0;
const ROW: f64 = 14.0;
const GAP: f64 = 26.0;

const STYLE: &str = "body{font:14px sans-serif;margin:1em}svg{font:11px sans-serif}pre{background:#f4f4f4;padding:.6em}\
    .held{fill:#2b7}.lost{fill:#d90}.wait{fill:#cde}.after{fill:#eee}.both{fill:#d22}\
    .fault{fill:#a3c;fill-opacity:.16}.server{fill:#d22;fill-opacity:.13}.row{fill:#fafafa}.box{overflow-x:auto}";

/// The page.
pub(crate) fn page(history: &History, verdict: &Verdict) -> String {
    let outcome = &history.outcome;
    let mut drawing = Drawing::new(history);
    drawing.rows();
    drawing.faults(&history.strikes);
    drawing.operations();
    drawing.overlaps();
    let (height, svg) = (drawing.height(), drawing.svg);
    let config = &outcome.config;
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>torture: {backend}, seed {seed}</title>\
         <style>{STYLE}</style><h1>{backend}, seed {seed}</h1>\
         <p>{procs} processes, {locks} locks, ttl {ttl:?}; {about}. A row is a process in its dealings with a lock. \
         <b style=\"color:#2b7\">believed</b>, <b style=\"color:#d90\">believed and then lost</b>, \
         <b style=\"color:#9bd\">waited</b>, <b style=\"color:#d22\">two believed</b>; \
         violet: the process or its network is broken; red: the server is. Point at anything for details.</p>\
         <pre>{verdict}</pre><div class=\"box\"><svg width=\"{WIDTH}\" height=\"{height}\">{svg}</svg></div></html>\n",
        backend = config.backend,
        seed = config.seed,
        procs = config.procs,
        locks = config.locks,
        ttl = config.ttl,
        about = escape(&outcome.about),
        verdict = escape(&verdict.to_string()),
    )
}

struct Drawing<'a> {
    history: &'a History,
    from: u64,
    scale: f64,
    svg: String,
}

impl<'a> Drawing<'a> {
    fn new(history: &'a History) -> Self {
        let first = history
            .processes
            .iter()
            .filter_map(|process| process.lines.first())
            .map(|line| line.t)
            .min();
        let from = first.unwrap_or(history.outcome.begin);
        let span = (history.outcome.end.saturating_sub(from)).max(1) as f64;
        Self {
            history,
            from,
            scale: (WIDTH - LABELS) / span,
            svg: String::new(),
        }
    }

    fn x(&self, t: u64) -> f64 {
        LABELS + t.saturating_sub(self.from) as f64 * self.scale
    }

    fn y(&self, lock: usize, process: usize) -> f64 {
        let procs = self.history.outcome.config.procs as f64;
        lock as f64 * (procs * ROW + GAP) + GAP + process as f64 * ROW
    }

    fn height(&self) -> f64 {
        self.y(self.history.outcome.config.locks, 0)
    }

    fn bar(&mut self, class: &str, (from, to): (u64, u64), y: f64, height: f64, title: &str) {
        let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(0.4));
        // Writing to a string cannot fail.
        let _ = write!(
            self.svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>{}</title></rect>",
            escape(title)
        );
    }

    fn text(&mut self, x: f64, y: f64, text: &str) {
        let _ = write!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
    }

    fn rows(&mut self) {
        let config = &self.history.outcome.config;
        for lock in 0..config.locks {
            let y = self.y(lock, 0);
            self.text(0.0, y - 6.0, &format!("lock-{lock}"));
            for process in 0..config.procs {
                self.text(8.0, self.y(lock, process) + 10.0, &format!("process {process}"));
            }
        }
        let seconds = (self.history.outcome.end.saturating_sub(self.from)) / 1_000_000_000;
        for second in 0..=seconds {
            self.text(self.x(self.from + second * 1_000_000_000), 10.0, &format!("{second} s"));
        }
    }

    fn faults(&mut self, strikes: &[Strike]) {
        for strike in strikes {
            let title = format!(
                "{} for {:.0} ms{}",
                strike.fault,
                millis(strike.to - strike.from),
                if strike.happened { "" } else { " (it came to nothing)" }
            );
            let span = (strike.from, strike.to);
            match strike.process {
                None => self.bar("server", span, 12.0, self.height() - 12.0, &title),
                Some(process) => {
                    for lock in 0..self.history.outcome.config.locks {
                        self.bar("fault", span, self.y(lock, process), ROW, &title);
                    }
                }
            }
        }
    }

    fn operations(&mut self) {
        for operation in self.history.processes.iter().flat_map(operations) {
            let y = self.y(operation.lock, operation.process);
            let Some(hold) = operation.hold else {
                self.bar("wait", (operation.begin, operation.end), y + 5.0, 4.0, "waited in vain");
                continue;
            };
            self.bar("wait", (hold.asked, hold.held), y + 5.0, 4.0, "waited");
            let lost = hold
                .lost
                .as_ref()
                .map_or(String::new(), |(_, cause)| format!(", lost: {cause}"));
            let title = format!(
                "process {}, operation {}, {:?}, token {}: believed for {:.1} ms{lost}",
                hold.process,
                hold.op,
                hold.mode,
                hold.token,
                millis(hold.believed - hold.held)
            );
            let class = if hold.lost.is_some() { "lost" } else { "held" };
            self.bar(class, (hold.held, hold.believed), y + 2.0, ROW - 4.0, &title);
            if hold.left > hold.believed {
                self.bar(
                    "after",
                    (hold.believed, hold.left),
                    y + 5.0,
                    4.0,
                    "lost, and not yet left",
                );
            }
        }
    }

    fn overlaps(&mut self) {
        let operations: Vec<_> = self.history.processes.iter().flat_map(operations).collect();
        let holds: Vec<&Hold> = operations
            .iter()
            .filter_map(|operation| operation.hold.as_ref())
            .collect();
        for (first, second) in crate::judge::overlaps(&holds) {
            let span = (second.from, first.to.min(second.to));
            let (first, second) = (first.hold, second.hold);
            let title = format!("processes {} and {} both believed", first.process, second.process);
            for process in [first.process, second.process] {
                self.bar("both", span, self.y(first.lock, process), ROW, &title);
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
