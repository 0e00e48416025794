//! The checks of a server when a connection to it is made: whether it can keep locks at all, and whether its settings can
//! lose some.

use std::collections::HashMap;
use std::fmt;

use lock_core::{Error, ErrorKind, Guarantee, Result, Verdict};
use parking_lot::Mutex;
use redis::{Cmd, InfoDict, Value, cmd, from_redis_value_ref};

use crate::config::Checks;

mod guarantees;

pub(crate) use self::guarantees::Setup;

/// A setting of the server that can lose a granted lock. Displays as the reason and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// `maxmemory-policy` allows evicting keys that expire, as locks do.
    Evicts {
        /// The policy.
        policy: String,
    },
    /// `appendonly no`: a restart loses all locks. Not reported with a
    /// [`restart_delay`](crate::RedisConfig::with_restart_delay), which makes up for it.
    NotPersistent,
    /// `appendfsync` allows a reply before its write is on disk. Not reported with a
    /// [`restart_delay`](crate::RedisConfig::with_restart_delay), which makes up for it.
    DelayedFsync {
        /// The setting: `everysec` or `no`.
        appendfsync: String,
    },
    /// `no-appendfsync-on-rewrite yes`: while the server saves or rewrites its files, `appendfsync always` allows a reply before its write is
    /// on disk, too. Not reported with a [`restart_delay`](crate::RedisConfig::with_restart_delay), which makes up for it.
    SuspendedFsync,
    /// `min-replicas-to-write 0` on a master with replicas: if it is cut off from them and one is promoted, both grant the same
    /// locks.
    GrantsAlone {
        /// The number of its replicas.
        replicas: u32,
    },
}

const APPENDFSYNC: &str = "appendfsync";
const NO_FSYNC_ON_REWRITE: &str = "no-appendfsync-on-rewrite";

/// Checks servers, and reports each finding only once per run of a server.
#[derive(Debug)]
pub(crate) struct Probe {
    checks: Checks,
    setup: Setup,
    last: Mutex<Option<Reported>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reported {
    run: Option<String>,
    findings: Vec<Finding>,
    facts: Facts,
}

impl Probe {
    pub(crate) fn new(checks: Checks, setup: Setup) -> Self {
        Self {
            checks,
            setup,
            last: Mutex::new(None),
        }
    }

    /// The commands to send when a connection is made. The server may reject any of them.
    pub(crate) fn commands(&self) -> Vec<Cmd> {
        if self.checks == Checks::Off {
            return Vec::new();
        }
        let mut config = cmd("CONFIG");
        config.arg("GET").arg(APPENDFSYNC).arg(NO_FSYNC_ON_REWRITE);
        vec![cmd("INFO"), config]
    }

    /// Checks whether a connection to `server` may be used, by its replies to [`commands`](Self::commands).
    pub(crate) fn evaluate(&self, replies: &[Value], server: &dyn fmt::Display) -> Result<()> {
        let [info, config] = replies else { return Ok(()) };
        let facts = Facts::new(info, config);
        if facts.is_unknown() {
            if self.checks == Checks::Refuse {
                let what = format!(
                    "Redis at {server} does not report its settings: permit +info (and +config|get), or set checks=warn"
                );
                return Err(Error::new(ErrorKind::Denied, what));
            }
            // The findings about an earlier server do not apply to this one.
            *self.last.lock() = None;
            return Ok(());
        }
        let unsuitable = match self.setup.is_cluster {
            true => unsuitable_node(&facts),
            false => unsuitable(&facts),
        };
        if let Some(unsuitable) = unsuitable {
            return Err(unsuitable.into_lock_error(server));
        }
        let findings = findings(&facts, self.setup.is_delayed);
        if self.checks == Checks::Refuse && !findings.is_empty() {
            let reasons: Vec<String> = findings.iter().map(Finding::to_string).collect();
            let what = format!("Redis at {server} can lose locks: {}", reasons.join("; "));
            return Err(Error::new(ErrorKind::Misconfigured, what));
        }
        for finding in self.unreported(facts, findings) {
            tracing::warn!(target: "polylock", server = %server, "this Redis can lose locks: {finding}");
        }
        Ok(())
    }

