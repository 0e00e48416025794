//! Nodes whose sessions renew the holds, as those of ZooKeeper and of MySQL's row locks do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Link, Linked};
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Armed, Attempt, Capabilities, DistributedLock, Hold, HolderId, LockStatus, LostCause,
    ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{FencingToken, HoldState, LockName, Locker, Result};
use lock_quorum::QuorumBackend;
use tokio::time::sleep;

use crate::support::{Client, Servers, TTL};

/// The time for which a session survives without heartbeats: shorter than a third of the TTL, after which core renews.
const SESSION: Duration = Duration::from_secs(6);

impl Servers {
    /// One client of all servers, with sessions at these nodes.
    fn client_with_sessions(&self, sessions: &[usize]) -> Client {
        let links: Vec<Link> = self.servers.iter().map(|_| Link::new()).collect();
        let nodes = self
            .servers
            .iter()
            .zip(&links)
            .enumerate()
            .map(|(node, (server, link))| {
                let linked = Linked::new(server.clone(), link.clone());
                match sessions.contains(&node) {
                    true => Arc::new(SessionNode::new(linked)) as Arc<dyn DistributedLock>,
                    false => Arc::new(linked),
                }
            });
        let backend = QuorumBackend::new(nodes).unwrap();
        let locks = Locker::new(backend.clone()).with_ttl(TTL);
        Client {
            backend,
            locks,
            links,
            forgets: Vec::new(),
        }
    }
}

/// Two nodes are enough while the session lives.
#[tokio::test(start_paused = true)]
async fn a_session_that_votes_late_keeps_the_hold_as_long_as_it_lives() {
    let servers = Servers::new(3);
    let client = servers.client_with_sessions(&[2]);
    client.links[2].hold_replies_after(0);
    let guard = client.locks.lock("a").acquire().await.unwrap();
    client.links[2].heal();
    sleep(TTL / 6).await;
    client.links[1].cut();
    sleep(3 * TTL).await;
    assert!(guard.check().is_ok(), "{:?}", guard.state());
    guard.release().await.unwrap();
    client.links[1].heal();
    servers.until_free("a").await;
}

