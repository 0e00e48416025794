//! What a lock server knows of one name: who holds it, and who waits.

use std::collections::VecDeque;

use crate::backend::{AcquireRequest, HolderId, Lease, Mode, rules};
use crate::lost::LostCause;
use crate::sync::time::Instant;
use crate::sync::{Arc, Notify};
use crate::token::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) holds: Vec<Record>,
    pub(super) waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) holder: HolderId,
    pub(super) mode: Mode,
    pub(super) label: Option<Arc<str>>,
    pub(super) token: FencingToken,
    /// The token of its grant: a pass or a raise counts `token` up.
    pub(super) granted: FencingToken,
    /// The last of the tokens that go with the grant, for passes.
    pub(super) last_token: FencingToken,
    pub(super) expires: Instant,
    /// When it was granted.
    pub(super) since: Instant,
    pub(super) lease: Option<Lease>,
    /// The hold that it replaced, as long as it may be given back.
    pub(super) replaced: Option<Box<Record>>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) holder: HolderId,
    pub(super) mode: Mode,
    pub(super) label: Option<Arc<str>>,
    pub(super) since: Instant,
    pub(super) replaces: Option<HolderId>,
    pub(super) wake: Arc<Notify>,
    /// When the name may be free, as it was told.
    ends: Option<Instant>,
}

impl Record {
    pub(super) fn granted(request: &AcquireRequest, token: FencingToken, now: Instant) -> Self {
        Self {
            holder: request.holder(),
            mode: request.mode(),
            label: request.label(),
            token,
            granted: token,
            last_token: last_reserved(token, request),
            expires: rules::prolonged(now, now, request.ttl()),
            since: now,
            lease: Some(request.lease().clone()),
            replaced: None,
        }
    }

    pub(super) fn lose(&self, cause: LostCause) {
        if let Some(lease) = &self.lease {
            lease.lose(cause);
        }
    }

    /// Nobody's hold with the same terms, for as long as it lasts.
    pub(super) fn of_nobody(&self) -> Self {
        Self {
            holder: HolderId::random(),
            mode: self.mode,
            label: self.label.clone(),
            token: self.token,
            granted: self.granted,
            last_token: self.last_token,
            expires: self.expires,
            since: self.since,
            lease: None,
            replaced: None,
        }
    }
}

/// The last of the tokens that go with a grant.
pub(super) fn last_reserved(token: FencingToken, request: &AcquireRequest) -> FencingToken {
    let last = token.as_u64().saturating_add(u64::from(request.reserve() - 1));
    FencingToken::new(last).unwrap_or(token)
}

impl Entry {
    /// The place of the hold to which this token belongs.
    pub(super) fn position_of(&self, token: FencingToken) -> Option<usize> {
        let has = |hold: &Record| rules::has_token(hold.granted, hold.last_token.max(hold.token), token);
        self.holds.iter().position(has)
    }

    pub(super) fn hold_of(&mut self, holder: HolderId) -> Option<&mut Record> {
        self.holds.iter_mut().find(|hold| rules::is_mine(&hold.holder, &holder))
    }

    /// The hold of this holder, which has it no more.
    pub(super) fn end(&mut self, holder: HolderId) -> Option<Record> {
        let index = self
            .holds
            .iter()
            .position(|hold| rules::is_mine(&hold.holder, &holder))?;
        Some(self.holds.remove(index))
    }

    /// The request is undone: nobody has it, and what it replaced is back.
    pub(super) fn undo(&mut self, holder: HolderId, now: Instant) {
        let undone = self.end(holder).filter(|hold| !rules::has_expired(hold.expires, now));
        if let Some(Record {
            expires,
            replaced: Some(replaced),
            ..
        }) = undone
        {
            self.holds.push(Record { expires, ..*replaced });
        }
        if let Some(index) = self.waiters.iter().position(|waiter| waiter.holder == holder)
            && let Some(waiter) = self.waiters.remove(index)
        {
            waiter.wake.notify_one();
        }
    }

    /// How the name is held, but for the hold that is to be replaced.
    pub(super) fn held(&self, replaced: Option<HolderId>) -> impl Iterator<Item = Mode> {
        let others = self.holds.iter().filter(move |hold| Some(hold.holder) != replaced);
        others.map(|hold| hold.mode)
    }

    /// Whether the request may have the name now.
    pub(super) fn admits(&self, request: &AcquireRequest) -> bool {
        let place = self.waiters.iter().position(|waiter| waiter.holder == request.holder());
        let before = match (place, request.replaces()) {
            (Some(place), _) => place,
            // It would queue before all.
            (None, Some(_)) => 0,
            (None, None) => self.waiters.len(),
        };
        let before = self.waiters.iter().take(before).map(|waiter| waiter.mode);
        rules::admits(self.held(request.replaces()), before, request.mode())
    }

    /// When the first hold ends unless it is renewed.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.holds.iter().map(|hold| hold.expires).min()
    }

    /// Puts the request into the queue, unless it is there.
    pub(super) fn queue(&mut self, request: &AcquireRequest, wake: &Arc<Notify>) {
        let ends = self.ends();
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.holder == request.holder()) {
            waiter.ends = ends;
            waiter.label = request.label();
            return;
        }
        let waiter = Waiter {
            holder: request.holder(),
            mode: request.mode(),
            label: request.label(),
            since: Instant::now(),
            replaces: request.replaces(),
            wake: wake.clone(),
            ends,
        };
        match request.replaces() {
            Some(_) => self.waiters.push_front(waiter),
            None => self.waiters.push_back(waiter),
        }
    }

    /// The request has the name.
    pub(super) fn grant(&mut self, request: &AcquireRequest, token: FencingToken, now: Instant) {
        self.waiters.retain(|waiter| waiter.holder != request.holder());
        let replaced = request.replaces().and_then(|base| self.end(base));
        self.holds.push(Record {
            replaced: replaced.map(Box::new),
            ..Record::granted(request, token, now)
        });
        // It was told that the name is free and others are before it.
        if let Some(waiter) = self.waiters.front().filter(|waiter| waiter.ends.is_none()) {
            waiter.wake.notify_one();
        }
    }

    /// Wakes all waiters that may have the name now. A waiter leaves by itself: no entry of the queue has an end.
    pub(super) fn wake_admitted(&self) {
        let mut admitted = Vec::new();
        for waiter in &self.waiters {
            let held = self.held(waiter.replaces).chain(admitted.iter().copied());
            if !rules::fits(held, waiter.mode) {
                return;
            }
            waiter.wake.notify_one();
            admitted.push(waiter.mode);
        }
    }
}
