//! What must be true of every run.

use std::collections::{BTreeMap, HashMap, HashSet};

use lock_core::backend::{Mode, Permits, rules};

use super::world::{Broken, MS, Request, Stage, Time, World};
use crate::support::link::Reply;
use crate::support::scripts::{Place, State};

/// What is known from outside.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Until when each holder relies on its hold.
    beliefs: BTreeMap<usize, Time>,
    last_token: u64,
    /// As which one each began to wait, and when.
    pub(crate) waits: BTreeMap<usize, (u64, Time)>,
    began: u64,
    /// Until when the name is offered to each, and no longer.
    pub(crate) offered: HashMap<usize, Time>,
    /// From then on nothing has failed for long.
    pub(crate) faulty_until: Time,
    /// When each holder ends at the latest, by the requests of its own.
    pub(crate) ends_by: HashMap<usize, i64>,
    /// Who shared the name after the last request, and until when.
    sharers: HashMap<String, i64>,
    /// Who had a queue entry after the last request.
    queue: HashSet<String>,
    /// Since when nobody has the name, and somebody that runs waits for it.
    idle_since: Option<Time>,
    /// Which waiter fits, and since when.
    unheard: Option<(String, Time)>,
}

impl Watch {
    pub(crate) fn forget(&mut self, mut which: impl FnMut(usize) -> bool) {
        self.beliefs.retain(|request, _| !which(*request));
        self.waits.retain(|request, _| !which(*request));
    }

    pub(crate) fn believes(&self, request: usize, now: Time) -> bool {
        self.beliefs.get(&request).is_some_and(|end| *end > now)
    }

    /// A hold was passed on with this token, which is larger than all before.
    pub(crate) fn note_passed(&mut self, token: u64) -> Result<(), Broken> {
        if token <= self.last_token {
            return Err(format!("passed on with token {token} after {}", self.last_token));
        }
        self.last_token = token;
        Ok(())
    }

    pub(crate) fn prolong(&mut self, request: usize, ends: Time) {
        let end = self.beliefs.entry(request).or_insert(ends);
        *end = ends.max(*end);
    }
}

/// As core knows it.
fn mode_of(text: &str) -> Mode {
    match text {
        "s" => Mode::Shared,
        "u" => Mode::Upgradable,
        permits if permits.starts_with('p') => {
            let (take, of) = permits[1..].split_once('/').expect("a limit");
            let number = |text: &str| text.parse().expect("a number");
            Mode::Permits(Permits::new(number(take), number(of)).expect("no more than there are"))
        }
        _ => Mode::Exclusive,
    }
}

fn weight(text: &str) -> i64 {
    match mode_of(text) {
        Mode::Permits(permits) => permits.take().into(),
        _ => 0,
    }
}

fn is_shared(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.starts_with("shared ") || value.starts_with("permits "))
}

