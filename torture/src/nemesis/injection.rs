//! The target of each fault, and the function that injects it.

use std::pin::Pin;

use conformance_tests::Link;

use crate::backend::Backend;
use crate::error::Result;
use crate::fault::Fault;
use crate::process::WorkerProcess;
use crate::servers::LockServer;

use super::context::{Context, Struck};
use super::{cluster, ensemble, link, mysql, postgres, process, quorum, redis, sentinel, server};

/// Injects a fault into such a target, lets it last, and heals it.
pub(super) enum Injection {
    Process(for<'a> fn(&'a mut Context, &'a WorkerProcess) -> Injecting<'a>),
    Link(for<'a> fn(&'a mut Context, &'a Link) -> Injecting<'a>),
    Server(for<'a> fn(&'a mut Context, &'a LockServer) -> Injecting<'a>),
}

type Injecting<'a> = Pin<Box<dyn Future<Output = Result<Struck>> + Send + 'a>>;

impl Injection {
    pub(super) fn of(fault: Fault) -> Self {
        match fault {
            Fault::Stop => Self::Process(|context, target| Box::pin(process::stop(context, target))),
            Fault::Gap => Self::Process(|context, target| Box::pin(process::gap(context, target))),
            Fault::Kill => Self::Process(|context, target| Box::pin(process::kill(context, target))),
            Fault::Hole => Self::Link(|context, target| Box::pin(link::hole(context, target))),
            Fault::Oneway => Self::Link(|context, target| Box::pin(link::oneway(context, target))),
            Fault::Delay => Self::Link(|context, target| Box::pin(link::delay(context, target))),
            Fault::Reset => Self::Link(|context, target| Box::pin(link::reset(context, target))),
            Fault::ReplyLoss => Self::Link(|context, target| Box::pin(link::reply_loss(context, target))),
            Fault::ServerKill => Self::Server(|context, target| Box::pin(server::kill(context, target))),
            Fault::ServerStop => Self::Server(|context, target| Box::pin(server::stop(context, target))),
            Fault::ServerLose => Self::Server(|context, target| Box::pin(server::lose(context, target))),
            Fault::Clock => Self::Server(|context, target| Box::pin(server::clock_ahead(context, target))),
            Fault::ClockBack => Self::Server(|context, target| Box::pin(server::clock_behind(context, target))),
            Fault::ClockBackForGood => {
                Self::Server(|context, target| Box::pin(server::clock_behind_for_good(context, target)))
            }
            Fault::ClockRate => Self::Server(|context, target| Box::pin(server::clock_faster(context, target))),
            Fault::ScriptFlush => Self::Server(|context, target| Box::pin(redis::script_flush(context, target))),
            Fault::ClientKill => Self::Server(|context, target| Box::pin(client_kill(context, target))),
            Fault::QueryKill => Self::Server(|context, target| Box::pin(query_kill(context, target))),
            Fault::ReadLock => Self::Server(|context, target| Box::pin(read_lock(context, target))),
            Fault::ConnectionsFull => Self::Server(|context, target| Box::pin(connections_full(context, target))),
            Fault::MemoryFull => Self::Server(|context, target| Box::pin(redis::memory_full(context, target))),
            Fault::DiskFull => Self::Server(|context, target| Box::pin(disk_full(context, target))),
            Fault::Failover => Self::Server(|context, target| Box::pin(redis::failover(context, target))),
            Fault::Demotion => Self::Server(|context, target| Box::pin(redis::demotion(context, target))),
            Fault::Reshard => Self::Server(|context, target| Box::pin(cluster::reshard(context, target))),
            Fault::SlotHalfway => Self::Server(|context, target| Box::pin(cluster::slot_halfway(context, target))),
            Fault::MasterKill => Self::Server(|context, target| Box::pin(master_kill(context, target))),
            Fault::MasterStop => Self::Server(|context, target| Box::pin(master_stop(context, target))),
            Fault::StaleReplica => Self::Server(|context, target| Box::pin(stale_replica(context, target))),
            Fault::PlannedFailover => Self::Server(|context, target| Box::pin(planned_failover(context, target))),
            Fault::SplitBrain => Self::Server(|context, target| Box::pin(sentinel::split_brain(context, target))),
            Fault::LeaderKill => Self::Server(|context, target| Box::pin(ensemble::leader_kill(context, target))),
            Fault::LeaderStop => Self::Server(|context, target| Box::pin(ensemble::leader_stop(context, target))),
            Fault::FollowerCut => Self::Server(|context, target| Box::pin(ensemble::follower_cut(context, target))),
            Fault::LeaderCut => Self::Server(|context, target| Box::pin(ensemble::leader_cut(context, target))),
            Fault::RollingRestart => {
                Self::Server(|context, target| Box::pin(ensemble::rolling_restart(context, target)))
            }
            Fault::MinorityKill => Self::Server(|context, target| Box::pin(quorum::minority_kill(context, target))),
            Fault::MajorityKill => Self::Server(|context, target| Box::pin(quorum::majority_kill(context, target))),
            Fault::NodeCut => Self::Process(|context, target| Box::pin(quorum::node_cut(context, target))),
            Fault::NodeDelay => Self::Process(|context, target| Box::pin(quorum::node_delay(context, target))),
        }
    }

    /// Whether the fault strikes the server, and so all processes at once.
    pub(super) fn is_on_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

async fn disk_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::MysqlRow | Backend::MysqlLease => mysql::disk_full(context, server).await,
        _ => redis::disk_full(context, server).await,
    }
}

async fn query_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::PostgresLease | Backend::PostgresSession => postgres::query_kill(context, server).await,
        _ => mysql::query_kill(context, server).await,
    }
}

async fn read_lock(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::PostgresLease | Backend::PostgresSession => postgres::read_lock(context, server).await,
        _ => mysql::read_lock(context, server).await,
    }
}

async fn connections_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::PostgresLease | Backend::PostgresSession => postgres::connections_full(context, server).await,
        _ => mysql::connections_full(context, server).await,
    }
}

async fn client_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::MysqlRow | Backend::MysqlLease => mysql::client_kill(context, server).await,
        Backend::PostgresLease | Backend::PostgresSession => postgres::client_kill(context, server).await,
        _ => redis::client_kill(context, server).await,
    }
}

async fn master_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::RedisCluster => cluster::master_kill(context, server).await,
        Backend::PostgresStandby => postgres::master_kill(context, server).await,
        _ => sentinel::master_kill(context, server).await,
    }
}

async fn master_stop(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::RedisCluster => cluster::master_stop(context, server).await,
        _ => sentinel::master_stop(context, server).await,
    }
}

async fn stale_replica(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::RedisCluster => cluster::stale_replica(context, server).await,
        Backend::PostgresStandby => postgres::stale_replica(context, server).await,
        _ => sentinel::stale_replica(context, server).await,
    }
}

async fn planned_failover(context: &mut Context, server: &LockServer) -> Result<Struck> {
    match context.targets.config.backend {
        Backend::RedisCluster => cluster::planned_failover(context, server).await,
        _ => sentinel::planned_failover(context, server).await,
    }
}