    /// The findings about the last server that was connected to.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let last = self.last.lock();
        last.as_ref()
            .map(|reported| reported.findings.clone())
            .unwrap_or_default()
    }

    /// The verdict of the last server that was connected to on a guarantee.
    pub(crate) fn keeps(&self, guarantee: Guarantee) -> Verdict {
        let last = self.last.lock();
        let unread = Facts::default();
        let facts = last.as_ref().map_or(&unread, |reported| &reported.facts);
        guarantees::keeps(guarantee, facts, self.setup)
    }

    /// The findings that were not reported for this run before.
    fn unreported(&self, facts: Facts, findings: Vec<Finding>) -> Vec<Finding> {
        let reported = Reported {
            run: facts.run.clone(),
            findings,
            facts,
        };
        // Every critical section leaves it whole.
        let mut last = self.last.lock();
        let known = last
            .take()
            .filter(|last| last.run == reported.run)
            .map(|last| last.findings);
        let is_new = |finding: &&Finding| known.as_ref().is_none_or(|known| !known.contains(finding));
        let unreported = reported.findings.iter().filter(is_new).cloned().collect();
        *last = Some(reported);
        unreported
    }
}

/// Facts that a server reports of itself. `None`: it does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    version: Option<String>,
    /// Another one after each start.
    run: Option<String>,
    /// "standalone", "cluster", "sentinel".
    mode: Option<String>,
    /// "master", "slave".
    role: Option<String>,
    policy: Option<String>,
    appendonly: Option<bool>,
    appendfsync: Option<String>,
    /// True if it does not do that while a child process of it writes.
    suspends_fsync: Option<bool>,
    replicas: Option<u32>,
    /// True if it needs some of them to accept a write.
    needs_replicas: bool,
}

/// Why a server cannot keep locks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unsuitable {
    Old(String),
    Cluster,
    NoCluster,
    Sentinel,
    Replica,
}

impl Facts {
    fn new(info: &Value, config: &Value) -> Self {
        let info: Option<InfoDict> = from_redis_value_ref(info).ok();
        let get = |key: &str| info.as_ref().and_then(|info| info.get::<String>(key));
        let settings: Option<HashMap<String, String>> = from_redis_value_ref(config).ok();
        let setting = |name| settings.as_ref().and_then(|settings| settings.get(name));
        Self {
            version: get("redis_version"),
            run: get("run_id"),
            // Redis's and Valkey's.
            mode: get("redis_mode").or_else(|| get("server_mode")),
            role: get("role"),
            policy: get("maxmemory_policy"),
            appendonly: get("aof_enabled").map(|enabled| enabled == "1"),
            replicas: get("connected_slaves").and_then(|count| count.parse().ok()),
            // It says so only if it needs some.
            needs_replicas: get("min_slaves_good_slaves").is_some(),
            appendfsync: setting(APPENDFSYNC).cloned(),
            suspends_fsync: setting(NO_FSYNC_ON_REWRITE).map(|setting| setting == "yes"),
        }
    }

    fn is_unknown(&self) -> bool {
        *self
            == Self {
                appendfsync: self.appendfsync.clone(),
                suspends_fsync: self.suspends_fsync,
                ..Self::default()
            }
    }
}

fn unsuitable(facts: &Facts) -> Option<Unsuitable> {
    match facts.mode.as_deref() {
        Some("cluster") => return Some(Unsuitable::Cluster),
        Some("sentinel") => return Some(Unsuitable::Sentinel),
        _ => {}
    }
    unfit(facts)
}

/// The same for a master of a cluster.
fn unsuitable_node(facts: &Facts) -> Option<Unsuitable> {
    match facts.mode.as_deref() {
        Some("standalone") => Some(Unsuitable::NoCluster),
        Some("sentinel") => Some(Unsuitable::Sentinel),
        _ => unfit(facts),
    }
}

/// By its version or its role.
fn unfit(facts: &Facts) -> Option<Unsuitable> {
    if let Some(version) = &facts.version
        && is_old(version)
    {
        return Some(Unsuitable::Old(version.clone()));
    }
    // Also one that takes writes: it forgets them as soon as it follows its primary again.
    (facts.role.as_deref() == Some("slave")).then_some(Unsuitable::Replica)
}

/// Before 7.0: never tested.
fn is_old(version: &str) -> bool {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    // Another product may not count its versions by numbers: let it pass.
    major.is_some_and(|major| major < 7)
}

