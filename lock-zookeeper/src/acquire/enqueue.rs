//! From the creation of our node to the grant: the queue at the server.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use lock_core::backend::SentAt;
use lock_core::{Error, ErrorKind};
use tokio::time::Instant;
use zookeeper_client::{CreateMode, Error as DriverError, Stat};

use super::minimum::Kept;
use super::task::{ClaimTask, Node, Step, Stop, creation};
use super::token::{KnownOffset, Listing, Offsets};
use crate::claims::{Grant, Stage};
use crate::connection::{Connection, ensure_root};
use crate::error::{self, Failure};
use crate::protocol::{self, NodeData, Position, create_options, offset_data};

impl ClaimTask {
    /// Creates our node, waits until it is the first, and grants.
    pub(super) async fn queue_until_granted(&mut self) -> Step<Arc<Grant>> {
        self.check_ttl()?;
        if self.claim.has_leftover() {
            self.find_node().await?;
        }
        loop {
            if *self.end_requests.undo.borrow() {
                return Err(Stop::Undo);
            }
            if self.claim.request.is_given_up() {
                return Err(self.given_up());
            }
            let listing = match self.node {
                Some(_) => self.list_again().await?,
                None => self.enqueue().await?,
            };
            let (Some(listing), Some(node)) = (listing, &self.node) else {
                continue;
            };
            match protocol::position(&listing.children, &node.name, self.downgraded.as_deref()) {
                // Somebody deleted it, or the server formats the sequence differently from the driver.
                Position::Missing => {
                    self.find_node().await?;
                    self.check_name()?;
                }
                Position::Tied => return Err(Stop::Failed(self.tied())),
                Position::Admitted { beside_downgraded } => {
                    if let Some(grant) = self.grant(&listing, beside_downgraded).await? {
                        self.advance(Stage::Granted(grant.clone()))?;
                        return Ok(grant);
                    }
                }
                Position::Behind { watch, holder } => {
                    let kept = self.kept_in_front(&listing.children).await?;
                    if kept == Kept::Changed {
                        continue;
                    }
                    if !self.claim.request.waits() {
                        if !self.was_downgraded(watch).await? {
                            return Err(self.leave_busy(holder).await);
                        }
                        continue;
                    }
                    self.advance(Stage::Queued)?;
                    self.wait(watch, holder, &listing, kept).await?;
                    self.advance(Stage::Asking)?;
                }
            }
        }
    }

    /// Creates our node, and the directory if it is missing, and lists it, in one round trip. `None` when the
    /// caller must try again.
    async fn enqueue(&mut self) -> Step<Option<Listing>> {
        let connection = self.session.connected().await?;
        self.claim.request.note_connected();
        let client = &connection.client;
        let directory = &self.claim.directory;
        let data = NodeData::labelled(self.claim.request.label());
        let path = format!("{directory}/{}", self.claim.prefix);
        let options = create_options(&self.config, CreateMode::EphemeralSequential);
        let container = create_options(&self.config, CreateMode::Container);
        let known = self.known_offset(&connection);
        let sent = self.claim.request.sending();
        // Checked after `sending`: a caller that gave up before saw that nothing was sent, and undoes nothing.
        if self.claim.request.is_given_up() {
            return Err(self.given_up());
        }
        self.set_leftover(true);
        // The server removes a container some time after its last node.
        let make = self
            .directory_missing
            .then(|| client.create(directory, &offset_data(known.offset), &container));
        let create = client.create(&path, &data.encode(), &options);
        let list = client.get_children(directory);
        let offsets = self.read_offsets(client, &known);
        let (made, created, listed, offsets) = tokio::join!(OptionFuture::from(make), create, list, offsets);
        match created {
            Ok((stat, sequence)) => {
                self.node = Some(Node {
                    name: format!("{}{sequence}", self.claim.prefix),
                    path: format!("{path}{sequence}"),
                    czxid: stat.czxid,
                    created: creation(&stat),
                    created_read: Instant::now(),
                    created_over: Arc::downgrade(&connection),
                    written: None,
                    version: stat.version,
                    data,
                });
            }
            Err(DriverError::NoNode) => {
                self.set_leftover(false);
                self.directory_missing = true;
                match made {
                    Some(Err(DriverError::NoNode)) => self.make_root(&connection).await?,
                    Some(Err(DriverError::NodeExists) | Ok(_)) | None => {}
                    Some(Err(error)) if error::classify(&error) == Failure::Rejected => {
                        return Err(Stop::Failed(error::rejected(error)));
                    }
                    Some(Err(error)) => self.wait_out(error).await?,
                }
                return Ok(None);
            }
            Err(error) if error::classify(&error) == Failure::Rejected => {
                self.set_leftover(false);
                return Err(Stop::Failed(error::rejected(error)));
            }
            Err(error) => {
                self.wait_out(error).await?;
                self.find_node().await?;
                return Ok(None);
            }
        }
        self.read_listing(&connection, sent, known, listed, offsets).await
    }

