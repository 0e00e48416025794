//! From the creation of our node to the grant.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use lock_core::backend::{AcquireRequest, Busy, SentAt, Wait};
use lock_core::{Error, ErrorKind, FencingToken};
use zookeeper_client::{CreateMode, Error as Driver, EventType};

use super::task::{Node, Step, Stop, Task};
use crate::claims::{Held, Stage};
use crate::connection::{Connection, ensure_root};
use crate::error::{self, Fate};
use crate::protocol::{self, Turn, busy, create_options};

/// How many writes may be spent to get past a token floor.
const WRITES: i64 = 64;

/// What the directory looked like.
struct View {
    /// Before it was asked for.
    sent: SentAt,
    children: Vec<String>,
    mzxid: i64,
}

impl Task {
    /// Queues, and waits for its turn.
    pub(super) async fn enter(&mut self) -> Step<Arc<Held>> {
        self.check_ttl()?;
        if self.claim.has_residue() {
            self.find().await?;
        }
        loop {
            if *self.orders.undo.borrow() {
                return Err(Stop::Undo);
            }
            if self.claim.request.is_given_up() {
                return Err(self.given_up());
            }
            let view = match self.node {
                Some(_) => self.look().await?,
                None => self.enqueue().await?,
            };
            let (Some(view), Some(node)) = (view, &self.node) else {
                continue;
            };
            match protocol::turn(&view.children, &node.name) {
                // Somebody deleted it; or the server writes the sequence otherwise than the driver.
                Turn::Missing => self.find().await?,
                Turn::Mine => {
                    if let Some(held) = self.grant(&view).await? {
                        self.advance(Stage::Held(held.clone()))?;
                        return Ok(held);
                    }
                }
                Turn::Behind { predecessor, holder } => {
                    let path = |name: &str| format!("{}/{name}", self.claim.directory);
                    let (predecessor, holder) = (path(predecessor), path(holder));
                    if self.claim.request.wait() == Wait::No {
                        return Err(self.give_way(&holder).await);
                    }
                    self.advance(Stage::Queued)?;
                    self.wait(&predecessor, &holder).await?;
                    self.advance(Stage::Asking)?;
                }
            }
        }
    }

    /// Creates our node, and the directory if it is missing, and lists it, in one round trip. `None` when all of it has
    /// to be asked again.
    async fn enqueue(&mut self) -> Step<Option<View>> {
        let connection = self.session.connected().await?;
        self.claim.request.note_connected();
        let client = &connection.client;
        let directory = &self.claim.directory;
        let data = protocol::label(&self.claim.request);
        let path = format!("{directory}/{}", self.prefix);
        let options = create_options(&self.config, CreateMode::EphemeralSequential);
        let container = create_options(&self.config, CreateMode::Container);
        let sent = self.claim.request.sending();
        // Asked after it: whoever gave it up before this saw that nothing was sent, and undoes nothing.
        if self.claim.request.is_given_up() {
            return Err(self.given_up());
        }
        self.set_residue(true);
        // The server removes a container some time after its last node.
        let make = self
            .directory_missing
            .then(|| client.create(directory, b"", &container));
        let create = client.create(&path, &data, &options);
        let list = client.get_children(directory);
        let (made, created, listed) = tokio::join!(OptionFuture::from(make), create, list);
        match created {
            Ok((stat, sequence)) => {
                self.node = Some(Node {
                    name: format!("{}{sequence}", self.prefix),
                    path: format!("{path}{sequence}"),
                    czxid: stat.czxid,
                    data,
                });
            }
            Err(Driver::NoNode) => {
                self.set_residue(false);
                self.directory_missing = true;
                match made {
                    Some(Err(Driver::NoNode)) => self.make_root(&connection).await?,
                    Some(Err(Driver::NodeExists) | Ok(_)) | None => {}
                    Some(Err(error)) if error::fate(&error) == Fate::Refused => {
                        return Err(Stop::Failed(error::refused(error)));
                    }
                    Some(Err(error)) => self.bear(error).await?,
                }
                return Ok(None);
            }
            Err(error) if error::fate(&error) == Fate::Refused => {
                self.set_residue(false);
                return Err(Stop::Failed(error::refused(error)));
            }
            Err(error) => {
                self.bear(error).await?;
                self.find().await?;
                return Ok(None);
            }
        }
        self.view(sent, listed).await
    }

