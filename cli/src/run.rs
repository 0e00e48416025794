//! `polylock run`: acquire, start the command, wait for its end, end the rest, release.

use std::ffi::OsString;
use std::time::Duration;

use polylock::Locker;
use polylock::backend::Capabilities;
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::guarded::LossPipe;
use self::guarded::{Ended, Guarded};
use self::token_file::TokenFile;
use crate::acquire::{acquire, locker};
use crate::cli::{OnLoss, OutputArgs, RunArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::held::{Held, Loss};
use crate::message::say;
use crate::signals::{Reaction, Signals, WHILE_RUNNING, WHILE_WAITING, name, while_running, while_waiting};
use crate::{command, environment, message, terminal};

mod guarded;
mod token_file;

/// That of `--grace`.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// The time to wait until an acquire that is given up is undone.
const UNDONE_WITHIN: Duration = Duration::from_secs(1);

/// The time to wait for the answer to the release.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);

/// The time that the guard may take to kill the processes that the command has started.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// Runs the command while the lock is held. Returns the code to exit with.
///
/// # Errors
/// If nothing was started.
pub(crate) async fn run(
    arguments: RunArgs,
    server: &ServerArgs,
    output: OutputArgs,
    loss: LossPipe,
) -> Result<Code, Failure> {
    let line = command_line(&arguments);
    if arguments.on_loss == OnLoss::Ignore && !arguments.i_have_fencing {
        return Err(Failure::usage(
            "--on-loss ignore lets two commands run at once: say --i-have-fencing if what they change rejects old tokens",
        ));
    }
    command::check(&line[0], std::env::var_os("PATH").as_deref())?;
    let locks = locker(&arguments.lock, server, &line[0])?;
    let ttl = locks.lock(&arguments.lock.lock[0]).options().ttl;
    let term = Term::new(&locks.capabilities(), &arguments, ttl);
    let stop_before = stop_before(&arguments, term)?;
    if let Some(warning) = warning(&arguments, term, stop_before).filter(|_| !output.quiet) {
        say(&warning);
    }
    let token_file = arguments.token_file.as_deref().map(TokenFile::open).transpose()?;
    let mut signals = Signals::default();
    signals.listen(&WHILE_WAITING)?;
    let acquired = tokio::select! {
        biased;
        given_up = given_up(&mut signals) => Err(given_up),
        acquired = acquire(&locks, &arguments.lock, server.connect_timeout, arguments.on_unreachable, output) => acquired,
    };
    let held = match acquired {
        Ok(held) => held,
        Err(failure) => {
            // Requests that were sent are undone. A hold that is still there after this time ends with its TTL.
            let _ = timeout(UNDONE_WITHIN, locks.shutdown()).await;
            return Err(failure);
        }
    };
    let run = Run {
        stop_before: match &held {
            // A server may grant a shorter session timeout than was asked for.
            Some(held) if arguments.stop_before.is_none() => stop_before.min(held.valid_for() / 4),
            _ => stop_before,
        },
        arguments,
        output,
        ttl,
        token_file,
        held,
        has_lost: false,
    };
    run.with_lock(&locks, &line, signals, loss).await
}

fn command_line(arguments: &RunArgs) -> Vec<OsString> {
    match &arguments.shell {
        Some(text) => vec!["/bin/sh".into(), "-c".into(), text.clone()],
        None => arguments.command.clone(),
    }
}

/// The time for which a renewal keeps the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    time: Duration,
    /// Whether it is a session's timeout: else it is the TTL.
    is_session: bool,
}

impl Term {
    fn new(capabilities: &Capabilities, arguments: &RunArgs, ttl: Duration) -> Self {
        match capabilities.session_renewal && !arguments.lock.fixed {
            // Sessions refuse a shorter ttl.
            true => Self {
                time: capabilities.shortest_ttl,
                is_session: true,
            },
            false => Self {
                time: ttl,
                is_session: false,
            },
        }
    }

    fn name(self) -> &'static str {
        match self.is_session {
            true => "session timeout",
            false => "ttl",
        }
    }
}

