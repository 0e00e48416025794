//! The jobs of child processes.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::child::{BELIEVES, SECOND};
use crate::counter::RemoteCounter;
use crate::parent::Parent;
use crate::subject::{Ask, State, Subject};

/// A child process's job, which it gets as one line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Acquires, says `held TOKEN`; on `check` says whether it is lost; on `release` releases and says how it went.
    Hold {
        name: String,
        ttl: Duration,
        minimum: Option<Duration>,
    },
    /// Asks for a name that is held and acquires another one, again and again; says `asking TOKEN` after the first time.
    Ask { held: String, own: String, ttl: Duration },
    /// Campaigns, says `leads TERM`, and leads until it is killed.
    Lead { name: String, ttl: Duration },
    /// Adds to the counter at this address, so many times, holding the lock; then says `counted`.
    Count {
        name: String,
        ttl: Duration,
        rounds: u32,
        counter: SocketAddr,
    },
}

impl Job {
    pub(crate) async fn run(self, subject: Arc<dyn Subject>, parent: Parent) {
        match self {
            Self::Hold { name, ttl, minimum } => {
                let mut ask = Ask::new(name, ttl);
                ask.minimum = minimum;
                hold(&*subject, &ask, parent).await;
            }
            Self::Ask { held, own, ttl } => {
                ask(&*subject, &Ask::new(held, ttl), &Ask::new(own, ttl), &parent).await;
            }
            Self::Lead { name, ttl } => lead(&*subject, &name, ttl, parent).await,
            Self::Count {
                name,
                ttl,
                rounds,
                counter,
            } => {
                count(&*subject, &Ask::new(name, ttl), rounds, counter).await;
                parent.say("counted");
            }
        }
    }
}

async fn hold(subject: &dyn Subject, ask: &Ask, mut parent: Parent) {
    let guard = match subject.acquire(ask).await {
        Ok(Some(guard)) => guard,
        other => return parent.say(&format!("failed {other:?}")),
    };
    parent.say(&format!("held {}", guard.token()));
    loop {
        match parent.command().await.as_str() {
            "check" => parent.say(if guard.state() == State::Lost { "lost" } else { BELIEVES }),
            "release" => {
                let released = guard.release().await;
                return parent.say(&match released {
                    Ok(_) => "released".to_owned(),
                    Err(error) => format!("failed {:?}", error.kind()),
                });
            }
            other => return parent.say(&format!("failed: no such command: {other}")),
        }
    }
}

/// Until it is killed.
async fn ask(subject: &dyn Subject, held: &Ask, own: &Ask, parent: &Parent) {
    let (a_try, a_wait) = (held.clone().trying(), held.clone().within(Duration::from_millis(1)));
    let mut is_said = false;
    loop {
        match subject.acquire(&a_try).await {
            Ok(None) => {}
            Ok(Some(guard)) => return parent.say(&format!("{SECOND}, token {}", guard.token())),
            other => panic!("try {:?}, which is held: {other:?}", held.name),
        }
        let guard = match subject.acquire(own).await {
            Ok(Some(guard)) => guard,
            other => panic!("acquire {:?}: {other:?}", own.name),
        };
        if !std::mem::replace(&mut is_said, true) {
            parent.say(&format!("asking {}", guard.token()));
        }
        guard.release().await.unwrap_or_else(|error| panic!("release: {error}"));
        if let Ok(Some(guard)) = subject.acquire(&a_wait).await {
            return parent.say(&format!("{SECOND}, token {}", guard.token()));
        }
    }
}

/// Until it is killed.
async fn lead(subject: &dyn Subject, name: &str, ttl: Duration, mut parent: Parent) {
    let Some(candidate) = subject.candidate(name, ttl, "child") else {
        return parent.say("failed: no elections");
    };
    match candidate.campaign().await {
        Ok(term) => {
            parent.say(&format!("leads {}", term.token()));
            parent.command().await;
        }
        Err(error) => parent.say(&format!("failed {error}")),
    }
}

async fn count(subject: &dyn Subject, ask: &Ask, rounds: u32, counter: SocketAddr) {
    let counter = RemoteCounter::connect(counter).await;
    let mut counter = counter.unwrap_or_else(|error| panic!("connect to the counter: {error}"));
    for _ in 0..rounds {
        let guard = match subject.acquire(ask).await {
            Ok(Some(guard)) => guard,
            other => panic!("acquire {:?}: {other:?}", ask.name),
        };
        let number = counter.read().await;
        let number = number.unwrap_or_else(|error| panic!("read the counter: {error}"));
        let written = counter.write(number + 1).await;
        written.unwrap_or_else(|error| panic!("write the counter: {error}"));
        guard.release().await.unwrap_or_else(|error| panic!("release: {error}"));
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold { name, ttl, minimum } => {
                write!(f, "hold {name} {}", ttl.as_millis())?;
                match minimum {
                    Some(minimum) => write!(f, " {}", minimum.as_millis()),
                    None => Ok(()),
                }
            }
            Self::Ask { held, own, ttl } => write!(f, "ask {held} {own} {}", ttl.as_millis()),
            Self::Lead { name, ttl } => write!(f, "lead {name} {}", ttl.as_millis()),
            Self::Count {
                name,
                ttl,
                rounds,
                counter,
            } => {
                write!(f, "count {name} {} {rounds} {counter}", ttl.as_millis())
            }
        }
    }
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let millis = |text: &str| {
            text.parse()
                .map(Duration::from_millis)
                .map_err(|error| format!("{text:?}: {error}"))
        };
        match text.splitn(5, ' ').collect::<Vec<_>>().as_slice() {
            ["hold", name, ttl, minimum @ ..] if minimum.len() <= 1 => Ok(Self::Hold {
                name: (*name).to_owned(),
                ttl: millis(ttl)?,
                minimum: minimum.first().copied().map(millis).transpose()?,
            }),
            ["ask", held, own, ttl] => Ok(Self::Ask {
                held: (*held).to_owned(),
                own: (*own).to_owned(),
                ttl: millis(ttl)?,
            }),
            ["lead", name, ttl] => Ok(Self::Lead {
                name: (*name).to_owned(),
                ttl: millis(ttl)?,
            }),
            ["count", name, ttl, rounds, counter] => Ok(Self::Count {
                name: (*name).to_owned(),
                ttl: millis(ttl)?,
                rounds: rounds.parse().map_err(|error| format!("{rounds:?}: {error}"))?,
                counter: counter.parse().map_err(|error| format!("{counter:?}: {error}"))?,
            }),
            _ => Err(format!("not a job: {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_the_way_to_its_process() {
        let jobs = [
            Job::Hold {
                name: "a".to_owned(),
                ttl: Duration::from_millis(1500),
                minimum: None,
            },
            Job::Hold {
                name: "a".to_owned(),
                ttl: Duration::from_millis(1500),
                minimum: Some(Duration::from_secs(3)),
            },
            Job::Ask {
                held: "a".to_owned(),
                own: "b".to_owned(),
                ttl: Duration::from_secs(1),
            },
            Job::Lead {
                name: "a".to_owned(),
                ttl: Duration::from_secs(1),
            },
            Job::Count {
                name: "a".to_owned(),
                ttl: Duration::from_secs(1),
                rounds: 7,
                counter: ([127, 0, 0, 1], 4000).into(),
            },
        ];
        for job in jobs {
            assert_eq!(job.to_string().parse(), Ok(job));
        }
        assert!("dance".parse::<Job>().is_err());
    }
}
