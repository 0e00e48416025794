//! All cells in a row, and the page that says how they went.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::check::{Check, History, Verdict};
use crate::clock::millis;
use crate::error::Result;
use crate::history::TIMELINE;
use crate::plant::Plant;
use crate::setting::{Backend, Fault, Model, Setting, name_of};
use crate::{run, timeline};

/// One run of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) setting: Setting,
}

/// What became of a cell.
struct Row {
    cell: Cell,
    about: String,
    result: std::result::Result<Verdict, String>,
}

/// Every backend with every fault that can be caused there, then with all at once; the control; the plants.
pub(crate) fn cells(long: bool) -> Vec<Cell> {
    let secs = if long { 60 } else { 10 };
    let seeds = if long { 1..=5 } else { 1..=1 };
    let mut cells = Vec::new();
    for seed in seeds {
        for backend in Backend::ALL {
            let mut add = |name: &str, nemesis: &[Fault], deadline_checks: bool| {
                cells.push(Cell {
                    name: format!("{backend}/{name}"),
                    setting: Setting {
                        backend,
                        procs: 6,
                        locks: 3,
                        secs,
                        ttl: backend.default_ttl(),
                        nemesis: nemesis.to_vec(),
                        seed,
                        deadline_checks,
                        plant: None,
                    },
                });
            };
            let possible: Vec<Fault> = Fault::value_variants()
                .iter()
                .copied()
                .filter(|fault| backend.refuses(*fault).is_none())
                .collect();
            for fault in &possible {
                add(&name_of(fault), &[*fault], true);
            }
            let inside: Vec<Fault> = possible
                .into_iter()
                .filter(|fault| backend.model(*fault) == Model::Inside)
                .collect();
            add("all", &inside, true);
            if backend == Backend::Redis {
                add("unchecked", &[Fault::Stop], false);
                add("forgetful-and-late", &[Fault::ServerLose, Fault::ClockBack], true);
            }
        }
        for plant in Plant::value_variants() {
            cells.push(Cell {
                name: format!("plant/{}", name_of(plant)),
                setting: Setting {
                    backend: Backend::Redis,
                    procs: 6,
                    locks: plant.locks(),
                    secs: plant.secs(),
                    ttl: Backend::Redis.default_ttl(),
                    nemesis: plant.nemesis(),
                    seed,
                    deadline_checks: true,
                    plant: Some(*plant),
                },
            });
        }
    }
    cells
}

/// What the matrix is asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) long: bool,
    /// Only cells whose name has this in it.
    pub(crate) only: Option<String>,
    /// Judges what was run already, and runs only the rest.
    pub(crate) resume: bool,
    /// Where histories and pictures go.
    pub(crate) dir: PathBuf,
    pub(crate) report: PathBuf,
    /// As it was typed.
    pub(crate) command: String,
}

/// Runs them all and writes the page. 0: all kept, 1: one broken, 2: one showed nothing.
pub(crate) fn run_all(options: &Options) -> Result<u8> {
    let wanted = |cell: &Cell| {
        options
            .only
            .as_ref()
            .is_none_or(|only| cell.name.contains(only.as_str()))
    };
    let cells: Vec<Cell> = cells(options.long).into_iter().filter(wanted).collect();
    let bar = ProgressBar::new(cells.len() as u64);
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} eta {eta} {msg}");
    bar.set_style(style.expect("the template is a valid one"));
    let start = Instant::now();
    let mut rows = Vec::new();
    for cell in cells {
        bar.set_message(cell.name.clone());
        let row = run_cell(cell, options);
        let line = row.line();
        bar.suspend(|| println!("{line}"));
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let code = rows
        .iter()
        .map(Row::exit_code)
        .max_by_key(|code| [0, 2, 1][usize::from(*code)]);
    if let Some(parent) = options.report.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.report, report(&rows, options, start.elapsed().as_secs()))?;
    println!("wrote {}", options.report.display());
    Ok(code.unwrap_or(2))
}

fn run_cell(cell: Cell, options: &Options) -> Row {
    let dir = options
        .dir
        .join(format!("{}-{}", cell.name.replace('/', "-"), cell.setting.seed));
    let mut about = String::new();
    let result = (|| {
        if options.resume
            && let Ok((history, verdict)) = judge(&dir)
            && history.outcome.setting == cell.setting
        {
            about = history.outcome.about;
            return Ok(verdict);
        }
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        crate::runtime()?.block_on(run::run(cell.setting.clone(), &dir))?;
        let (history, verdict) = judge(&dir)?;
        about = history.outcome.about;
        Ok(verdict)
    })();
    Row {
        cell,
        about,
        result: result.map_err(|error: crate::error::Error| error.to_string()),
    }
}

/// Judges a history and draws its picture.
pub(crate) fn judge(dir: &Path) -> Result<(History, Verdict)> {
    let history = History::read(dir)?;
    let verdict = history.judge();
    std::fs::write(dir.join(TIMELINE), timeline::page(&history, &verdict))?;
    Ok((history, verdict))
}

