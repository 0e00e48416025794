//! The Redis backend with a mutant.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, HolderId, Lease, LockStatus, Mode, ReleaseOptions,
    ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{Error, ErrorKind, FencingToken, Guarantee, LockName, Result, Verdict};
use lock_redis::redis::{self, Cmd, FromRedisValue};

use crate::mutant::Mutant;
use crate::names::lock_name;
use crate::servers::REDIS_PREFIX;

/// A Redis backend with a mutant.
#[derive(Debug)]
pub(crate) struct MutantBackend {
    mutant: Mutant,
    backend: Arc<dyn DistributedLock>,
    raw: Raw,
    /// The substitutes of requests whose lease the backend must not arm.
    others: Mutex<HashMap<HolderId, (AcquireRequest, RequestControl)>>,
}

/// Commands past the backend, each on a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    url: String,
    address: SocketAddr,
}

#[derive(Debug)]
struct MutantHold {
    mutant: Mutant,
    hold: Arc<dyn Hold>,
    raw: Raw,
    key: String,
    holder: String,
    mode: Mode,
    lease: Lease,
    token: FencingToken,
    ttl: Duration,
}

/// The backend, with the mutant if that is one of the backend.
pub(crate) fn with_mutant(
    backend: Arc<dyn DistributedLock>,
    mutant: Option<Mutant>,
    url: &str,
    address: SocketAddr,
) -> Arc<dyn DistributedLock> {
    match mutant.filter(|mutant| mutant.is_backends()) {
        Some(mutant) => Arc::new(MutantBackend {
            mutant,
            backend,
            raw: Raw::new(url, address),
            others: Mutex::default(),
        }),
        None => backend,
    }
}

#[async_trait]
impl DistributedLock for MutantBackend {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.backend.keeps(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        self.backend.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        if self.mutant == Mutant::ConnectionLeak {
            // Whatever came of it stays open for ever.
            std::mem::forget(std::net::TcpStream::connect(self.raw.address));
        }
        let ttl = request.ttl();
        let other = self.other(request);
        if other.is_some() {
            // The backend marks the other one as sent, and core undoes this one only if it is marked too.
            request.sending();
        }
        let asked = other.unwrap_or_else(|| request.clone());
        let (hold, mut armed) = match self.backend.acquire(&asked).await? {
            Attempt::Granted(hold, armed) => (hold, armed),
            other => return Ok(other),
        };
        let (key, mut token) = (key(request.name().as_str()), hold.token());
        match self.mutant {
            Mutant::LeaseFromReply => armed = request.lease().arm(request.sending(), ttl)?,
            Mutant::HoldWithoutExpiry => _ = self.raw.ask::<u8>(redis::cmd("PERSIST").arg(&key)).await?,
            // Without the server's clock, the next token is the one after the last that was granted.
            Mutant::TokenCounterLost | Mutant::GrantReservesNothing => {
                // Its name makes it count as fence state.
                let next = self
                    .raw
                    .ask(redis::cmd("INCR").arg(format!("{{{key}}}:counter:fence")))
                    .await?;
                token = FencingToken::new(next).unwrap_or(token);
            }
            _ => {}
        }
        let hold = MutantHold {
            mutant: self.mutant,
            hold,
            raw: self.raw.clone(),
            key,
            holder: request.holder().to_string(),
            mode: request.mode(),
            lease: request.lease().clone(),
            token,
            ttl,
        };
        Ok(Attempt::Granted(Arc::new(hold), armed))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let asked = self.other(request).unwrap_or_else(|| request.clone());
        self.backend.abandon(&asked).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.backend.status(name).await
    }
}