impl World<'_> {
    /// A grant has arrived: it goes together with all others that rely on theirs.
    pub(crate) fn believe(&mut self, request: usize, ends: Time) -> Result<(), Broken> {
        let now = self.now;
        self.watch.beliefs.retain(|_, end| *end > now);
        let asked = mode_of(&self.requests[request].mode);
        let others = self.watch.beliefs.keys().filter(|other| **other != request);
        let held: Vec<Mode> = others.map(|other| mode_of(&self.requests[*other].mode)).collect();
        let is_limited = matches!(asked, Mode::Permits(_)) && held.iter().all(|mode| matches!(mode, Mode::Permits(_)));
        // Permits of a higher limit may have been granted since: the server is checked for that.
        if !is_limited && !rules::fits(held.iter().copied(), asked) {
            return Err(format!("{asked:?} relies on its hold beside {held:?}"));
        }
        if asked == Mode::Shared {
            self.tally.readers_together = self.tally.readers_together.max(1 + held.len());
        }
        self.watch.beliefs.insert(request, ends);
        Ok(())
    }

    /// The server has executed a request, which ends or prolongs a hold.
    pub(crate) fn note_end(&mut self, is_over: bool, request: usize) {
        let (hold, ends_by) = match self.requests[request].replaces {
            // An upgrade that is undone gives back what it replaced, for as long as it would have lasted.
            Some(base) if is_over => (base, self.watch.ends_by.get(&request).copied()),
            _ if is_over => return,
            _ => (request, Some(self.server_now() + self.requests[request].ttl)),
        };
        let latest = self.watch.ends_by.entry(hold).or_default();
        *latest = ends_by.unwrap_or_default().max(*latest);
    }

    /// The server has answered an acquire.
    pub(crate) fn note_acquired(
        &mut self,
        request: usize,
        reply: &Reply,
        news: &[(usize, i64)],
        state: &State,
    ) -> Result<(), Broken> {
        let (now, of) = (self.now, &self.requests[request]);
        if matches!(of.stage, Stage::GaveUp | Stage::Done) {
            return Ok(());
        }
        match reply {
            Reply::List(_) => {
                self.watch.began += 1;
                let began = self.watch.began;
                self.watch.waits.entry(request).or_insert((began, now));
                return Ok(());
            }
            Reply::Text(_) => {}
            _ => return Ok(()),
        }
        let Reply::Text(token) = reply else { return Ok(()) };
        let token: u64 = token.parse().map_err(|_| format!("no token: {token}"))?;
        if of.token != Some(token) {
            if token <= self.watch.last_token {
                return Err(format!("token {token} after {}", self.watch.last_token));
            }
            self.tally.grants += 1;
        }
        let just_offered: i64 = news
            .iter()
            .filter(|(_, ms)| *ms == 0)
            .map(|(waiter, _)| weight(&self.requests[*waiter].mode))
            .sum();
        if let Mode::Permits(permits) = mode_of(&of.mode)
            && !self.watch.offered.contains_key(&request)
            && of.token.is_none()
            && self.taken(state) - just_offered > permits.of().into()
        {
            return Err(format!("{} is granted beyond its limit", of.mode));
        }
        let is_repeated = of.token == Some(token);
        self.watch.last_token = self.watch.last_token.max(token);
        self.requests[request].token = Some(token);
        if let Some(base) = self.requests[request].replaces {
            let had = self.watch.sharers.get(&self.requests[base].id);
            if had.is_none_or(|ends| *ends <= self.server_now()) && !is_repeated {
                return Err("an upgrade is granted, and what it replaces has ended".to_owned());
            }
        }
        self.check_order(request)
    }

    /// Nobody that could have been admitted waits for longer, and is passed by.
    fn check_order(&mut self, request: usize) -> Result<(), Broken> {
        let now = self.now;
        let number = self.watch.waits.remove(&request).map_or(u64::MAX, |(number, _)| number);
        let granted = &self.requests[request];
        if !self.plan.strict_order || now <= self.watch.faulty_until || granted.replaces.is_some() {
            return Ok(());
        }
        let both_read = |other: &Request| "su".contains(&*granted.mode) && other.mode == "s";
        let passed = self.watch.waits.iter().find(|(other, (began, _))| {
            let is_offered = self.watch.offered.get(other).is_some_and(|until| *until >= now);
            *began < number && !is_offered && !both_read(&self.requests[**other])
        });
        match passed {
            Some((other, _)) => Err(format!(
                "{} passes {}, which came before it",
                granted.mode, self.requests[*other].mode
            )),
            None => Ok(()),
        }
    }

    /// How many permits are held and offered.
    fn taken(&self, state: &State) -> i64 {
        let now = self.server_now();
        let live = state.sharers.iter().filter(|sharer| sharer.ends > now);
        live.map(|sharer| weight(&sharer.mode)).sum()
    }

    /// What the server has of the name, after each request.
    pub(crate) fn check(&mut self, state: &State) -> Result<(), Broken> {
        let now = self.server_now();
        let shared = is_shared(state.value.as_deref());
        let broken = |what: &str| Err(format!("{what}: {state:?} at {now}"));
        if state.sharers.iter().any(|sharer| !self.by_id.contains_key(&sharer.id)) {
            return broken("held by nobody that ever asked");
        }
        if state.sharers.iter().any(|sharer| sharer.token.is_empty()) {
            return broken("an end without terms");
        }
        let all: i64 = state.sharers.iter().map(|sharer| weight(&sharer.mode)).sum();
        if state.fields.get("permits").map_or("0", String::as_str) != all.to_string() {
            return broken("permits are not as they are added up");
        }
        let upgradable: Vec<_> = state.sharers.iter().filter(|sharer| sharer.mode == "u").collect();
        if upgradable.len() > 1 || state.fields.get("upgradable") != upgradable.first().map(|sharer| &sharer.id) {
            return broken("upgradable holders are not as they are noted");
        }
        let latest = state.sharers.iter().map(|sharer| sharer.ends).max().unwrap_or(0);
        if shared && latest > now && now + state.left + 1 < latest {
            return broken("the key ends before a holder");
        }
        if state.lefts.contains(&-1) {
            return broken("a key never expires");
        }
        if let super::plan::Modes::Permits(most) = self.plan.modes
            && shared
            && self.taken(state) > most.into()
        {
            return broken("more permits than there are");
        }
        self.check_sharers(state)?;
        self.check_beliefs(state)?;
        self.check_idle(state);
        self.check_unheard(state)
    }

    /// Each holder ends by its own requests, and an offer keeps nobody waiting once it has lapsed.
    fn check_sharers(&mut self, state: &State) -> Result<(), Broken> {
        // Else the name was free for a while.
        let sharers = if is_shared(state.value.as_deref()) {
            &state.sharers[..]
        } else {
            &[]
        };
        for sharer in sharers {
            let (id, ends) = (&sharer.id[..6], sharer.ends);
            let ends_by = self.watch.ends_by.get(&self.by_id[&sharer.id]);
            if sharer.token != "0" && ends_by.is_none_or(|latest| ends > *latest) {
                return Err(format!("{id} ends at {ends}, but its own requests say {ends_by:?}"));
            }
            let mut places = state.queue.iter().filter(|place| place.id == sharer.id);
            if sharer.token == "0" && places.any(|place| !place.is_aside) {
                return Err(format!("{id} is offered the name, and goes on to keep others waiting"));
            }
        }
        self.watch.sharers = sharers.iter().map(|sharer| (sharer.id.clone(), sharer.ends)).collect();
        self.watch.queue = state.queue.iter().map(|place| place.id.clone()).collect();
        Ok(())
    }

    /// After something has ended, or a writer reads on: the first waiter does not fit.
    pub(crate) fn check_admitted(&self, request: usize, reply: &Reply, state: &State) -> Result<(), Broken> {
        let had_entry = self.watch.queue.contains(&self.requests[request].id);
        if *reply == Reply::Int(0) && !had_entry {
            return Ok(());
        }
        let value = state.value.as_deref();
        match self.first_that_fits(state, false) {
            Some(place) if is_shared(value) => Err(format!(
                "{} {} fits, and is not admitted: {state:?}",
                place.id, place.mode
            )),
            _ => Ok(()),
        }
    }

    /// The first waiter that was not offered the name, if it fits. Perhaps it is to be one that runs.
    fn first_that_fits<'s>(&self, state: &'s State, runs: bool) -> Option<&'s Place> {
        let now = self.server_now();
        let upgrades = state
            .queue
            .iter()
            .any(|place| place.mode.starts_with("x<") && place.expires > now);
        let first = state.queue.iter().find(|place| {
            let waits = place.expires > now && !place.is_aside && !state.fields.contains_key(&place.id);
            let process = self.process_of(&place.inbox);
            waits && process.is_some_and(|process| !runs || self.runs(process))
        });
        let live = state.sharers.iter().filter(|sharer| sharer.ends > now);
        let held: Vec<Mode> = live.map(|sharer| mode_of(&sharer.mode)).collect();
        let is_alone = state.value.is_some() && !is_shared(state.value.as_deref());
        first.filter(|place| !upgrades && !is_alone && rules::fits(held, mode_of(&place.mode)))
    }

    /// Whoever relies on its hold has it at the server.
    fn check_beliefs(&self, state: &State) -> Result<(), Broken> {
        let value = state.value.as_deref().unwrap_or_default();
        let now = self.server_now();
        for (request, _) in self.watch.beliefs.iter().filter(|(_, end)| **end > self.now) {
            let id = &self.requests[*request].id;
            let is_sharer = |id: &String| state.sharers.iter().any(|sharer| sharer.id == *id && sharer.ends > now);
            // Its upgrade may be granted before it knows, and may yet be undone.
            let holder = self.by_id.get(value.get(..32).unwrap_or_default());
            let is_upgraded = holder.is_some_and(|holder| self.requests[*holder].replaces == Some(*request));
            if !(value.starts_with(&**id) || is_upgraded || is_shared(Some(value)) && is_sharer(id)) {
                let mode = &self.requests[*request].mode;
                return Err(format!(
                    "{} {mode} relies on a hold that has ended: {state:?} at {now}",
                    &id[..6]
                ));
            }
        }
        Ok(())
    }

    fn process_of(&self, inbox: &str) -> Option<usize> {
        self.processes
            .iter()
            .position(|process| process.inbox == inbox && process.is_alive)
    }

    fn check_idle(&mut self, state: &State) {
        let now = self.server_now();
        if let Some(since) = self.watch.idle_since {
            self.tally.idle = self.tally.idle.max(self.now - since);
        }
        let places = state.queue.iter().filter(|place| place.expires > now);
        let waiting = places.filter_map(|place| self.process_of(&place.inbox));
        let could_since = waiting
            .map(|process| self.processes[process].hung_until.max(self.now))
            .min();
        self.watch.idle_since = match (&state.value, could_since) {
            (None, Some(time)) => Some(self.watch.idle_since.map_or(time, |since| since.min(time))),
            _ => None,
        };
    }

    /// A waiter that runs is told when it fits, and nobody waits for too long.
    fn check_unheard(&mut self, state: &State) -> Result<(), Broken> {
        let Some(place) = self.first_that_fits(state, true) else {
            self.watch.unheard = None;
            return self.check_waits();
        };
        match &self.watch.unheard {
            Some((id, since)) if *id == place.id => {
                let unheard = self.now - since;
                if unheard / MS > self.plan.longest_unheard {
                    let (id, mode) = (&place.id[..6], &place.mode);
                    return Err(format!(
                        "{id} {mode} fits for {unheard} us, and nobody tells it: {state:?}"
                    ));
                }
            }
            _ => self.watch.unheard = Some((place.id.clone(), self.now)),
        }
        self.check_waits()
    }

    fn check_waits(&self) -> Result<(), Broken> {
        let too_long = |since: Time| (self.now - since) / MS > self.plan.longest_wait;
        let mut waits = self.watch.waits.iter();
        match waits.find(|(request, (_, since))| too_long(*since) && self.runs(self.requests[**request].process)) {
            Some((request, (_, since))) => {
                let mode = &self.requests[*request].mode;
                Err(format!("{mode} waits for {} us", self.now - since))
            }
            None => Ok(()),
        }
    }
}
