use clap::Parser;

use super::*;
use crate::cli::{Cli, Subcommand};

fn arguments(options: &[&str]) -> RunArgs {
    let line = ["polylock", "run", "--lock", "a", "--shell", "x"].iter().chain(options);
    match Cli::try_parse_from(line).unwrap().subcommand {
        Subcommand::Run(arguments) => *arguments,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_ends_a_grace_before_the_lease_if_the_ttl_has_room() {
    let seconds = Duration::from_secs;
    let time = |options: &[&str], ttl| stop_before(&arguments(options), seconds(ttl)).map_err(|failure| failure.code);
    assert_eq!(time(&[], 30), Ok(seconds(5)));
    assert_eq!(time(&["--grace", "2s"], 30), Ok(seconds(2)));
    assert_eq!(time(&[], 10), Ok(Duration::ZERO));
    assert_eq!(time(&["--stop-before", "5s"], 10), Ok(seconds(5)));
    assert_eq!(time(&["--stop-before", "6s"], 10), Err(Code::USAGE));
    assert_eq!(
        time(&["--on-loss", "ignore", "--i-have-fencing"], 30),
        Ok(Duration::ZERO)
    );
}

#[test]
fn a_text_is_a_shell_s() {
    let line = command_line(&arguments(&[]));
    assert_eq!(line, ["/bin/sh", "-c", "x"]);
}
