//! An acquire: the way from the caller's request to the protocol.

use std::sync::Arc;

use lock_core::backend::{AcquireRequest, Attempt, Mode, Renewal};
use lock_core::{Error, ErrorKind, FencingToken, Result};

use crate::client::Client;
use crate::hold::QuorumHold;
use crate::votes::{GIVEN_UP, Votes};
use crate::{clean_up, drive, members, renew};

/// Asks until the name is granted, or it is known that it is not.
pub(crate) async fn acquire(client: &Arc<Client>, request: &AcquireRequest) -> Result<Attempt> {
    check_mode(request.mode())?;
    clean_up::go_on(client);
    if request.is_given_up() && client.known_votes_of(request).is_none() {
        return Err(Error::new(ErrorKind::Unavailable, GIVEN_UP).not_executed());
    }
    let acquiring = client.begin_acquire(request);
    let patience = client.patience(request.ttl());
    let checked = members::check_acquire(&client.members, request, patience).await;
    checked.map_err(Error::not_executed)?;
    let votes = &acquiring.votes;
    let attempt = match votes.token() {
        Some(token) => again(client, votes, token).await,
        None => drive::drive(client, votes, request).await,
    };
    if votes.was_sent() {
        // Unless nothing ever was, core abandons the request, and so do we.
        let _sent = request.sending();
    }
    attempt
}

/// Everybody who was granted may ask again, and is granted the same.
async fn again(client: &Arc<Client>, votes: &Arc<Votes>, token: FencingToken) -> Result<Attempt> {
    match renew::renew(client, votes, votes.request.ttl()).await? {
        Renewal::Renewed(armed) => {
            let hold = QuorumHold::new(client, votes, token);
            Ok(Attempt::Granted(Arc::new(hold), armed))
        }
        _ => Err(Error::new(
            ErrorKind::Lost,
            "the hold was lost before it was asked for again",
        )),
    }
}

/// Permits that several holders share cannot be counted by majorities.
fn check_mode(mode: Mode) -> Result<()> {
    let message = match mode {
        Mode::Permits(permits) if permits.of() > 1 => {
            "a quorum keeps no semaphore above 1: each node counts the permits that it gave, and no node counts all; use one server"
        }
        Mode::Upgradable => "a quorum has no upgradable holds: acquire the write side at once, or use one server",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Unsupported, message).not_executed())
}
