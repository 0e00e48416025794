//! Which process group has the terminal.

use std::fs::File;
use std::io::{stdin, stdout};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// Whether standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
    isatty(stdin())
}

/// Whether standard input is our terminal, and another group has it: we are in the background.
pub(crate) fn is_of_others() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|owner| owner != getpgrp())
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

/// Gives the terminal of standard input to the group of this process, if that group has it, which has ended.
pub(crate) fn take_from(ended: Pid) {
    if tcgetpgrp(stdin()).is_ok_and(|owner| owner == ended) {
        // We are in the background: the system would stop us.
        let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        if let Ok(before) = before {
            // It fails if the terminal has gone: then nobody needs it.
            let _ = tcsetpgrp(stdin(), getpgrp());
            // It cannot fail with a mask that there was.
            let _ = before.thread_set_mask();
        }
    }
}

/// Lets this thread write to the terminal, and read from it, while another group has it. Otherwise the system would stop the whole
/// process: for each read, and after `stty tostop` for each write. Now a read fails. Threads that this one starts have the same, and so
/// would programs.
pub(crate) fn use_from_background() {
    let signals = SigSet::from_iter([Signal::SIGTTIN, Signal::SIGTTOU]);
    // It cannot fail with signals that there are.
    let _ = signals.thread_block();
}
