//! Fencing of resources that are stored in a ZooKeeper.

use std::fmt;

use lock_core::{Error, ErrorKind, FencingToken, Result, Stale};
use lock_kit::fence::{Entered, Role};
use zookeeper_client::{Acls, CheckWriteError, CheckWriter, Client, CreateMode, Error as DriverError, MultiWriteError};

use self::verdict::Change;
use crate::error::lock_error;

mod verdict;

/// Protects a resource in ZooKeeper from holders whose lock has expired.
///
/// A lock is a lease: a holder that was paused, or whose write was in flight for long, may come back after the next holder
/// was granted the lock. The fence stores the newest token that has [entered](Self::enter) and rejects older ones. Checking
/// writes alone is not enough: of two holders that both have read the same value, the older one could still write first,
/// and its update would be lost. So a holder enters *before its first read*.
///
/// Holders of shared locks, readers, [enter as such](Self::enter_shared). A newer reader rejects older writers, but no other
/// readers. A newer writer rejects everybody.
///
/// ```no_run
/// # async fn example(locks: lock_core::Locker) -> Result<(), Box<dyn std::error::Error>> {
/// use lock_zookeeper::{Fence, zookeeper_client::{Acls, Client}};
///
/// let client = Client::connect("zk1,zk2,zk3").await?;
/// let stock = Fence::new(&client, "/stock/42", Acls::anyone_all())?;
/// let guard = locks.lock("stock/42").acquire().await?;
/// let stock = stock.enter(guard.token()).await?;
/// let left: u32 = String::from_utf8(stock.get().await?)?.parse()?;
/// stock.set((left - 1).to_string()).await?; // an error, kind `Lost`, if another holder has entered meanwhile
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// It works over any client of the ensemble that stores the resource; the locks may live elsewhere. All clients that
/// change the resource must enter with tokens of the same lock.
///
/// # The nodes
/// The fence of the node `PATH` is the persistent node `PATH:entered`. Its data is the newest token that has entered as a
/// writer, a space, and the newest of a reader (0 stands for none). The newest writer has a child there, whose name is its
/// token; a newer reader deletes it. Nobody may delete these nodes as long as an old holder may come back.
///
/// Clients of other languages write in a `multi` that begins with a check that the node `PATH:entered/TOKEN` exists, with any
/// version. To enter, they change data and children in one `multi`, which names the version of the data that they have read.
#[derive(Clone)]
pub struct Fence<'a> {
    client: &'a Client,
    nodes: Nodes,
    acls: Acls<'a>,
}

/// A resource as the holder of a token sees it: once a newer token has entered, every write is rejected, and every read
/// that comes from after that.
#[derive(Clone)]
pub struct Fenced<'a> {
    client: &'a Client,
    nodes: Nodes,
    token: FencingToken,
    role: Role,
}

#[derive(Clone, Debug)]
struct Nodes {
    resource: String,
    fence: String,
}

/// The state of the fence that an enter has read: the newest tokens, the version of their node, and the node's
/// children.
struct State {
    entered: Entered,
    version: i32,
    children: Vec<String>,
}

impl<'a> Fence<'a> {
    /// A fence for the node of this path, as the client names it: below its chroot, if it has one. The first holder that
    /// enters creates the nodes of the fence, with these ACLs. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if this is no path of a node other than the root.
    pub fn new(client: &'a Client, path: impl Into<String>, acls: Acls<'a>) -> Result<Self> {
        let resource = path.into();
        if !resource.starts_with('/') || resource.ends_with('/') {
            let message =
                format!("{resource:?} cannot have a fence: give an absolute path of a node other than the root");
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        let fence = format!("{resource}:entered");
        let nodes = Nodes { resource, fence };
        Ok(Self { client, nodes, acls })
    }

    /// Enters: from now on older tokens are rejected, those of readers too. Call it before the first read. The same token may
    /// enter again. Two round trips, or one if it has entered before.
    ///
    /// Each enter begins with a `sync`, so that later reads of this client see at least what was written before the call, even if
    /// its server lags behind.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered.
    /// - [`ErrorKind::Misconfigured`] if the resource's parent is missing, or the fence's node has other data.
    /// - After any other error this token may have entered.
    ///
    /// # Cancel safety
    /// If dropped, the token may have entered, which only rejects older ones.
    pub async fn enter(&self, token: FencingToken) -> Result<Fenced<'a>> {
        self.enter_as(Role::Writer, token).await
    }

