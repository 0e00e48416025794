//! The lease table.

mod broken;
mod cleaning;
mod clock;
mod connections;
mod contention;
mod crowd;
mod late;
mod list;
mod next_server;
mod read_only;
mod restart;
mod settings;
mod sharing;
mod sharing_contention;
mod sharing_waits;
mod statements;
mod strangers;
mod support;
mod waking;
