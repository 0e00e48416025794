//! One established connection, and its health.

use std::mem::discriminant;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lock_core::Error;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value, cmd};
use tokio::sync::{OnceCell, watch};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::acknowledger::Acknowledger;
use super::channels::Channels;
use super::dial::Dialed;
use super::followed::Followed;
use super::member::Member;
use super::queue::Queue;
use super::unloaded::Unloaded;
use super::window::{Room, Window};
use crate::error::is_reply;

/// One established connection. A clone is the same.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    generation: u64,
    /// The server's run, once it was asked; `None` if it does not say.
    run_id: OnceCell<Option<String>>,
    connection: MultiplexedConnection,
    #[cfg(feature = "tls")]
    _driver: Option<super::tls::Driver>,
    acknowledger: Option<Acknowledger>,
    member: Option<Member>,
    unloaded: Arc<Unloaded>,
    window: Arc<Window>,
    /// True if anything came from the server since the last heartbeat.
    heard: Arc<AtomicBool>,
    /// True if a request was sent since the last heartbeat.
    used: AtomicBool,
    /// The number of requests whose replies are waited for.
    unanswered: AtomicUsize,
    queue: Queue,
    channels: Arc<Channels>,
    followed: Arc<Followed>,
    health: watch::Sender<Health>,
}

/// The health of a connection: whether the server can be asked over it.
#[derive(Clone, Debug)]
pub(crate) enum Health {
    Healthy,
    /// The server was asked and has not replied for a while, as the error says.
    Silent(Error),
    /// The connection has ended, or nothing more is to be sent over it, for this reason.
    Ended(Error),
}

impl Session {
    pub(super) fn new(generation: u64, dialed: &Dialed) -> Self {
        Self(Arc::new(Inner {
            generation,
            run_id: OnceCell::new(),
            connection: dialed.connection.clone(),
            #[cfg(feature = "tls")]
            _driver: dialed.driver.clone(),
            acknowledger: dialed.acknowledger.clone(),
            member: dialed.member.clone(),
            unloaded: dialed.unloaded.clone(),
            window: Arc::new(Window::new()),
            heard: dialed.heard.clone(),
            used: AtomicBool::new(true),
            unanswered: AtomicUsize::new(0),
            queue: Queue::default(),
            channels: dialed.channels.clone(),
            followed: dialed.followed.clone(),
            health: watch::Sender::new(Health::Healthy),
        }))
    }

    /// The number of the connection. The server executes requests of one generation in the order in which they were
    /// sent. Exception: a script that the server has forgotten is sent once more, behind later requests.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// The run id of its server, if it was asked.
    pub(super) fn run_id(&self) -> &OnceCell<Option<String>> {
        &self.0.run_id
    }

