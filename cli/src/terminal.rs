//! Which process group has the terminal.

use std::fs::File;
use std::io::{stdin, stdout};

use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// Whether standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
    isatty(stdin())
}

/// Whether the terminal sends its signals to the group of this process, wherever its input and output go.
pub(crate) fn is_ours() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|owner| owner == getpgrp()))
}

/// Whether standard output is a terminal.
pub(crate) fn shows_output() -> bool {
    isatty(stdout())
}

/// Gives the terminal of standard input to this group, if the group of this process has it: the system would stop any other
/// process that tries.
pub(crate) fn give_to(group: Pid) {
    if tcgetpgrp(stdin()).is_ok_and(|owner| owner == getpgrp()) {
        // It fails if the group has ended meanwhile: then nobody needs it.
        let _ = tcsetpgrp(stdin(), group);
    }
}