    /// Enters as a reader, with the token of a shared hold: from now on writers with older tokens are rejected, and other
    /// readers are not. Call it before the first read. All readers must enter: an older writer that resumes late could
    /// otherwise write between two reads.
    ///
    /// After a downgrade, enter again with this. A reader must not write.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter); only a newer writer rejects a reader.
    ///
    /// # Cancel safety
    /// If dropped, the token may have entered, which only rejects older writers.
    pub async fn enter_shared(&self, token: FencingToken) -> Result<Fenced<'a>> {
        self.enter_as(Role::Reader, token).await
    }

    async fn enter_as(&self, role: Role, token: FencingToken) -> Result<Fenced<'a>> {
        loop {
            let Some(state) = self.read().await? else {
                self.create().await?;
                continue;
            };
            let change = verdict::enter(state.entered, role, token, &state.children)
                .map_err(|stale| stale.into_error(&self.nodes.resource))?;
            let Some(change) = change else { break };
            if self.change(&state, change).await? {
                break;
            }
            // Somebody else has entered.
        }
        Ok(Fenced {
            client: self.client,
            nodes: self.nodes.clone(),
            token,
            role,
        })
    }

    /// `None` if there is no fence yet.
    async fn read(&self) -> Result<Option<State>> {
        let fence = &self.nodes.fence;
        // A token that has entered by another client writes nothing below, and this one's server may be behind the leader.
        let synced = self.client.sync(fence);
        // In this order: if somebody enters in between, the version is too old, and the change fails. The other way round,
        // the list would lack a writer that the change must delete.
        let data = self.client.get_data(fence);
        let children = self.client.list_children(fence);
        let (synced, data, children) = tokio::join!(synced, data, children);
        synced.map_err(|error| self.nodes.error(error))?;
        match (data, children) {
            (Ok((data, stat)), Ok(children)) => Ok(Some(State {
                entered: self.nodes.parse(&data)?,
                version: stat.version,
                children,
            })),
            (Err(DriverError::NoNode), _) | (_, Err(DriverError::NoNode)) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(self.nodes.error(error)),
        }
    }

    async fn create(&self) -> Result<()> {
        let data = verdict::to_data(Entered::default());
        let options = CreateMode::Persistent.with_acls(self.acls);
        match self.client.create(&self.nodes.fence, &data, &options).await {
            Ok(_) | Err(DriverError::NodeExists) => Ok(()),
            Err(DriverError::NoNode) => {
                let message = format!(
                    "the fence of {:?} cannot be created: create the node's parent first",
                    self.nodes.resource
                );
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
            Err(error) => Err(self.nodes.error(error)),
        }
    }

    /// False if the fence was changed meanwhile.
    async fn change(&self, state: &State, change: Change) -> Result<bool> {
        let fence = &self.nodes.fence;
        let options = CreateMode::Persistent.with_acls(self.acls);
        let mut multi = self.client.new_multi_writer();
        let added = (|| {
            multi.add_set_data(fence, &verdict::to_data(change.entered), Some(state.version))?;
            for child in &state.children {
                multi.add_delete(&format!("{fence}/{child}"), None)?;
            }
            match change.writer {
                Some(writer) => multi.add_create(&format!("{fence}/{writer}"), &[], &options),
                None => Ok(()),
            }
        })();
        added.map_err(|error| self.nodes.error(error))?;
        match multi.commit().await {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed {
                source: DriverError::BadVersion | DriverError::NoNode | DriverError::NodeExists,
                ..
            }) => Ok(false),
            Err(error) => Err(self.nodes.error(error.into())),
        }
    }
}

