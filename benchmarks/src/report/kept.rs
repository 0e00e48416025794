//! The figures of the last run that wrote the docs, so that a part of it can be run anew.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use benchmarks_load::Result;
use serde_json::{Value, json};

use crate::entry::Backend;
use crate::results::{LeftOut, Results, Row};

/// Keeps them in cargo's target directory.
pub(crate) fn write(results: &Results) -> Result<()> {
    let path = path(&results.backend)?;
    fs::create_dir_all(path.parent().ok_or("it is in no folder")?)?;
    Ok(fs::write(path, to_json(results).to_string())?)
}

/// # Errors
/// If there are none.
pub(crate) fn read(backend: Backend) -> Result<Results> {
    let path = path(backend.name())?;
    let missing = |error| format!("there are no figures of a whole run ({error}): run without `--only` first");
    let text = fs::read_to_string(path).map_err(missing)?;
    from_json(&serde_json::from_str(&text)?).ok_or_else(|| "the figures of the last run cannot be read".into())
}

/// Beside the profile's folder in which this program is.
fn path(backend: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).ok_or("this program is in no folder")?;
    Ok(target.join("benchmarks").join(format!("{backend}.json")))
}

fn to_json(results: &Results) -> Value {
    let row = |row: &Row| json!([row.workload, row.subject, row.unit.name(), row.values]);
    let left_out = |left_out: &LeftOut| json!([left_out.workload, left_out.subject, left_out.why, left_out.is_failure]);
    json!({
        "backend": results.backend,
        "command": results.command,
        "date": results.date,
        "took": results.took.as_secs_f64(),
        "versions": results.versions,
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "left_out": results.left_out.iter().map(left_out).collect::<Vec<_>>(),
    })
}

fn from_json(value: &Value) -> Option<Results> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let version = |pair: &Value| Some((text(&pair[0])?, text(&pair[1])?));
    let row = |row: &Value| {
        Some(Row {
            workload: text(&row[0])?,
            subject: text(&row[1])?,
            unit: row[2].as_str()?.parse().ok()?,
            values: row[3].as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?,
        })
    };
    let left_out = |left_out: &Value| {
        Some(LeftOut {
            workload: text(&left_out[0])?,
            subject: text(&left_out[1])?,
            why: text(&left_out[2])?,
            is_failure: left_out[3].as_bool()?,
        })
    };
    Some(Results {
        backend: text(&value["backend"])?,
        command: text(&value["command"])?,
        date: text(&value["date"])?,
        took: Duration::try_from_secs_f64(value["took"].as_f64()?).ok()?,
        versions: value["versions"]
            .as_array()?
            .iter()
            .map(version)
            .collect::<Option<_>>()?,
        rows: value["rows"].as_array()?.iter().map(row).collect::<Option<_>>()?,
        left_out: value["left_out"]
            .as_array()?
            .iter()
            .map(left_out)
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use benchmarks_load::Unit;

    use super::*;
    use crate::results::tests::{none, row};

    #[test]
    fn are_read_as_they_were_written() {
        let results = Results {
            versions: vec![("server".into(), "7".into())],
            rows: vec![row("own-1", "polylock", Unit::PairsPerSecond, &[1.5, 2.0])],
            left_out: vec![LeftOut {
                workload: "own-1".into(),
                subject: "redsync".into(),
                why: "there is no go".into(),
                is_failure: true,
            }],
            ..none("redis")
        };
        let read = from_json(&to_json(&results)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{results:?}"));
        assert!(from_json(&json!({})).is_none());
    }
}
