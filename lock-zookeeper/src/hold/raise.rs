//! The raise of a hold's token: has every later grant get a larger one.
//!
//! One transaction writes the token into the hold's own node, so that every status shows it, and raises the root path's token offset. It
//! fails if the node is gone. A later grant reads the offset after a list without that node, so after this transaction: see the
//! acquire's token. Its transaction id is larger than that of this grant. So the offset is enough with which the next transaction id
//! gives a larger token.
//!
//! From then on, a status does not show since when the hold lasts: the node's times tell that only by the token of the grant.

use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::sleep;
use zookeeper_client::{Client, Error as DriverError, MultiWriteError};

use super::ZooKeeperHold;
use super::keep::ANY_VERSION;
use crate::acquire::{MAX_OFFSET, exhausted, other_data};
use crate::connection::Stored;
use crate::error::{self, Failure};
use crate::names;
use crate::protocol::{self, NodeData, create_offset_options, offset_data};

/// The outcome of the transaction.
enum Raised {
    To(i64),
    /// Another client has changed the offset, or a server that lags behind showed an older one. Or the hold's node was written.
    Again,
    Lost,
}

impl ZooKeeperHold {
    pub(super) async fn try_raise(&self, token: FencingToken) -> Result<()> {
        let session = &self.grant.session;
        let raise = async {
            loop {
                let Ok(connection) = session.connected().await else {
                    return Err(lost());
                };
                match self.raise_once(&connection.client, token).await? {
                    Raised::To(offset) => {
                        session.token_offset.learn(offset);
                        return Ok(());
                    }
                    Raised::Again => {}
                    Raised::Lost => return Err(lost()),
                }
            }
        };
        let limit = self.client.config.connect_timeout();
        tokio::select! {
            biased;
            answer = raise => answer,
            () = self.client.sessions.unserved(session) => Err(lost()),
            () = sleep(limit) => Err(error::no_answer(limit, session.outage())),
        }
    }

    async fn raise_once(&self, client: &Client, token: FencingToken) -> Result<Raised> {
        let config = &self.client.config;
        let path = names::token_offset(config.root());
        let (stored, own) = tokio::join!(Stored::read(client, config), client.get_data(&self.grant.path));
        let (stored, version) = match stored {
            Ok(stored) => (stored.offset, stored.version),
            Err(error) => return failed(error),
        };
        let (own, own_version) = match own {
            Ok((data, stat)) => (NodeData::parse(&data), stat.version),
            Err(DriverError::NoNode) => {
                self.claim.lose_hold();
                return Ok(Raised::Lost);
            }
            Err(error) => return failed(error),
        };
        let shown = own.token.unwrap_or(self.grant.token.number.as_u64());
        let marked = (shown < token.as_u64()).then(|| NodeData {
            token: Some(token.as_u64()),
            ..own
        });
        let marked = marked.map(|own| own.encode());
        let stored = stored.ok_or_else(|| other_data(config.root()))?;
        let needed = protocol::offset_above(token.as_i64(), self.grant.token.base.saturating_add(1));
        let offset = needed.max(stored).max(self.grant.session.token_offset.known());
        if offset > MAX_OFFSET {
            return Err(exhausted().not_executed());
        }
        let (data, options) = (offset_data(offset), create_offset_options(config));
        let mut writer = client.new_multi_writer();
        let mut add = || {
            match &marked {
                Some(marked) => writer.add_set_data(&self.grant.path, marked, Some(own_version))?,
                None => writer.add_check_version(&self.grant.path, ANY_VERSION)?,
            }
            match version {
                _ if offset == stored => Ok(()),
                Some(_) => writer.add_set_data(&path, &data, version),
                None => writer.add_create(&path, &data, &options),
            }
        };
        add().map_err(error::lock_error)?;
        match writer.commit().await {
            Ok(_) => Ok(Raised::To(offset)),
            Err(MultiWriteError::OperationFailed {
                index: 0,
                source: DriverError::NoNode,
            }) => {
                self.claim.lose_hold();
                Ok(Raised::Lost)
            }
            // The hold's task wrote the token of the grant meanwhile, or another raise a larger one.
            Err(MultiWriteError::OperationFailed {
                index: 0,
                source: DriverError::BadVersion,
            })
            | Err(MultiWriteError::OperationFailed {
                index: 1,
                source: DriverError::BadVersion | DriverError::NodeExists | DriverError::NoNode,
            }) => Ok(Raised::Again),
            Err(error) => failed(error.into()),
        }
    }
}

fn failed(error: DriverError) -> Result<Raised> {
    match error::classify(&error) {
        Failure::SessionEnded => Ok(Raised::Lost),
        _ => Err(error::lock_error(error)),
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the hold has ended, so its token was not raised")
}
