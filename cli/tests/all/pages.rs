//! docs/shell.md and README.md: their examples run, and they say what `--help` says.

use std::process::Command;

use crate::support::{redis, run};

const PAGE: &str = include_str!("../../../docs/shell.md");
const README: &str = include_str!("../../README.md");

/// The texts of the blocks in this language.
fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = page.split(fence.as_str()).skip(1);
    blocks
        .map(|rest| rest.split("```").next().expect("it has an end"))
        .collect()
}

/// The command lines of `polylock run` in a unit or a manifest, without the command.
fn options(text: &str) -> Vec<Vec<String>> {
    let plain = text.replace(['[', ']', ','], " ");
    let lines = plain
        .lines()
        .filter_map(|line| line.split_once("polylock ").or_else(|| line.split_once("polylock  ")));
    let words = lines.map(|(_, options)| options.split_whitespace().map(String::from).collect::<Vec<_>>());
    words
        .filter(|words| words.first().is_some_and(|first| first == "run"))
        .collect()
}

#[testbed::test]
async fn the_scripts_of_the_page_run() {
    let server = redis().await;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_polylock"));
    let folders = [program.parent().expect("a folder").to_owned()];
    let system = std::env::var_os("PATH").expect("it is set");
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&system))).expect("no colons");
    let scripts = blocks(PAGE, "sh");
    assert!(scripts.len() > 8, "{scripts:?}");
    for script in scripts {
        let script = script.replace("redis://127.0.0.1\n", &format!("{}\n", server.url()));
        let folder = tempfile::tempdir().expect("a folder");
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", &script]).current_dir(folder.path());
        let output = shell
            .env("PATH", &path)
            .env("POLYLOCK_URL", server.url())
            .output()
            .expect("there is a shell");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{script}: {output:?}"
        );
        let said = String::from_utf8_lossy(&output.stdout);
        for expected in script.split("echo \"").skip(1) {
            let expected = expected.split(['$', '"']).next().expect("a part");
            assert!(
                said.contains(expected) || expected.starts_with("lost"),
                "{script}: {said}"
            );
        }
    }
}

#[test]
fn the_units_and_manifests_have_options_that_there_are() {
    let mut seen = 0;
    for text in ["ini", "yaml", "text"]
        .iter()
        .flat_map(|language| blocks(PAGE, language))
    {
        for mut line in options(text) {
            let end = line.iter().position(|word| word == "--").expect("a command");
            line.truncate(end);
            if !line.iter().any(|word| word == "--try") {
                line.extend(["--wait", "100ms"].map(Into::into));
            }
            line.extend(["--connect-timeout", "100ms", "--", "true"].map(Into::into));
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            // The options are read and judged before it is found out that no server is there.
            let ended = run("redis://127.0.0.1:1", &line);
            assert_eq!(ended.code, Some(69), "{line:?}: {ended:?}");
            assert!(!ended.messages.contains("warning"), "{line:?}: {ended:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn units_have_what_polylock_needs() {
    for unit in blocks(PAGE, "ini") {
        for line in [
            "[Unit]",
            "[Service]",
            "EnvironmentFile=/etc/polylock/url",
            "KillMode=mixed",
        ] {
            assert!(unit.lines().any(|there| there == line), "{line}: {unit}");
        }
    }
}

#[test]
fn the_tables_of_the_readme_are_those_of_the_help() {
    let help = run("", &["run", "--help"]).output.join("\n");
    let rows = |heading: &str| -> Vec<&str> {
        let section = README
            .split(heading)
            .nth(1)
            .expect("the section")
            .split("\n## ")
            .next()
            .expect("a part");
        let rows = section
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        rows.skip(1).collect()
    };
    let codes = rows("## Exit codes");
    assert!(codes.len() > 10, "{codes:?}");
    for code in codes
        .iter()
        .flat_map(|row| row.split([',', ' ']))
        .filter(|word| word.parse::<u8>().is_ok())
    {
        assert!(
            help.contains(&format!("{code}  ")) || code == "128",
            "{code} is not in the help"
        );
    }
    let variables = rows("## Environment");
    assert_eq!(variables.len(), 7);
    for variable in variables {
        assert!(help.contains(variable.trim_matches('`')), "{variable}");
    }
}

#[test]
fn the_man_page_has_every_option_of_run() {
    let man = run("", &["man"]).output.join("\n").replace("\\-", "-");
    for option in [
        "--on-loss",
        "--at-least",
        "--stop-before",
        "--token-file",
        "--url-file",
        "--watch",
        "POLYLOCK_LOST_FD",
    ] {
        assert!(man.contains(option), "{option}");
    }
}