/// The time between the end of the command and the end of the lease.
fn stop_before(arguments: &RunArgs, term: Term) -> Result<Duration, Failure> {
    let (whole, name) = (term.time, term.name());
    match arguments.stop_before {
        _ if arguments.on_loss == OnLoss::Ignore => Ok(Duration::ZERO),
        // Between two renewals, half of it may be left.
        Some(time) if time > whole / 2 => Err(Failure::usage(format!(
            "--stop-before {time:?} is more than half of the {name}, {whole:?}: a late renewal would end the command"
        ))),
        Some(time) => Ok(time),
        // A renewal that is late but succeeds must not end the command.
        None => Ok(arguments.grace.min(whole / 6)),
    }
}

/// If the default of `--stop-before` is less than the grace.
fn warning(arguments: &RunArgs, term: Term, stop_before: Duration) -> Option<String> {
    let (grace, whole, name) = (arguments.grace, term.time, term.name());
    // Nobody has chosen a short session timeout: `--help` tells it, and each run of a cron job need not.
    let is_default = term.is_session && grace <= DEFAULT_GRACE;
    if arguments.on_loss == OnLoss::Ignore || arguments.stop_before.is_some() || stop_before >= grace || is_default {
        return None;
    }
    let beyond = (grace - stop_before).as_secs_f64();
    Some(format!(
        "warning: if the lock is lost, the command may run on for {beyond:.1}s after its lease: choose a {name} of six times \
         the grace, {grace:?}, in place of {whole:?}, or set --stop-before"
    ))
}

/// Waits for a signal that ends the waiting.
async fn given_up(signals: &mut Signals) -> Failure {
    loop {
        let signal = signals.next().await;
        if while_waiting(signal) == Reaction::GiveUp {
            let message = format!(
                "ended by {} while waiting for the lock: nothing was started",
                name(signal)
            );
            return Failure::new(Code::of_signal(signal), message);
        }
    }
}

/// A run whose lock is acquired.
#[derive(Debug)]
struct Run {
    arguments: RunArgs,
    output: OutputArgs,
    ttl: Duration,
    stop_before: Duration,
    /// `None` once it is written.
    token_file: Option<TokenFile>,
    /// `None` without a lock, by `--on-unreachable run`.
    held: Option<Held>,
    has_lost: bool,
}

impl Run {
    async fn with_lock(
        mut self,
        locks: &Locker,
        line: &[OsString],
        mut signals: Signals,
        loss: LossPipe,
    ) -> Result<Code, Failure> {
        let ran = self.start_and_wait(line, &mut signals, loss).await;
        let survivors = ran.as_ref().map_or(&[][..], |ended| &ended.survivors);
        let released = match not_released(survivors, self.held.is_some(), self.ttl) {
            None => self.release(locks).await,
            Some(why) => Err(self.leave(why)),
        };
        let (lost_code, lost_ok) = (self.arguments.lock.lost_code, self.arguments.lost_ok);
        match ran?.code {
            _ if self.has_lost && !lost_ok => Ok(Code::new(lost_code)),
            code if code == Code::SUCCESS && self.arguments.strict_release => released.map(|()| code),
            code => Ok(code),
        }
    }

    async fn start_and_wait(
        &mut self,
        line: &[OsString],
        signals: &mut Signals,
        loss: LossPipe,
    ) -> Result<Ended, Failure> {
        let tokens = self.held.as_ref().map(Held::tokens);
        if let Some(file) = self.token_file.take() {
            // Without the lock, an old token must not pass for the command's.
            file.write(tokens.as_deref().unwrap_or_default())?;
        }
        // So that the messages come before what the command writes.
        message::flush();
        // A signal that came while the lock was granted.
        tokio::select! {
            biased;
            given_up = given_up(signals) => return Err(given_up),
            () = std::future::ready(()) => {}
        }
        signals.listen(&WHILE_RUNNING)?;
        let variables = environment::variables(tokens.as_deref(), self.ttl, loss.descriptor());
        let guarded = Guarded::start(&self.arguments, line, variables, loss)?;
        self.wait(guarded, signals).await
    }