/// The session has a vote only after it was asked again.
#[tokio::test(start_paused = true)]
async fn a_session_that_forgot_keeps_the_hold_after_it_voted_again() {
    let servers = Servers::new(3);
    let client = servers.client_with_sessions(&[2]);
    client.links[2].cut();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    client.links[2].heal();
    sleep(TTL).await;
    assert!(servers.holder(2, "a").await.is_some(), "it was asked again");
    client.links[1].cut();
    sleep(3 * TTL).await;
    assert!(guard.check().is_ok(), "{:?}", guard.state());
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_expired_leaves_no_vote_of_a_session() {
    let servers = Servers::new(3);
    let client = servers.client_with_sessions(&[2]);
    let guard = client.locks.lock("a").acquire().await.unwrap();
    client.links[0].cut();
    client.links[1].cut();
    sleep(TTL).await;
    assert!(matches!(guard.state(), HoldState::Lost(_)), "{:?}", guard.state());
    servers.free_within(TTL, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_dropped_leaves_no_vote_of_a_session() {
    for sessions in [&[2][..], &[0, 1, 2]] {
        let servers = Servers::new(3);
        let client = servers.client_with_sessions(sessions);
        let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
        let (request, _control) = options.start();
        drop(client.backend.acquire(&request).await.unwrap());
        assert!(servers.holder(2, "a").await.is_some(), "until the lease ends");
        let ended = request.lease().ended();
        tokio::time::timeout(TTL, ended)
            .await
            .expect("nobody prolongs the lease");
        servers.until_free("a").await;
    }
}

/// The lowest of three tokens is a session's.
#[tokio::test(start_paused = true)]
async fn a_renewal_raises_the_lower_vote_of_a_session() {
    let servers = Servers::new(3);
    servers.use_up_tokens(0, 100);
    servers.use_up_tokens(1, 1000);
    let client = servers.client_with_sessions(&[2]);
    let guard = client.locks.lock("a").acquire().await.unwrap();
    assert!((100..1000).contains(&guard.token().as_u64()), "the middle one");
    sleep(TTL / 2).await;
    let token = guard.token();
    guard.release().await.unwrap();
    servers.until_free("a").await;
    let direct = Locker::new(servers.servers[2].clone());
    assert!(direct.lock("a").acquire().await.unwrap().token() > token);
}

/// The end of its term is what was asked for, and not the end of a session.
#[tokio::test(start_paused = true)]
async fn a_fixed_lease_lasts_as_long_as_its_sessions_live() {
    for sessions in [&[2][..], &[0, 2], &[0, 1, 2]] {
        let servers = Servers::new(3);
        let client = servers.client_with_sessions(sessions);
        let guard = client.locks.lock("a").fixed_lease().acquire().await.unwrap();
        client.links[1].cut();
        sleep(TTL - TTL / 5).await;
        assert!(guard.check().is_ok(), "{sessions:?}: {:?}", guard.state());
        sleep(TTL / 5).await;
        assert!(guard.check().is_err(), "{sessions:?}: {:?}", guard.state());
        client.links[1].heal();
        servers.free_within(TTL, "a").await;
    }
}

/// A server that keeps a hold as long as its client's session lives.
#[derive(Debug)]
struct SessionNode {
    linked: Linked,
    /// The control of each request that was sent to the server.
    asked: Mutex<HashMap<HolderId, Arc<(AcquireRequest, RequestControl)>>>,
}

#[derive(Debug)]
struct SessionHold(Arc<dyn Hold>);

impl SessionNode {
    fn new(linked: Linked) -> Self {
        let asked = Mutex::default();
        Self { linked, asked }
    }

    fn asked(&self, request: &AcquireRequest) -> Arc<(AcquireRequest, RequestControl)> {
        let ask = || {
            let mut options = RequestOptions::new(request.name().clone(), Terms::new(SESSION))
                .mode(request.mode())
                .waits(false);
            if let Some(token) = request.token_at_least() {
                options = options.token_at_least(token);
            }
            Arc::new(options.start())
        };
        self.asked
            .lock()
            .unwrap()
            .entry(request.holder())
            .or_insert_with(ask)
            .clone()
    }
}

/// Arms the lease of the request by what the session has heard.
fn arm(request: &AcquireRequest, sent: SentAt) -> Result<Armed> {
    let lease = request.lease();
    match request.is_fixed() {
        true => {
            lease.bind_to_session(sent, SESSION);
            lease.arm(sent, request.ttl())
        }
        false => lease.arm(sent, SESSION),
    }
}

/// Keeps the hold until it has ended, or the session has. A fixed one ends with its term.
async fn keep(hold: Arc<dyn Hold>, request: AcquireRequest) {
    let heartbeats = async {
        loop {
            sleep(SESSION / 3).await;
            let sent = SentAt::now();
            match hold.renew(SESSION).await {
                Ok(Renewal::Renewed(_)) => drop(arm(&request, sent)),
                Ok(_) => return request.lease().lose(LostCause::NotHeld),
                Err(_) => {}
            }
        }
    };
    tokio::select! {
        () = heartbeats => {}
        _ended = request.lease().ended(), if request.is_fixed() => {
            let _released = hold.release(ReleaseOptions::default()).await;
        }
    }
}

#[async_trait]
impl DistributedLock for SessionNode {
    fn capabilities(&self) -> Capabilities {
        self.linked.capabilities().session_renewal()
    }

    async fn connect(&self) -> Result<()> {
        self.linked.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let sent = request.sending();
        let attempt = self.linked.acquire(&self.asked(request).0).await?;
        let Attempt::Granted(hold, _) = attempt else {
            return Ok(attempt);
        };
        let armed = arm(request, sent)?;
        tokio::spawn(keep(hold.clone(), request.clone()));
        Ok(Attempt::Granted(Arc::new(SessionHold(hold)), armed))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.linked.abandon(&self.asked(request).0).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.linked.status(name).await
    }
}

#[async_trait]
impl Hold for SessionHold {
    fn token(&self) -> FencingToken {
        self.0.token()
    }

    async fn renew(&self, _ttl: Duration) -> Result<Renewal> {
        panic!("its session renews it")
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.0.raise_token(token).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.0.release(how).await
    }
}