impl MutantBackend {
    /// The request with a lease of its own: a fixed one can be armed only once.
    fn other(&self, request: &AcquireRequest) -> Option<AcquireRequest> {
        if self.mutant != Mutant::LeaseFromReply || !request.is_fixed() {
            return None;
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let (other, _) = others.entry(request.holder()).or_insert_with(|| {
            let options = RequestOptions::new(request.name().clone(), Terms::new(request.ttl()));
            options.waits(request.waits()).fixed(true).start()
        });
        Some(other.clone())
    }
}

#[async_trait]
impl Hold for MutantHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        match self.mutant {
            Mutant::RenewalThatShortens => return self.renew_and_shorten(ttl).await,
            Mutant::RenewalUnanswered => _ = self.lease.arm(SentAt::now(), ttl)?,
            _ => {}
        }
        let renewal = self.hold.renew(ttl).await?;
        if self.mutant == Mutant::LeaseFromReply && matches!(renewal, Renewal::Renewed(_)) {
            return Ok(Renewal::Renewed(self.lease.arm(SentAt::now(), ttl)?));
        }
        Ok(renewal)
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.hold.raise_token(token).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        self.hold.downgrade(ttl).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        if self.mutant == Mutant::FirstReaderFreesTheName && self.mode == Mode::Shared {
            let others = [":ends", ":terms"].map(|purpose| format!("{{{}}}{purpose}", self.key));
            self.raw
                .ask::<u8>(redis::cmd("DEL").arg(&self.key).arg(&others))
                .await?;
            return Ok(ReleaseOutcome::Released);
        }
        if self.mutant == Mutant::DeleteWithoutCompare {
            self.raw.ask::<u8>(redis::cmd("DEL").arg(&self.key)).await?;
            return Ok(ReleaseOutcome::Released);
        }
        let how = match self.mutant {
            Mutant::MinimumHoldIgnored => ReleaseOptions::default(),
            _ => how,
        };
        let outcome = self.hold.release(how).await?;
        if self.mutant == Mutant::RenewalAfterRelease {
            tokio::spawn(renew_for_ever(
                self.raw.clone(),
                self.key.clone(),
                self.holder.clone(),
                self.ttl,
            ));
        }
        Ok(outcome)
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        // Only holds of this mutant are passed on.
        if self.mutant != Mutant::GrantReservesNothing {
            return None;
        }
        let token = FencingToken::new(self.token.as_u64() + 1)?;
        Some(Arc::new(Self {
            mutant: self.mutant,
            hold: self.hold.pass(next)?,
            raw: self.raw.clone(),
            key: self.key.clone(),
            holder: self.holder.clone(),
            mode: self.mode,
            lease: next.clone(),
            token,
            ttl: self.ttl,
        }))
    }
}

impl MutantHold {
    async fn renew_and_shorten(&self, ttl: Duration) -> Result<Renewal> {
        const RENEW: &str = "if redis.call('GETRANGE', KEYS[1], 0, 31) ~= ARGV[1] then return 0 end \
                             return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
        let sent = SentAt::now();
        let mut renew = redis::cmd("EVAL");
        renew
            .arg(RENEW)
            .arg(1)
            .arg(&self.key)
            .arg(&self.holder)
            .arg(ttl.as_millis().to_string());
        match self.raw.ask::<u8>(&renew).await? {
            1 => Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?)),
            _ => Ok(Renewal::Lost),
        }
    }
}

async fn renew_for_ever(raw: Raw, key: String, holder: String, ttl: Duration) {
    const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
                         return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
    let mut renew = redis::cmd("EVAL");
    renew
        .arg(RENEW)
        .arg(1)
        .arg(&key)
        .arg(format!("{holder} 1"))
        .arg(ttl.as_millis().to_string());
    loop {
        tokio::time::sleep(ttl / 3).await;
        // The next one may succeed.
        let _ = raw.ask::<redis::Value>(&renew).await;
    }
}

fn key(name: &str) -> String {
    format!("{REDIS_PREFIX}{name}")
}

impl Raw {
    pub(crate) fn new(url: &str, address: SocketAddr) -> Self {
        let url = url.to_owned();
        Self { url, address }
    }

    /// Ends the hold of a lock, whoever has it.
    pub(crate) async fn delete(&self, lock: usize) -> Result<()> {
        let key = key(&lock_name(lock));
        self.ask::<u8>(redis::cmd("DEL").arg(key)).await.map(drop)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let answer = async {
            let client = redis::Client::open(self.url.as_str())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            command.query_async(&mut connection).await
        };
        answer
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, "a mutant's command failed").with_source(error))
    }
}
