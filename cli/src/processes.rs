//! The processes that a command has started, down to those that left its group: on Linux they become ours when their parent ends.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, kill_process, kill_process_group, waitid};

/// Makes this process the one that gets the orphans among its descendants. Linux alone has that.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // Linux before 3.4 refuses: then they are not found.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// The children of this process. None where the system does not tell.
pub(crate) fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<Pid> {
    let numbers = list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// Takes note of the end of all children that have ended, but this one, and returns those that live.
pub(crate) fn reap(but: Option<Pid>) -> Vec<Pid> {
    let mut alive = children();
    alive.retain(|child| {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // A child that is not there any more has ended, too.
        Some(*child) == but || matches!(waitid(WaitId::Pid(*child), ended), Ok(None))
    });
    alive
}

/// Sends the signal to these children, and to the groups of those that made one. A child's number is its own until we
/// have taken note of its end, and so is its group's.
///
/// `told` has the children that got it before.
pub(crate) fn signal(children: &[Pid], signal: Signal, ours: &[Pid], told: &mut HashSet<Pid>) {
    for child in children {
        if !told.insert(*child) {
            continue;
        }
        let group = getpgid(Some(*child)).ok().filter(|group| !ours.contains(group));
        // If this fails, the process has ended, or runs as another user. In the second case the caller sees that it
        // still runs.
        let _ = match group {
            Some(group) => kill_process_group(group, signal),
            None => kill_process(*child, signal),
        };
    }
}

/// The group of this process, and another one whose members are not all the command's.
pub(crate) fn our_groups(other: Option<Pid>) -> Vec<Pid> {
    [Some(getpgrp()), other].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_children_is_read() {
        let raw: Vec<i32> = numbers("12 345 \n")
            .iter()
            .map(|pid| pid.as_raw_nonzero().get())
            .collect();
        assert_eq!(raw, [12, 345]);
        assert!(numbers("").is_empty());
    }
}
