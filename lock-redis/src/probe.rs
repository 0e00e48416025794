//! What is asked of a server when a connection to it is made: whether it can keep locks at all, and whether its settings
//! make it forget some.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use lock_core::{Error, ErrorKind, Result};
use redis::{Cmd, InfoDict, Value, cmd, from_redis_value_ref};

pub(crate) mod permissions;

/// What becomes of the [`Finding`]s about a server's settings. Defaults to [`Warn`](Self::Warn).
///
/// What cannot work at all is refused by the first two: a server before version 7, a node of a Redis Cluster, a
/// Sentinel, a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checks {
    /// Each is told once per run of the server, by `tracing` at level `WARN`, and
    /// [`findings`](crate::RedisBackend::findings) has them.
    #[default]
    Warn,
    /// Connecting fails as misconfigured. It fails as denied where the user may not ask (`INFO`).
    Refuse,
    /// Nothing is asked.
    Off,
}

/// A setting of the server by which a lock that was granted can be lost. Shows the reason and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// `maxmemory-policy` lets it evict keys that end by themselves, as locks do.
    Evicts {
        /// The policy.
        policy: String,
    },
    /// `appendonly no`.
    KeepsNothing,
    /// `appendfsync` lets it answer before what it answers is on disk.
    KeepsLate {
        /// The setting: `everysec` or `no`.
        appendfsync: String,
    },
}

/// Asks, judges, and tells each run of a server only once.
#[derive(Debug)]
pub(crate) struct Checker {
    checks: Checks,
    last: Mutex<Option<Told>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    run: Option<String>,
    findings: Vec<Finding>,
}

impl Checker {
    pub(crate) fn new(checks: Checks) -> Self {
        Self {
            checks,
            last: Mutex::new(None),
        }
    }

    /// To be sent when a connection is made. Any of them may be refused.
    pub(crate) fn questions(&self) -> Vec<Cmd> {
        if self.checks == Checks::Off {
            return Vec::new();
        }
        let mut config = cmd("CONFIG");
        config.arg("GET").arg("appendfsync");
        vec![cmd("INFO"), config]
    }

    /// What the answers mean for a connection to `server`.
    pub(crate) fn judge(&self, answers: &[Value], server: &dyn fmt::Display) -> Result<()> {
        let [info, config] = answers else { return Ok(()) };
        let facts = Facts::new(info, config);
        if facts.is_unknown() {
            if self.checks == Checks::Refuse {
                let what = format!(
                    "Redis at {server} does not tell its settings: permit +info (and +config|get), or set checks=warn"
                );
                return Err(Error::new(ErrorKind::Denied, what));
            }
            return Ok(());
        }
        if let Some(obstacle) = obstacle(&facts) {
            return Err(obstacle.explain(server));
        }
        let findings = findings(&facts);
        if self.checks == Checks::Refuse && !findings.is_empty() {
            let reasons: Vec<String> = findings.iter().map(Finding::to_string).collect();
            let what = format!("Redis at {server} can lose locks: {}", reasons.join("; "));
            return Err(Error::new(ErrorKind::Misconfigured, what));
        }
        for finding in self.news(facts.run, findings) {
            tracing::warn!(server = %server, "this Redis can lose locks: {finding}");
        }
        Ok(())
    }

    /// Those of the server that was connected to last.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|told| told.findings.clone()).unwrap_or_default()
    }

    /// What was not said of this run before.
    fn news(&self, run: Option<String>, findings: Vec<Finding>) -> Vec<Finding> {
        let told = Told { run, findings };
        // Every critical section leaves it whole.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last
            .take()
            .filter(|last| last.run == told.run)
            .map(|last| last.findings);
        let is_new = |finding: &&Finding| known.as_ref().is_none_or(|known| !known.contains(finding));
        let news = told.findings.iter().filter(is_new).cloned().collect();
        *last = Some(told);
        news
    }
}

/// What a server says of itself. `None`: it does not.
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
}

/// Why a server cannot keep locks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Obstacle {
    Old(String),
    Cluster,
    Sentinel,
    Replica,
}

impl Facts {
    fn new(info: &Value, config: &Value) -> Self {
        let said: Option<InfoDict> = from_redis_value_ref(info).ok();
        let get = |key: &str| said.as_ref().and_then(|said| said.get::<String>(key));
        let settings: Option<std::collections::HashMap<String, String>> = from_redis_value_ref(config).ok();
        Self {
            version: get("redis_version"),
            run: get("run_id"),
            // Redis's and Valkey's.
            mode: get("redis_mode").or_else(|| get("server_mode")),
            role: get("role"),
            policy: get("maxmemory_policy"),
            appendonly: get("aof_enabled").map(|enabled| enabled == "1"),
            appendfsync: settings.and_then(|mut settings| settings.remove("appendfsync")),
        }
    }

    fn is_unknown(&self) -> bool {
        *self
            == Self {
                appendfsync: self.appendfsync.clone(),
                ..Self::default()
            }
    }
}

fn obstacle(facts: &Facts) -> Option<Obstacle> {
    match facts.mode.as_deref() {
        Some("cluster") => return Some(Obstacle::Cluster),
        Some("sentinel") => return Some(Obstacle::Sentinel),
        _ => {}
    }
    if let Some(version) = &facts.version
        && is_old(version)
    {
        return Some(Obstacle::Old(version.clone()));
    }
    // Also one that takes writes: it forgets them as soon as it follows its primary again.
    (facts.role.as_deref() == Some("slave")).then_some(Obstacle::Replica)
}

/// Before 7.0: never tested.
fn is_old(version: &str) -> bool {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    // What is no number is somebody else's and may do.
    major.is_some_and(|major| major < 7)
}

fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(policy) = &facts.policy
        && policy != "noeviction"
    {
        findings.push(Finding::Evicts { policy: policy.clone() });
    }
    match (facts.appendonly, &facts.appendfsync) {
        (Some(false), _) => findings.push(Finding::KeepsNothing),
        (Some(true), Some(appendfsync)) if appendfsync != "always" => findings.push(Finding::KeepsLate {
            appendfsync: appendfsync.clone(),
        }),
        _ => {}
    }
    findings
}

impl Obstacle {
    fn explain(&self, server: &dyn fmt::Display) -> Error {
        let (kind, what) = match self {
            Self::Old(version) => (
                ErrorKind::Misconfigured,
                format!("is version {version}: version 7.0 or newer is needed"),
            ),
            Self::Cluster => (
                ErrorKind::Misconfigured,
                "is one node of a Redis Cluster, which this backend does not support: use a server of its own".into(),
            ),
            Self::Sentinel => (
                ErrorKind::Misconfigured,
                "is a Sentinel, which this backend does not support: put the primary's address into the URL".into(),
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

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts { policy } => write!(
                f,
                "with maxmemory-policy {policy} it may evict locks that are held: set maxmemory-policy noeviction"
            ),
            Self::KeepsNothing => f.write_str(
                "with appendonly no it forgets locks that are held when it restarts: set appendonly yes and \
                 appendfsync always",
            ),
            Self::KeepsLate { appendfsync } => write!(
                f,
                "with appendfsync {appendfsync} it may forget the last locks in a crash: set appendfsync always, or \
                 start a crashed server only after the longest ttl"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
