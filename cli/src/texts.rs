//! Completions and the man page, made from the description of the command line.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Code, Failure};

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "polylock", &mut text);
    print(&text)
}

/// Prints the man page, in roff: the page of `polylock`, then those of its subcommands.
pub(crate) fn man() -> Result<Code, Failure> {
    let mut text = Vec::new();
    let mut command = Cli::command();
    command.build();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut text);
    rendered.map_err(|error| Failure::os("cannot write the man page", &error))?;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let page = clap_mangen::Man::new(subcommand.clone());
        let heading = format!(".SH \"POLYLOCK {}\"\n", subcommand.get_name().to_uppercase());
        text.extend_from_slice(heading.as_bytes());
        page.render_synopsis_section(&mut text)
            .and_then(|()| page.render_description_section(&mut text))
            .and_then(|()| page.render_options_section(&mut text))
            .and_then(|()| page.render_extra_section(&mut text))
            .map_err(|error| Failure::os("cannot write the man page", &error))?;
    }
    print(&text)
}

fn print(text: &[u8]) -> Result<Code, Failure> {
    let mut stdout = io::stdout();
    let written = stdout.write_all(text).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::os("cannot write to standard output", &error))?;
    Ok(Code::SUCCESS)
}