impl Row {
    /// The plant's own: caught counts as kept.
    fn exit_code(&self) -> u8 {
        match (&self.result, self.cell.setting.plant) {
            (Err(_), _) => 2,
            (Ok(verdict), None) => verdict.exit_code(),
            (Ok(verdict), Some(plant)) if verdict.broken().contains(&plant.caught_by()) => 0,
            (Ok(_), Some(_)) => 1,
        }
    }

    fn state(&self) -> String {
        let broken = |checks: Vec<Check>| checks.iter().map(Check::to_string).collect::<Vec<_>>().join(", ");
        match (&self.result, self.exit_code(), self.cell.setting.plant) {
            (Err(error), ..) => format!("**not run**: {}", error.lines().next().unwrap_or_default()),
            (Ok(verdict), 0, Some(_)) => format!("caught: {}", broken(verdict.broken())),
            (Ok(_), _, Some(_)) => "**not caught**".to_owned(),
            (Ok(verdict), 0, None) => match self.cell.setting.excludes_tokens() {
                Some(why) if !verdict.excluded.is_empty() => {
                    format!(
                        "kept; {} breaches of tokens or fence are excluded: {why}",
                        verdict.excluded.len()
                    )
                }
                _ => "kept".to_owned(),
            },
            (Ok(verdict), 1, None) => format!("**broken**: {}", broken(verdict.broken())),
            (Ok(verdict), ..) => format!("**void**: {}", verdict.problems.join("; ")),
        }
    }

    fn line(&self) -> String {
        let result = match &self.result {
            Ok(verdict) => verdict.to_string().lines().last().unwrap_or_default().to_owned(),
            Err(_) => String::new(),
        };
        format!("{}: {} {result}", self.cell.name, self.state().replace("**", ""))
    }

    fn table_row(&self) -> String {
        let (setting, state) = (&self.cell.setting, self.state());
        let name = format!("{} (seed {})", self.cell.name, setting.seed);
        let Ok(verdict) = &self.result else {
            return format!("| {name} | {state} | | | | | | | | |\n");
        };
        let Verdict {
            holds,
            overlaps,
            refused,
            lost,
            lost_fenced,
            leftovers,
            ..
        } = verdict;
        let faults: Vec<String> = verdict
            .faults
            .iter()
            .map(|(fault, sent, struck)| format!("{fault} {sent}/{struck}"))
            .collect();
        let recovery = verdict
            .recovery
            .map_or("-".to_owned(), |nanos| format!("{:.0} ms", millis(nanos)));
        let allowed = if setting.model() == Model::Outside {
            " (may)"
        } else {
            ""
        };
        format!(
            "| {name} | {state} | {} | {holds} | {overlaps}{allowed} | {refused} | {lost} | {lost_fenced} | {recovery} | {leftovers} |\n",
            faults.join(", ")
        )
    }
}

fn report(rows: &[Row], options: &Options, seconds: u64) -> String {
    let mut versions: Vec<&str> = rows
        .iter()
        .map(|row| row.about.as_str())
        .filter(|about| !about.is_empty())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let took = match options.resume {
        true => ", the cells in several goes".to_owned(),
        false => format!(", in {seconds} s"),
    };
    let mut page = format!(
        "# Torture\n\n\
         Generated by `{}` on {}{took}; polylock {}, {}.\n\n\
         Worker processes take locks through the public API and read, wait and write under them, while a seeded nemesis \
         breaks and heals processes, network and server. Every event is recorded, and then judged: overlaps of belief, lost \
         updates, tokens, late news of a loss, recovery, leftovers, leaks, kinds of errors. `torture acceptance` lists \
         what was asked for at the beginning, each with its home.\n\n\
         - **faults**: sent / struck a holder or waiter.\n\
         - **overlaps**: pairs of holds that were believed in at once. \"(may)\": the fault is outside the failure model, \
         where the fence alone protects.\n\
         - **refused**: accesses that the fence refused. **lost**: updates that the same accesses lost without a fence. \
         **lost, fenced**: with it.\n\
         - **recovered**: when the last process had acquired after the last fault was healed.\n\
         - **left**: what was left on the server, fence state aside.\n",
        options.command,
        &date[..10],
        env!("CARGO_PKG_VERSION"),
        versions.join(", "),
    );
    const HEAD: &str = "| cell | | faults | holds | overlaps | refused | lost | lost, fenced | recovered | left |\n\
                        |---|---|---|---|---|---|---|---|---|---|\n";
    for (title, planted) in [("Cells", false), ("Plants: bugs put in on purpose", true)] {
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| row.cell.setting.plant.is_some() == planted)
            .collect();
        if !rows.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(page, "\n## {title}\n\n{HEAD}");
            page.extend(rows.iter().map(|row| row.table_row()));
        }
    }
    page
}
