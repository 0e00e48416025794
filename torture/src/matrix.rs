//! All cells in a row, and the page that says how they went.

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Result;
use crate::history::History;
use crate::record::TIMELINE;
use crate::verdict::Verdict;
use crate::{run, timeline};

use self::measured::Measured;
use self::report::report;
use self::row::Row;

pub(crate) use self::cells::{Cell, cells};

mod cells;
mod measured;
mod report;
mod row;

/// The options of the matrix.
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
    let measured = Measured::of(&rows).map_or(0, |measured| measured.exit_code());
    let code = rows
        .iter()
        .map(Row::exit_code)
        .chain((!rows.is_empty()).then_some(measured))
        .max_by_key(|code| [0, 2, 1][usize::from(*code)]);
    if let Some(parent) = options.report.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let seconds = (!options.resume).then(|| start.elapsed().as_secs());
    std::fs::write(&options.report, report(&rows, &options.command, seconds))?;
    println!("wrote {}", options.report.display());
    Ok(code.unwrap_or(2))
}

fn run_cell(cell: Cell, options: &Options) -> Row {
    let dir = options
        .dir
        .join(format!("{}-{}", cell.name.replace('/', "-"), cell.config.seed));
    let mut about = String::new();
    let result = (|| {
        if options.resume
            && let Ok((history, verdict)) = judge(&dir)
            && history.outcome.config == cell.config
        {
            about = history.outcome.about;
            return Ok(verdict);
        }
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        crate::runtime()?.block_on(run::run(cell.config.clone(), &dir))?;
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