/// `is_delayed`: a restart that forgets holds is waited out.
fn findings(facts: &Facts, is_delayed: bool) -> Vec<Finding> {
    let forgets = forgets(facts).filter(|_| !is_delayed);
    evicts(facts)
        .into_iter()
        .chain(forgets)
        .chain(grants_alone(facts))
        .collect()
}

fn evicts(facts: &Facts) -> Option<Finding> {
    let policy = facts.policy.clone().filter(|policy| policy != "noeviction")?;
    Some(Finding::Evicts { policy })
}

/// Of locks that are held, in a crash.
fn forgets(facts: &Facts) -> Option<Finding> {
    match (facts.appendonly, &facts.appendfsync) {
        (Some(false), _) => Some(Finding::NotPersistent),
        (Some(true), Some(appendfsync)) if appendfsync != "always" => Some(Finding::DelayedFsync {
            appendfsync: appendfsync.clone(),
        }),
        (Some(true), Some(_)) if facts.suspends_fsync == Some(true) => Some(Finding::SuspendedFsync),
        _ => None,
    }
}

fn grants_alone(facts: &Facts) -> Option<Finding> {
    let replicas = facts
        .replicas
        .filter(|replicas| *replicas > 0 && !facts.needs_replicas)?;
    Some(Finding::GrantsAlone { replicas })
}

impl Unsuitable {
    fn into_lock_error(self, server: &dyn fmt::Display) -> Error {
        let (kind, what) = match self {
            Self::Old(version) => (
                ErrorKind::Misconfigured,
                format!("is version {version}: version 7.0 or newer is needed"),
            ),
            Self::Cluster => (
                ErrorKind::Misconfigured,
                "is one node of a Redis Cluster: begin the URL with redis+cluster://".into(),
            ),
            Self::NoCluster => (
                ErrorKind::Misconfigured,
                "is no node of a Redis Cluster: begin the URL with redis://".into(),
            ),
            Self::Sentinel => (
                ErrorKind::Misconfigured,
                "is a Sentinel: begin the URL with redis+sentinel://, and add the name of the master".into(),
            ),
            // It may be a primary the next time that we ask, or its name may lead to another server.
            Self::Replica => (
                ErrorKind::Unavailable,
                "is a replica: it may be failing over, else put the primary's address into the URL".into(),
            ),
        };
        Error::new(kind, format!("Redis at {server} {what}"))
    }
}

impl Finding {
    /// The way in which it loses locks.
    fn because(&self) -> String {
        match self {
            Self::Evicts { policy } => format!("with maxmemory-policy {policy} it may evict locks that are held"),
            Self::NotPersistent => "with appendonly no it forgets locks that are held when it restarts".to_owned(),
            Self::DelayedFsync { appendfsync } => {
                format!("with appendfsync {appendfsync} it may forget the last locks in a crash")
            }
            Self::SuspendedFsync => {
                "with no-appendfsync-on-rewrite yes it may forget the last locks in a crash while it saves its data"
                    .to_owned()
            }
            Self::GrantsAlone { replicas } => format!(
                "with min-replicas-to-write 0 and {replicas} replicas it goes on granting locks when it is cut off and a \
                 replica is promoted"
            ),
        }
    }

    /// The setting that helps.
    fn instead(&self) -> &'static str {
        match self {
            Self::Evicts { .. } => "set maxmemory-policy noeviction",
            Self::NotPersistent => {
                "set appendonly yes and appendfsync always, or give restart_delay=60s (the longest ttl, or more) in all \
                 processes"
            }
            Self::DelayedFsync { .. } => {
                "set appendfsync always, or give restart_delay=60s (the longest ttl, or more) in all processes"
            }
            Self::SuspendedFsync => {
                "set no-appendfsync-on-rewrite no, or give restart_delay=60s (the longest ttl, or more) in all processes"
            }
            Self::GrantsAlone { .. } => "set min-replicas-to-write 1 and min-replicas-max-lag 1",
        }
    }

    /// As the reason why a guarantee is not kept.
    fn verdict(&self) -> Verdict {
        Verdict::no(self.because(), self.instead())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.because(), self.instead())
    }
}

#[cfg(test)]
mod tests;