    /// Waits for the command's end, and ends it if the lock is lost.
    async fn wait(&mut self, mut guarded: Guarded, signals: &mut Signals) -> Result<Ended, Failure> {
        let mut terminated: Option<Instant> = None;
        let mut kill_at = None;
        let mut give_up_at = None;
        loop {
            tokio::select! {
                biased;
                loss = lost(self.held.as_ref(), self.stop_before), if !self.has_lost => {
                    self.has_lost = true;
                    guarded.tell_loss();
                    kill_at = earlier(kill_at, self.end_command(&loss, &guarded));
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    kill_at = None;
                    give_up_at = earlier(give_up_at, Some(Instant::now() + KILLED_WITHIN));
                    guarded.kill();
                }
                () = sleep_until(give_up_at.unwrap_or_else(Instant::now)), if give_up_at.is_some() => {
                    give_up_at = None;
                    guarded.kill_guard();
                }
                ended = guarded.wait() => return ended,
                signal = signals.next() => {
                    let by_terminal = self.arguments.no_group && terminal::is_ours();
                    match while_running(signal, terminated.map(|at| at.elapsed()), by_terminal) {
                        Reaction::Kill => kill_at = Some(Instant::now()),
                        reaction => {
                            if signal == Signal::TERM {
                                terminated.get_or_insert_with(Instant::now);
                            }
                            guarded.react(reaction, signal);
                        }
                    }
                }
            }
        }
    }

    /// Returns when the command is to be killed.
    fn end_command(&self, loss: &Loss, guarded: &Guarded) -> Option<Instant> {
        match self.arguments.on_loss {
            OnLoss::Ignore => {
                say(&format!("{loss}; the command goes on, by --on-loss ignore"));
                None
            }
            OnLoss::Signal(Signal::KILL) => {
                say(&format!("{loss}; killing the command"));
                Some(Instant::now())
            }
            OnLoss::Signal(signal) => {
                guarded.react(Reaction::ForwardAndContinue, signal);
                say(&format!("{loss}; ending the command by {}", name(signal)));
                Some(Instant::now() + self.arguments.grace)
            }
        }
    }

    /// Leaves the lock to its TTL, and says why.
    fn leave(&mut self, why: String) -> Failure {
        // If it were dropped, it would be released in the background.
        std::mem::forget(self.held.take());
        say(&why);
        Failure::new(Code::UNAVAILABLE, why)
    }

    /// Releases the lock. A failure is said, and is one of the run only with `--strict-release`.
    async fn release(&mut self, locks: &Locker) -> Result<(), Failure> {
        let held = self.held.take();
        let released = timeout(RELEASED_WITHIN, async {
            let released = match held {
                Some(held) => held.release().await,
                None => Ok(()),
            };
            let shut_down = locks.shutdown().await;
            released.and(shut_down)
        });
        let failure = match released.await {
            Ok(Ok(())) => return Ok(()),
            // That is said already.
            Ok(Err(error)) if error.is_lost() && self.has_lost => return Ok(()),
            Ok(Err(error)) if error.is_lost() => {
                // This process was paused, and the command came to its end meanwhile.
                self.has_lost = true;
                say(&format!("{error}, while the command ran"));
                return Ok(());
            }
            Ok(Err(error)) => format!("the lock ends with its ttl, since it was not released: {error}"),
            Err(_) => format!(
                "the lock ends with its ttl, since the server did not answer to the release within {RELEASED_WITHIN:?}"
            ),
        };
        if !self.output.quiet {
            say(&failure);
        }
        Err(Failure::new(Code::UNAVAILABLE, failure))
    }
}

/// Why the lock is not released: what the command has started still runs.
fn not_released(survivors: &[Pid], is_held: bool, ttl: Duration) -> Option<String> {
    if survivors.is_empty() {
        return None;
    }
    let numbers: Vec<String> = survivors.iter().map(ToString::to_string).collect();
    let numbers = numbers.join(", ");
    Some(match is_held {
        true => format!("not released: {numbers} of the command cannot be killed; the lock ends with its ttl, {ttl:?}"),
        false => format!("{numbers} of the command cannot be killed"),
    })
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Waits for the loss of what is held.
async fn lost(held: Option<&Held>, stop_before: Duration) -> Loss {
    match held {
        Some(held) => held.lost(stop_before).await,
        None => std::future::pending().await,
    }
}

/// The times of a run with this TTL, if they are accepted.
#[cfg(test)]
pub(crate) fn times(arguments: &RunArgs, ttl: Duration) -> Option<(Duration, Option<String>)> {
    let term = Term::new(&Capabilities::default(), arguments, ttl);
    let stop_before = stop_before(arguments, term).ok()?;
    Some((stop_before, warning(arguments, term, stop_before)))
}

#[cfg(test)]
mod tests;