    /// Lists the directory, after a `sync` if that is needed.
    ///
    /// Over the connection over which our node was created it is not: a server answers a session's reads after its writes, so the
    /// list has our node, and is not older than it. Nodes before ours are never added, they only go. So a server that lags behind
    /// its leader shows more of them than there are, and never fewer. It showed us the end of the node before ours, and the list
    /// is not older than that. That our session lives is proven by its heartbeats, without which there is no grant.
    async fn list_again(&mut self) -> Step<Option<Listing>> {
        let connection = self.session.connected().await?;
        let known = self.known_offset(&connection);
        let sent = self.claim.request.sending();
        let over = Arc::downgrade(&connection);
        let is_known = self.node.as_ref().is_some_and(|node| node.created_over.ptr_eq(&over));
        // Sent before the list.
        let sync = (!is_known).then(|| self.session.sync(&connection));
        let list = connection.client.get_children(&self.claim.directory);
        let offsets = self.read_offsets(&connection.client, &known);
        match tokio::join!(OptionFuture::from(sync), list, offsets) {
            (None | Some(Ok(())), listed, offsets) => {
                self.read_listing(&connection, sent, known, listed, offsets).await
            }
            (Some(Err(error)), ..) => {
                self.wait_out(error).await?;
                Ok(None)
            }
        }
    }

    async fn read_listing(
        &self,
        connection: &Arc<Connection>,
        sent: SentAt,
        known: KnownOffset,
        listed: Result<(Vec<String>, Stat), DriverError>,
        offsets: Result<Offsets, DriverError>,
    ) -> Step<Option<Listing>> {
        let ((children, pzxid), offsets) = match (listed, offsets) {
            (Ok((children, stat)), Ok(offsets)) => ((children, stat.pzxid), offsets),
            // Somebody removed the directory, and our node before it.
            (Err(DriverError::NoNode), Ok(offsets)) => ((Vec::new(), 0), offsets),
            (Err(error), _) | (_, Err(error)) => {
                self.wait_out(error).await?;
                return Ok(None);
            }
        };
        if !self.is_current(connection, &known, &offsets) {
            return Ok(None);
        }
        Ok(Some(Listing {
            sent,
            children,
            pzxid,
            over: Arc::downgrade(connection),
            known_offset: known.offset,
            offsets,
        }))
    }

    async fn make_root(&self, connection: &Connection) -> Step<()> {
        match ensure_root(&connection.client, &self.config).await {
            // The next try waits for the connection.
            Err(error) if !error.is_retryable() => Err(Stop::Failed(error)),
            _ => Ok(()),
        }
    }

    /// Grants: our node is admitted. `None` when the directory must be listed again.
    async fn grant(&mut self, listing: &Listing, beside_downgraded: bool) -> Step<Option<Arc<Grant>>> {
        self.check_ttl()?;
        self.session.fresh().await?;
        let request = self.claim.request.clone();
        let Some(token) = self.token(listing, beside_downgraded).await? else {
            return Ok(None);
        };
        if !self.keep_minimum().await? {
            return Ok(None);
        }
        let keep = self.keep.clone().or_else(|| self.keep());
        let Some(node) = &self.node else {
            return Ok(None);
        };
        if request.is_given_up() {
            // Its caller may have gone without a word: then nobody would end the hold, and heartbeats would renew it for ever.
            return Err(self.given_up());
        }
        let fixed = request.is_fixed().then(|| (listing.sent, request.ttl()));
        match self.session.bind_lease(request.holder(), request.lease(), fixed) {
            Ok(_) => {
                let grant = Grant::new(self.session.clone(), node.path.clone(), token, self.releases.clone());
                Ok(Some(Arc::new(grant.with_keep(keep))))
            }
            // The answers took longer than the lease.
            Err(error) if error.is_retryable() && !self.session.has_ended() => Ok(None),
            Err(error) => Err(Stop::Failed(error)),
        }
    }

    /// Publishes the stage. Stops if another task works on the claim, since this one was detached.
    pub(super) fn advance(&self, stage: Stage) -> Step<()> {
        match self.claim.advance(self.number, stage) {
            true => Ok(()),
            false => Err(Stop::SessionEnded),
        }
    }

    /// A name that is no queue entry's would wait for ever.
    fn check_name(&self) -> Step<()> {
        match &self.node {
            Some(node) if !protocol::is_place(&node.name) => {
                let message =
                    "ZooKeeper numbered a node in an unknown way: this version of the server is not supported";
                Err(Stop::Failed(Error::new(ErrorKind::Misconfigured, message)))
            }
            _ => Ok(()),
        }
    }

    fn tied(&self) -> Error {
        let message = format!(
            "two nodes under {} have the same sequence: if the server's counter has reached 2147483647, delete this directory \
             while nobody uses the lock",
            self.claim.directory
        );
        Error::new(ErrorKind::Misconfigured, message)
    }

    fn check_ttl(&self) -> Step<()> {
        let (ttl, timeout) = (self.claim.request.ttl(), self.session.timeout);
        if ttl < timeout {
            return Err(Stop::Failed(error::ttl_too_short(ttl, timeout)));
        }
        Ok(())
    }
}