    /// Lists the directory again, as the leader has it: what also confirms that the session lives.
    async fn look(&mut self) -> Step<Option<View>> {
        let connection = self.session.connected().await?;
        let sent = self.claim.request.sending();
        let sync = self.session.sync(&connection);
        let list = connection.client.get_children(&self.claim.directory);
        match tokio::join!(sync, list) {
            (Ok(()), listed) => self.view(sent, listed).await,
            (Err(error), _) => {
                self.bear(error).await?;
                Ok(None)
            }
        }
    }

    async fn view(
        &self,
        sent: SentAt,
        listed: Result<(Vec<String>, zookeeper_client::Stat), Driver>,
    ) -> Step<Option<View>> {
        let (children, mzxid) = match listed {
            Ok((children, stat)) => (children, stat.mzxid),
            // Somebody removed the directory, and our node before it.
            Err(Driver::NoNode) => (Vec::new(), 0),
            Err(error) => {
                self.bear(error).await?;
                return Ok(None);
            }
        };
        Ok(Some(View { sent, children, mzxid }))
    }

    async fn make_root(&self, connection: &Connection) -> Step<()> {
        match ensure_root(&connection.client, &self.config).await {
            // Whoever asks again waits for the connection.
            Err(error) if !error.is_retryable() => Err(Stop::Failed(error)),
            _ => Ok(()),
        }
    }

    /// Our node is the first. `None` when that has to be looked at again.
    async fn grant(&mut self, view: &View) -> Step<Option<Arc<Held>>> {
        self.check_ttl()?;
        self.session.fresh().await?;
        let request = self.claim.request.clone();
        let Some(token) = self.token(&request, view).await? else {
            return Ok(None);
        };
        let data = protocol::label(&request);
        let Some(node) = &mut self.node else {
            return Ok(None);
        };
        if data != node.data {
            let connection = self.session.connected().await?;
            match connection.client.set_data(&node.path, &data, None).await {
                Ok(_) => node.data = data,
                Err(Driver::NoNode) => return Ok(None),
                Err(error) => {
                    self.bear(error).await?;
                    return Ok(None);
                }
            }
        }
        let fixed = request.is_fixed().then(|| (view.sent, request.ttl()));
        match self.session.admit(request.holder(), request.lease(), fixed) {
            Ok(_) => {
                let held = Held::new(self.session.clone(), node.path.clone(), token, self.release.clone());
                Ok(Some(Arc::new(held)))
            }
            // The answers took too long.
            Err(error) if error.is_retryable() && !self.session.is_over() => Ok(None),
            Err(error) => Err(Stop::Failed(error)),
        }
    }