    /// Its health, now and later.
    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.0.health.subscribe()
    }

    /// The reason why it is silent or has ended, if it is or has.
    pub(crate) fn failure(&self) -> Option<Error> {
        match &*self.0.health.borrow() {
            Health::Healthy => None,
            Health::Silent(why) | Health::Ended(why) => Some(why.clone()),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.0.health.borrow(), Health::Ended(_))
    }

    /// Waits until it has ended, and returns the reason.
    pub(crate) async fn ended(&self) -> Error {
        let mut health = self.health();
        loop {
            if let Health::Ended(why) = &*health.borrow_and_update() {
                return why.clone();
            }
            // Cannot fail: the sender is ours.
            let _ = health.changed().await;
        }
    }

    /// Marks it as ended. Returns false if it had ended already.
    pub(super) fn end(&self, why: Error) -> bool {
        let is_news = self.change(Health::Ended(why));
        self.0.followed.end();
        is_news
    }

    /// Reports to its users that the server does not reply, or that it replies again.
    pub(super) fn set_silent(&self, why: Option<Error>) {
        self.change(why.map_or(Health::Healthy, Health::Silent));
    }

    fn change(&self, new: Health) -> bool {
        self.0.health.send_if_modified(|health| {
            let is_change = !matches!(health, Health::Ended(_)) && discriminant(health) != discriminant(&new);
            if is_change {
                *health = new;
            }
            is_change
        })
    }

    /// The channels in hash slots that it is subscribed to.
    pub(super) fn channels(&self) -> &Channels {
        &self.0.channels
    }

    /// The keys whose changes the server reports.
    pub(super) fn followed(&self) -> &Followed {
        &self.0.followed
    }

    /// Returns whether anything came from the server since the last call.
    pub(super) fn take_heard(&self) -> bool {
        self.0.heard.swap(false, Ordering::Relaxed)
    }

    /// Until when the server gives no fresh grant, since it may have forgotten holds that live; `None`: it does.
    pub(crate) fn delayed_until(&self) -> Option<Instant> {
        let from = self.0.member.as_ref()?.fresh_from;
        Some(from).filter(|from| *from > Instant::now())
    }

    /// True if the server was a master without slots when the connection was made: without a mark, nobody knows since when it has its data.
    pub(crate) fn lacks_marks(&self) -> bool {
        self.0.member.as_ref().is_some_and(|member| !member.has_marks)
    }

    /// The id of the data that the server had when the connection was made, where a grant depends on it.
    pub(super) fn data(&self) -> Option<&str> {
        self.0.member.as_ref().map(|member| &*member.data)
    }

    /// Returns whether the server may lack the script of this hash. It has the script after the call that is sent now.
    pub(super) fn take_unloaded(&self, hash: &str) -> bool {
        self.0.unloaded.take(hash)
    }

    /// By which replicas acknowledge, if they have to.
    pub(super) fn acknowledger(&self) -> Option<&Acknowledger> {
        self.0.acknowledger.as_ref()
    }

    /// Returns whether a request was sent since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.0.used.swap(false, Ordering::Relaxed)
    }

    /// Returns whether somebody waits for a reply.
    pub(super) fn has_unanswered(&self) -> bool {
        self.0.unanswered.load(Ordering::Relaxed) > 0
    }

    /// The requests that the connection's task sends.
    pub(super) fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// So many acquires go out now.
    pub(super) fn count_in_window(&self, acquires: usize) {
        self.0.window.count(acquires);
    }

    /// Room for an acquire, if not too many are unanswered.
    pub(crate) fn try_room(&self) -> Option<Room> {
        self.0.window.try_room()
    }

    /// Room for an acquire, as soon as there is any. `None`: the connection ended.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn room(&self) -> Option<Room> {
        tokio::select! {
            biased;
            room = self.0.window.room() => Some(room),
            _ = self.ended() => None,
        }
    }

    /// Asks whether the server answers. It is no use of the connection.
    pub(super) async fn ping(&self) -> Result<RedisResult<Value>, Error> {
        let (mut connection, ping) = (self.0.connection.clone(), cmd("PING"));
        self.reply(pin!(connection.send_packed_command(&ping))).await
    }

    /// Sends a command and waits for its reply, however long that takes.
    ///
    /// # Errors
    /// The reason why the connection ended before the reply came. The driver's errors are inside the `Ok`; [`is_reply`] is
    /// true of those that the server sent.
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute the command, in the order in which it was sent.
    pub(super) async fn send(&self, command: &Cmd) -> Result<RedisResult<Value>, Error> {
        self.0.used.store(true, Ordering::Relaxed);
        let mut connection = self.0.connection.clone();
        self.reply(pin!(connection.send_packed_command(command))).await
    }

    /// The same for the last of several commands, between which the server executes none of anybody else's.
    pub(super) async fn send_last(&self, commands: &Pipeline) -> Result<RedisResult<Value>, Error> {
        self.0.used.store(true, Ordering::Relaxed);
        let mut connection = self.0.connection.clone();
        let before = commands.len() - 1;
        let no_reply = || RedisError::from((redis::ErrorKind::Parse, "a pipeline was not answered"));
        self.reply(pin!(async {
            let replies = connection.send_packed_commands(commands, before, 1).await?;
            replies.into_iter().next().ok_or_else(no_reply)
        }))
        .await
    }

    /// The same for all of several commands. The first error among their replies is that of all.
    pub(super) async fn send_all(&self, commands: &Pipeline) -> Result<RedisResult<Value>, Error> {
        self.0.used.store(true, Ordering::Relaxed);
        let mut connection = self.0.connection.clone();
        self.reply(pin!(async {
            let replies = connection.send_packed_commands(commands, 0, commands.len()).await?;
            Ok(Value::Array(replies))
        }))
        .await
    }

    /// Waits for this reply. The caller pins the future, since one that is moved into another future takes its room twice.
    async fn reply(
        &self,
        replying: Pin<&mut impl Future<Output = RedisResult<Value>>>,
    ) -> Result<RedisResult<Value>, Error> {
        let sent = self.0.window.sent();
        let _unanswered = Unanswered::new(&self.0.unanswered);
        // The first poll hands it to the driver. It must not wait for tokio's budget, or a later request might overtake it.
        let reply = tokio::select! {
            biased;
            reply = unconstrained(replying) => reply.and_then(Value::extract_error),
            why = self.ended() => return Err(why),
        };
        if reply.as_ref().err().is_none_or(is_reply) {
            self.0.window.answered(sent);
            self.0.heard.store(true, Ordering::Relaxed);
        }
        Ok(reply)
    }
}

/// A request whose reply is waited for.
struct Unanswered<'a>(&'a AtomicUsize);

impl<'a> Unanswered<'a> {
    fn new(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
