//! What each fault is injected into, and by which function.

use std::pin::Pin;

use conformance_tests::Link;

use crate::error::Result;
use crate::fault::Fault;
use crate::process::WorkerProcess;
use crate::servers::LockServer;

use self::Injection::{OnLink, OnProcess, OnServer};
use super::context::{Context, Struck};
use super::{link, process, redis, server};

/// Injects a fault into such a target, lets it last, and heals it.
pub(super) enum Injection {
    OnProcess(for<'a> fn(&'a mut Context, &'a WorkerProcess) -> Injecting<'a>),
    OnLink(for<'a> fn(&'a mut Context, &'a Link) -> Injecting<'a>),
    OnServer(for<'a> fn(&'a mut Context, &'a LockServer) -> Injecting<'a>),
}

type Injecting<'a> = Pin<Box<dyn Future<Output = Result<Struck>> + Send + 'a>>;

impl Injection {
    pub(super) fn of(fault: Fault) -> Self {
        match fault {
            Fault::Stop => OnProcess(|context, target| Box::pin(process::stop(context, target))),
            Fault::Gap => OnProcess(|context, target| Box::pin(process::gap(context, target))),
            Fault::Kill => OnProcess(|context, target| Box::pin(process::kill(context, target))),
            Fault::Hole => OnLink(|context, target| Box::pin(link::hole(context, target))),
            Fault::Oneway => OnLink(|context, target| Box::pin(link::oneway(context, target))),
            Fault::Delay => OnLink(|context, target| Box::pin(link::delay(context, target))),
            Fault::Reset => OnLink(|context, target| Box::pin(link::reset(context, target))),
            Fault::ReplyLoss => OnLink(|context, target| Box::pin(link::reply_loss(context, target))),
            Fault::ServerKill => OnServer(|context, target| Box::pin(server::kill(context, target))),
            Fault::ServerStop => OnServer(|context, target| Box::pin(server::stop(context, target))),
            Fault::ServerLose => OnServer(|context, target| Box::pin(server::lose(context, target))),
            Fault::Clock => OnServer(|context, target| Box::pin(server::clock_ahead(context, target))),
            Fault::ClockBack => OnServer(|context, target| Box::pin(server::clock_behind(context, target))),
            Fault::ClockBackForGood => {
                OnServer(|context, target| Box::pin(server::clock_behind_for_good(context, target)))
            }
            Fault::ClockRate => OnServer(|context, target| Box::pin(server::clock_faster(context, target))),
            Fault::ScriptFlush => OnServer(|context, target| Box::pin(redis::script_flush(context, target))),
            Fault::ClientKill => OnServer(|context, target| Box::pin(redis::client_kill(context, target))),
            Fault::MemoryFull => OnServer(|context, target| Box::pin(redis::memory_full(context, target))),
            Fault::DiskFull => OnServer(|context, target| Box::pin(redis::disk_full(context, target))),
            Fault::Failover => OnServer(|context, target| Box::pin(redis::failover(context, target))),
        }
    }

    /// Whether it strikes the server, and so all processes at once.
    pub(super) fn is_on_server(&self) -> bool {
        matches!(self, OnServer(_))
    }
}