    /// The token of this grant. `None` when the grant has to be looked at again.
    async fn token(&self, request: &AcquireRequest, view: &View) -> Step<Option<FencingToken>> {
        let Some(node) = &self.node else {
            return Ok(None);
        };
        // Tokens fit 63 bits.
        let floor = request.token_floor().map_or(0, |floor| floor.as_u64().cast_signed());
        let mut number = protocol::token(node.czxid, view.mzxid, floor);
        while number.is_none() {
            let connection = self.session.connected().await?;
            match connection.client.set_data(&self.claim.directory, b"", None).await {
                Ok(stat) if stat.mzxid > floor => number = Some(stat.mzxid),
                Ok(stat) if floor - stat.mzxid <= WRITES => {}
                Ok(stat) => {
                    let message = format!(
                        "a token above {floor} is wanted, and ZooKeeper's transactions count {} only",
                        stat.mzxid
                    );
                    return Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)));
                }
                Err(Driver::NoNode) => return Ok(None),
                Err(error) => {
                    self.bear(error).await?;
                    return Ok(None);
                }
            }
        }
        let token = number.and_then(|number| FencingToken::new(number.cast_unsigned()));
        token.map(Some).ok_or_else(|| {
            let message = "ZooKeeper told no transaction id of the lock's node: it is older than 3.5";
            Stop::Failed(Error::new(ErrorKind::Misconfigured, message))
        })
    }

    /// Leaves the queue, and says who has the lock.
    async fn give_way(&mut self, holder: &str) -> Stop {
        let session = self.session.clone();
        let label = async {
            let connection = session.connected().await.ok()?;
            connection.client.get_data(holder).await.ok()
        };
        match tokio::join!(label, self.leave()) {
            (_, Err(stop)) => stop,
            (Some((data, _)), Ok(())) => Stop::Busy(busy(&data)),
            (None, Ok(())) => Stop::Busy(Busy::new()),
        }
    }

    /// Waits until the predecessor has gone.
    async fn wait(&mut self, predecessor: &str, holder: &str) -> Step<()> {
        tokio::select! {
            gone = self.gone(predecessor, holder) => gone,
            () = self.claim.request.given_up() => Err(self.given_up()),
            // The sender lives as long as the claim.
            _ = async { self.orders.undo.clone().wait_for(|undo| *undo).await.map(drop) } => Err(Stop::Undo),
            () = self.session.over() => Err(Stop::Over),
        }
    }

    async fn gone(&self, predecessor: &str, holder: &str) -> Step<()> {
        loop {
            let connection = self.session.connected().await?;
            let label = OptionFuture::from((holder != predecessor).then(|| connection.client.get_data(holder)));
            let watched = connection.client.get_and_watch_data(predecessor);
            let (holders_label, watch) = match tokio::join!(label, watched) {
                (label, Ok((data, _, watch))) => match label {
                    Some(label) => (label.ok().map(|(label, _)| label), watch),
                    None => (Some(data), watch),
                },
                (_, Err(Driver::NoNode)) => return Ok(()),
                (_, Err(error)) => {
                    self.bear(error).await?;
                    continue;
                }
            };
            // Taken also where that holder has left meanwhile: then by the predecessor, or by a node before it.
            let busy = holders_label.map_or_else(Busy::new, |label| busy(&label));
            self.claim.request.note_busy(busy);
            tokio::select! {
                // A one-shot watch: a change of the data uses it up, and the connection's end ends it.
                event = connection.watched(watch) => match event.map(|event| event.event_type) {
                    None | Some(EventType::NodeDataChanged | EventType::Session) => {}
                    Some(_) => return Ok(()),
                },
                // Asked again who has the lock: that the outage is over does not say that it is taken.
                () = self.outage() => {}
            }
        }
    }

    /// Waits for an outage, and for its end.
    async fn outage(&self) {
        let mut outages = self.session.outages();
        // The senders live as long as the session.
        let _ = outages.wait_for(Option::is_some).await;
        let _ = outages.wait_for(Option::is_none).await;
    }

    /// Tells how far it is. Stops where another task works on the claim, since this one's session was given up.
    fn advance(&self, stage: Stage) -> Step<()> {
        match self.claim.advance(self.number, stage) {
            true => Ok(()),
            false => Err(Stop::Over),
        }
    }

    /// Busy if that is the last that the server said; else nobody knows.
    fn given_up(&self) -> Stop {
        match (self.session.outage(), self.claim.request.last_busy()) {
            (None, Some(busy)) => Stop::Busy(busy),
            (why, _) => Stop::Failed(error::given_up(why)),
        }
    }

    fn check_ttl(&self) -> Step<()> {
        let (ttl, timeout) = (self.claim.request.ttl(), self.session.timeout);
        if ttl < timeout {
            return Err(Stop::Failed(error::ttl_too_short(ttl, timeout)));
        }
        Ok(())
    }
}
