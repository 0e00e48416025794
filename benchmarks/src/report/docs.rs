//! `docs/benchmarks.md`: a section for each backend, written by its last run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use benchmarks_load::Result;
use clap::ValueEnum;

use super::{brief, chart, text};
use crate::entry::Backend;
use crate::results::Results;

/// Puts this run's section into the place of the one before, and its chart beside it.
pub(crate) fn write(results: &Results) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = docs.join("benchmarks.md");
    let chart = format!("benchmarks-{}.svg", results.backend);
    let former = match fs::read_to_string(&page) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        former => former?,
    };
    let body = text(results);
    let (heading, rest) = body.split_once("\n\n").unwrap_or((&body, ""));
    let section = format!("{heading}\n\n![{}]({chart})\n\n{rest}", results.backend);
    replace(&docs.join(&chart), &chart::svg(results))?;
    replace(&page, &compose(&former, &section))?;
    // The one that most people ask about.
    if results.backend == Backend::Redis.name() {
        let readme = docs.join("../README.md");
        replace(
            &readme,
            &between(&fs::read_to_string(&readme)?, &brief::table(results))?,
        )?;
    }
    Ok(())
}

/// Where the README has its figures.
const BEGIN: &str = "<!-- written by benchmarks -->\n";
const END: &str = "<!-- end -->";

fn between(readme: &str, table: &str) -> Result<String> {
    let found = readme
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = found.ok_or("the README has no place for the figures")?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

const INTRODUCTION: &str = include_str!("introduction.md");

/// The introduction of now and all sections in their order, this one anew.
fn compose(former: &str, section: &str) -> String {
    let formers = || {
        former
            .split("\n## ")
            .skip(1)
            .map(|rest| format!("## {}", rest.trim_end()))
    };
    let mut page = INTRODUCTION.trim_end().to_owned();
    for backend in Backend::value_variants() {
        let is_its = |section: &String| section.lines().next() == Some(&format!("## {}", backend.name()));
        let newest = Some(section.trim_end().to_owned()).filter(is_its);
        if let Some(section) = newest.or_else(|| formers().find(is_its)) {
            page += "\n\n";
            page += &section;
        }
    }
    page + "\n"
}

/// In one step.
fn replace(path: &PathBuf, text: &str) -> Result<()> {
    let folder = path.parent().ok_or("it is in no folder")?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    // A temporary file is its owner's alone.
    #[cfg(unix)]
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readmes_figures_are_replaced_alone() {
        let readme = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let replaced = between(&readme, "new\n").unwrap();
        assert_eq!(replaced, format!("before\n{BEGIN}new\n{END}\nafter\n"));
        assert!(between("nothing", "new").is_err());
    }

    #[test]
    fn the_other_sections_stay() {
        let first = compose("", "## redis\n\nold\n\n### own-1\n\na\n");
        let second = compose(&first, "## memory\n\nm\n");
        let third = compose(&second, "## redis\n\nnew\n");
        assert!(first.starts_with("# Benchmarks\n") && first.contains("old"));
        let sections: Vec<&str> = third.split("\n## ").skip(1).collect();
        assert_eq!(sections, ["memory\n\nm\n", "redis\n\nnew\n"]);
        assert!(second.contains("### own-1"));
    }
}