impl Fenced<'_> {
    /// The token that has entered.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Reads the resource's data. One round trip.
    ///
    /// # Errors
    /// Those of [`get_at`](Self::get_at).
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn get(&self) -> Result<Vec<u8>> {
        self.get_at(&self.nodes.resource).await
    }

    /// Reads the data of another node that this fence protects as well. One round trip.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered.
    /// - [`ErrorKind::Unexpected`] with the driver's error as its [cause](Error::cause), such as `NoNode`, if the server rejects the read.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn get_at(&self, path: &str) -> Result<Vec<u8>> {
        // The server executes a session's reads in order: at the second one, nobody had entered since the first.
        let data = self.client.get_data(path);
        let check = self.check();
        let (data, check) = tokio::join!(data, check);
        check?;
        data.map(|(data, _)| data).map_err(|error| self.nodes.error(error))
    }

    /// Checks that no newer token has entered. Reads of this client, in whatever way, that ended before this call count if it
    /// returns `Ok`. One round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub fn check(&self) -> impl Future<Output = Result<()>> + Send {
        let entered = self.client.get_data(&self.nodes.fence);
        async move {
            let entered = match entered.await {
                Ok((data, _)) => self.nodes.parse(&data)?,
                Err(DriverError::NoNode) => Entered::default(),
                Err(error) => return Err(self.nodes.error(error)),
            };
            let checked = entered.check(self.role, self.token);
            checked.map_err(|stale| stale.into_error(&self.nodes.resource))
        }
    }

    /// Writes the resource's data. One round trip.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute it, unless a newer token enters before.
    pub async fn set(&self, data: impl AsRef<[u8]>) -> Result<()> {
        let path = &self.nodes.resource;
        self.write(|writer| writer.add_set_data(path, data.as_ref(), None))
            .await
    }

    /// Executes the operations that `add` adds, all or none of them, in one transaction with the check of the token. One round
    /// trip.
    ///
    /// ```no_run
    /// # async fn example(stock: lock_zookeeper::Fenced<'_>) -> Result<(), lock_core::Error> {
    /// stock
    ///     .write(|writer| {
    ///         writer.add_set_data("/stock/42", b"7", None)?;
    ///         writer.add_delete("/orders/1234", None)
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered. Nothing was done.
    /// - [`ErrorKind::Unexpected`] with the driver's error as its [cause](Error::cause) if the server rejects an operation. Nothing was done.
    /// - [`ErrorKind::Unsupported`] for a [reader](Fence::enter_shared). Nothing was sent.
    /// - After [`ErrorKind::Unavailable`] the outcome is unknown.
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute it, unless a newer token enters before.
    pub async fn write(&self, add: impl FnOnce(&mut CheckWriter<'_>) -> Result<(), DriverError>) -> Result<()> {
        let commit = {
            if self.role == Role::Reader {
                let message = format!(
                    "a reader of {:?} cannot write: enter with the token of an exclusive hold",
                    self.nodes.resource
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            let mark = format!("{}/{}", self.nodes.fence, self.token);
            let writer = self.client.new_check_writer(&mark, None);
            let writer = writer.and_then(|mut writer| add(&mut writer).map(|()| writer));
            writer.map_err(|error| self.nodes.error(error))?.commit()
        };
        match commit.await {
            Ok(_) => Ok(()),
            Err(CheckWriteError::CheckFailed {
                source: DriverError::NoNode,
            }) => Err(self.rejected().await),
            Err(error) => Err(self.nodes.error(error.into())),
        }
    }

    /// Why the check of a write failed.
    async fn rejected(&self) -> Error {
        // The server may be behind the leader, which made the check.
        let synced = self.client.sync(&self.nodes.fence);
        let check = self.check();
        let _ = synced.await;
        // If the check still passes, somebody has deleted the child alone: the token has to enter again.
        let forgotten = Stale::new(self.token, 0).into_error(&self.nodes.resource);
        check.await.err().unwrap_or(forgotten)
    }
}

impl Nodes {
    fn parse(&self, data: &[u8]) -> Result<Entered> {
        verdict::parse(data).ok_or_else(|| {
            let message = format!(
                "the data of the node {:?} is no fence: write the newest token of the lock, a space and the same token \
                 again into it",
                self.fence
            );
            Error::new(ErrorKind::Misconfigured, message)
        })
    }

    fn error(&self, error: DriverError) -> Error {
        let message = match error {
            DriverError::NoNode | DriverError::NodeExists | DriverError::BadVersion | DriverError::NotEmpty => {
                format!("a request to {:?} or its fence was rejected: {error}", self.resource)
            }
            DriverError::NoAuth => format!(
                "access to {:?} or its fence was denied: give this client all permissions on both nodes, and CREATE on \
                 their parent",
                self.resource
            ),
            error => return lock_error(error),
        };
        let kind = match error {
            DriverError::NoAuth => ErrorKind::Denied,
            _ => ErrorKind::Unexpected,
        };
        Error::new(kind, message).with_source(error)
    }
}

impl fmt::Debug for Fence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("resource", &self.nodes.resource)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Fenced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced")
            .field("resource", &self.nodes.resource)
            .field("token", &self.token)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
