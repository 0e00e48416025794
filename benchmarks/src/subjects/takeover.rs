//! `takeover-resign`, `takeover-close`, `takeover-kill`: how long nobody leads after a leader resigned, closed its client, or
//! was killed. Leader and follower are processes of their own.

use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};
use benchmarks_programs::Program;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::candidate::CANDIDATE;
use crate::entry::Backend;
use crate::participant::Participant;
use crate::workload::LeaderEnd;

/// The TTL of everybody, and the timeout of their sessions: polylock's default on ZooKeeper.
const TTL: Duration = Duration::from_secs(10);
/// How long a candidate is given to wait at the server, after it has said that it campaigns.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a candidate may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Candidates of one library.
pub(crate) struct TakeOver {
    program: Program,
    end: LeaderEnd,
    /// The one that leads, and the one that waits.
    pair: Option<(Candidate, Candidate)>,
}

impl TakeOver {
    /// Of polylock.
    pub(crate) fn of_polylock(backend: Backend, url: &str, end: LeaderEnd) -> Result<Self> {
        let mut program = Program::new(std::env::current_exe()?);
        program.arguments = [CANDIDATE, backend.name(), url].map(Into::into).into();
        Ok(Self::new(program, "polylock", end))
    }

    /// Of a program to which the election's name and the TTL are given.
    pub(crate) fn new(mut program: Program, subject: &str, end: LeaderEnd) -> Self {
        let name = format!("{subject}-{end}");
        let ttl = TTL.as_millis().to_string();
        program.arguments.extend([name.into(), ttl.into()]);
        Self {
            program,
            end,
            pair: None,
        }
    }

    /// One take-over, from the order on until the follower says that it leads.
    async fn once(&mut self) -> Result<Duration> {
        let (mut leader, mut follower) = self.pair.take().ok_or("nobody leads")?;
        if self.end == LeaderEnd::Kill {
            // Anywhere between two renewals.
            sleep((TTL / 3).mul_f64(rand::random())).await;
        }
        let began = Instant::now();
        match self.end {
            LeaderEnd::Resign => leader.order("resign").await?,
            LeaderEnd::Close => leader.order("close").await?,
            LeaderEnd::Kill => leader.child.start_kill()?,
        }
        follower.says("leads").await?;
        let took = began.elapsed();
        let next = match self.end {
            LeaderEnd::Resign => {
                leader.says("waits").await?;
                // It pauses before that, or after.
                sleep(TTL / 3).await;
                leader
            }
            LeaderEnd::Close | LeaderEnd::Kill => Candidate::start(&self.program).await?,
        };
        sleep(SETTLE).await;
        self.pair = Some((follower, next));
        Ok(took)
    }
}

#[async_trait]
impl Participant for TakeOver {
    async fn enter(&mut self) -> Result<()> {
        let mut leader = Candidate::start(&self.program).await?;
        leader.says("leads").await?;
        let follower = Candidate::start(&self.program).await?;
        sleep(SETTLE).await;
        self.pair = Some((leader, follower));
        Ok(())
    }

    async fn round(&mut self, _time: Duration) -> Result<Figures> {
        let took = self.once().await?;
        Ok(vec![(Unit::MicrosMedian, took.as_secs_f64() * 1e6)])
    }

    async fn leave(&mut self) {
        self.pair = None;
    }
}

/// A process, which ends with this.
struct Candidate {
    child: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Candidate {
    /// Starts one, which campaigns.
    async fn start(program: &Program) -> Result<Self> {
        let mut child = Command::from(program.command())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut candidate = Self {
            orders: child.stdin.take().ok_or("it has no input")?,
            said: BufReader::new(child.stdout.take().ok_or("it has no output")?).lines(),
            child,
        };
        candidate.says("waits").await?;
        Ok(candidate)
    }

    async fn order(&mut self, order: &str) -> Result<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    async fn says(&mut self, expected: &str) -> Result<()> {
        let Ok(line) = timeout(PATIENCE, self.said.next_line()).await else {
            return Err(format!("a candidate did not say {expected:?} within {PATIENCE:?}").into());
        };
        match line?.ok_or("a candidate's process has ended")? {
            line if line == expected => Ok(()),
            line => Err(format!("a candidate was to say {expected:?}, and said {line:?}").into()),
        }
    }
}
