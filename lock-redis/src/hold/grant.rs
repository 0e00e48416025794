//! The facts that the server was given when it granted a hold, which put the hold back if the server has forgotten it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::HolderId;

use crate::protocol::arguments::AcquireArguments;
use crate::protocol::{self, millis, mode};

/// A clone is the same grant.
#[derive(Clone, Debug)]
pub(super) struct Grant(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mode: String,
    is_downgraded: AtomicBool,
    /// The generation of the connection over which it was downgraded last.
    downgraded_over: AtomicU64,
    label: String,
    token: FencingToken,
    ttl: Duration,
    last_token: AtomicU64,
    /// The token to which the hold was raised; 0: none.
    raised: AtomicU64,
    /// The generation of the connection over which it was raised last.
    raised_over: AtomicU64,
}

impl Grant {
    /// Of a request with these arguments, which asked for this TTL. The request itself may have other terms by now.
    pub(super) fn new(sent: &AcquireArguments<'_>, ttl: Duration, is_upgrade: bool, token: FencingToken) -> Self {
        let last_token = protocol::last_token(token, &sent.mode);
        // An upgrade replaces a hold once only.
        let mode = match is_upgrade {
            true => mode::EXCLUSIVE.into(),
            false => sent.mode.to_string(),
        };
        Self(Arc::new(Inner {
            mode,
            is_downgraded: AtomicBool::new(false),
            downgraded_over: AtomicU64::new(0),
            label: sent.label.to_string(),
            token,
            ttl,
            last_token: AtomicU64::new(last_token),
            raised: AtomicU64::new(0),
            raised_over: AtomicU64::new(0),
        }))
    }

    /// The TTL that it was asked for.
    pub(super) fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// The server of this connection has made it a shared one.
    pub(super) fn downgraded_over(&self, generation: u64) {
        self.0.is_downgraded.store(true, Ordering::SeqCst);
        self.0.downgraded_over.store(generation, Ordering::SeqCst);
    }

    /// True if the server of this connection may have forgotten that the hold was downgraded.
    pub(super) fn is_to_be_downgraded_over(&self, generation: u64) -> bool {
        self.0.is_downgraded.load(Ordering::SeqCst) && self.0.downgraded_over.load(Ordering::SeqCst) != generation
    }

    /// True if the server of this connection may have forgotten a change of the hold.
    pub(super) fn is_to_be_changed_over(&self, generation: u64) -> bool {
        self.is_to_be_downgraded_over(generation)
            || (self.raised_to().is_some() && self.is_to_be_raised_over(generation))
    }

    /// The fence counts it as having this token.
    pub(super) fn raised(&self, token: FencingToken) {
        self.0.last_token.fetch_max(token.into(), Ordering::SeqCst);
        self.0.raised.fetch_max(token.into(), Ordering::SeqCst);
    }

    /// Notes that the raise cannot be lost while this connection lasts.
    pub(super) fn raised_over(&self, generation: u64) {
        self.0.raised_over.store(generation, Ordering::SeqCst);
    }

    /// The token to which the hold was raised, if it was.
    pub(super) fn raised_to(&self) -> Option<FencingToken> {
        FencingToken::new(self.0.raised.load(Ordering::SeqCst))
    }

    /// True if the server of this connection may have forgotten that the token was raised.
    pub(super) fn is_to_be_raised_over(&self, generation: u64) -> bool {
        self.0.raised_over.load(Ordering::SeqCst) != generation
    }

    /// As the server has it, which knows nothing of passes: the grant's, or what that was raised to.
    pub(super) fn stored_token(&self) -> FencingToken {
        match self.raised_to().filter(|_| self.mode() == mode::EXCLUSIVE) {
            Some(raised) => self.0.token.max(raised),
            None => self.0.token,
        }
    }

    /// True if it has more tokens than its own. A raised token has none after it.
    pub(super) fn reserves(&self) -> bool {
        self.raised_to().is_none() && self.last_token() > self.0.token.as_u64()
    }

    /// The value of the lock's key, if the holder has the lock alone and nothing has changed it since.
    pub(super) fn value(&self, holder: HolderId) -> Option<String> {
        let Inner { token, ttl, label, .. } = &*self.0;
        (self.mode() == mode::EXCLUSIVE).then(|| {
            let (holder, token, ttl) = (holder.to_string(), token.to_string(), millis(*ttl));
            [&*holder, " ", &token, " ", &ttl, label].concat()
        })
    }

    /// As the scripts take it.
    pub(super) fn mode(&self) -> &str {
        match self.0.is_downgraded.load(Ordering::SeqCst) {
            true => mode::SHARED,
            false => &self.0.mode,
        }
    }

    /// As the scripts take it.
    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    /// The last token that came with it.
    pub(super) fn last_token(&self) -> u64 {
        self.0.last_token.load(Ordering::SeqCst)
    }
}
