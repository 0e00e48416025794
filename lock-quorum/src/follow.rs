//! Holds whose votes are renewed by sessions, and not by core.
//!
//! The quorum's lease follows the leases of its votes between two renewals, since a session may be shorter than the TTL. And if
//! the hold was dropped, its votes are given back when its lease is over: sessions would keep them for ever.

use std::sync::Arc;
use std::time::Duration;

use lock_core::HoldState;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::clean_up;
use crate::client::Client;
use crate::votes::Votes;

/// Follows the hold in the background, from its grant to its end. Does nothing if no node has sessions, or if a task follows the
/// hold already.
pub(crate) fn follow(client: &Arc<Client>, votes: &Arc<Votes>) {
    if !has_sessions(client) || !votes.begin_following() {
        return;
    }
    let follower = Follower {
        client: client.clone(),
        votes: votes.clone(),
    };
    // No clean-up: nobody waits for its end.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move { follower.run().await });
    }
}

/// The last handle to the hold was dropped. Unless the hold was released, its votes end with its lease.
pub(crate) fn dropped(client: &Arc<Client>, votes: &Arc<Votes>) {
    // Outside a runtime there is no clock to look at, and nobody to wait for the lease.
    let in_runtime = Handle::try_current().is_ok();
    let is_live = || matches!(votes.request.lease().state(), HoldState::Held | HoldState::Suspect);
    match has_sessions(client) && !votes.has_ended() {
        true if in_runtime && is_live() => follow(client, votes),
        true => end(client, votes),
        false if in_runtime => client.tidy(votes),
        false => {}
    }
}

fn has_sessions(client: &Client) -> bool {
    client.nodes.iter().any(|node| node.capabilities.session_renewal)
}

/// Ends the hold, and gives back what is left of it.
fn end(client: &Arc<Client>, votes: &Arc<Votes>) {
    votes.end();
    for vote in votes.asked() {
        // One without an answer is undone by the task that awaits it.
        if vote.hold().is_some() {
            clean_up::give_back(client, votes, &vote, None);
        }
    }
    client.tidy(votes);
}

/// The task that follows a hold. If it ends before the hold does, another one may begin.
struct Follower {
    client: Arc<Client>,
    votes: Arc<Votes>,
}

impl Follower {
    async fn run(&self) {
        tokio::select! {
            biased;
            () = self.votes.ended() => {}
            // Whoever has a handle releases it, or drops that.
            () = self.until_lease_ends() => if !self.votes.has_handle() {
                end(&self.client, &self.votes);
            },
        }
    }

    /// Keeps the lease as long as the votes and a handle do.
    async fn until_lease_ends(&self) {
        const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
        let lease = self.votes.request.lease();
        loop {
            tokio::select! {
                biased;
                _ended = lease.ended() => return,
                () = sleep((lease.valid_for() / 3).max(SHORTEST_PAUSE)) => {}
            }
            if self.votes.has_handle() {
                // If it cannot be armed now, it may be later, until it ends.
                let _armed = lease.arm_by(&self.votes.leases(), self.client.needed());
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.votes.end_following();
    }
}
