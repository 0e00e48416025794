//! Fuzz targets: command lines, and what a command is told of its locks.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Command, CommandFactory, FromArgMatches};
use percent_encoding::percent_decode_str;
use polylock::{FencingToken, LockName};
use testbed_fuzz::fuzz;

use crate::cli::{Cli, Subcommand};
use crate::environment::token_file;
use crate::run::times;

const WORDS: &[&str] = &[
    "run ",
    "hold ",
    "status ",
    "list ",
    "break ",
    "doctor ",
    "bench ",
    "migrate ",
    "--lock ",
    "--lock=",
    "--url ",
    "redis://h",
    "--try ",
    "--wait ",
    "--ttl ",
    "--grace ",
    "--stop-before ",
    "--at-least ",
    "--on-loss ",
    "--i-have-fencing ",
    "--permits ",
    "--read ",
    "--label ",
    "--token ",
    "--tasks ",
    "--seconds ",
    "--shell ",
    "--require ",
    "--lost-code ",
    "--quiet ",
    "-- ",
    "ls ",
    "ignore",
    "term",
    "SIGKILL",
    "1/3",
    "4294967295",
    "18446744073709551615s",
    "8760h",
    "500ms",
    "5s",
    "0s",
    "fifo",
    "\u{e9}",
];

/// Options that are accepted can be carried out: each time can be added to a clock, and no sum or difference of them is
/// out of range.
#[test]
fn command_lines() {
    let seeds = &[
        "run --lock a --grace 18446744073709551615s -- ls",
        "run --lock a --grace 8760h -- ls",
        "run --lock a --stop-before 18446744073709551615s --shell ls",
        "run --lock a --permits 4294967295/4294967295 -- ls",
        "run --lock a --on-loss ignore --i-have-fencing -- ls",
        "hold --lock a --wait 18446744073709551615s",
        "break a --token 0",
        "bench --tasks 1,4294967295 --seconds 18446744073709551615",
        "run --lock=\u{e9} -- ",
    ];
    fuzz!(WORDS, seeds, |text| {
        let Ok(parsed) = parsed(text) else {
            return;
        };
        let Subcommand::Run(run) = parsed.subcommand else {
            return;
        };
        assert!(tokio::time::Instant::now().checked_add(run.grace).is_some(), "{text:?}");
        assert!(!run.lock.lock.is_empty(), "{text:?}");
        if let Some(permits) = run.lock.permits {
            assert!(0 < permits.take && permits.take <= permits.of, "{text:?}");
        }
        for ttl in [Duration::from_millis(1), Duration::from_secs(30), Duration::MAX] {
            if let Some((stop_before, _warning)) = times(&run, ttl) {
                assert!(stop_before <= ttl / 2, "{text:?}: {stop_before:?} of {ttl:?}");
            }
        }
    });
}

/// As `Cli::try_parse_from` does, with one description for all lines, since it takes long to build.
fn parsed(text: &str) -> Result<Cli, clap::Error> {
    thread_local! {
        static DESCRIPTION: RefCell<Command> = RefCell::new(Cli::command());
    }
    let line = ["polylock"]
        .into_iter()
        .chain(text.split(' ').filter(|part| !part.is_empty()));
    let matches = DESCRIPTION.with_borrow_mut(|command| command.try_get_matches_from_mut(line))?;
    Cli::from_arg_matches(&matches)
}

/// However the locks are called, the list of their tokens has a part for each, from which name and token can be read.
#[test]
fn lists_of_tokens() {
    let words = &["=", ",", "%", "%2C", "\n", "\u{e9}", "/", ":", "\0", " "];
    let seeds = &["a b", "a=b,c d%\u{e9}", "a\n7 %0A", "\u{e9} %C3%A9"];
    fuzz!(words, seeds, |text| {
        let names: BTreeSet<&str> = text.split(' ').collect();
        let names: Vec<LockName> = names.into_iter().filter_map(|name| LockName::new(name).ok()).collect();
        let token = FencingToken::new(7).expect("a token");
        let tokens: Vec<_> = names.iter().map(|name| (name.clone(), token)).collect();
        if tokens.len() < 2 {
            return;
        }
        let file = token_file(&tokens);
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines.len(), names.len(), "{file:?}");
        for (line, name) in lines.into_iter().zip(&names) {
            let (encoded, token) = line.split_once('=').expect("NAME=TOKEN");
            let decoded = percent_decode_str(encoded).decode_utf8().expect("UTF-8");
            assert_eq!((decoded.as_ref(), token), (name.as_str(), "7"), "{file:?}");
            assert!(!encoded.contains(','), "{file:?}");
        }
    });
}
