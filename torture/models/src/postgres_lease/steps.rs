//! The effect of each event.

use super::{Answer, NO_PLACE, Phase, PostgresLeaseModel, Sent, Stage, State, Statement, Tables};
use crate::id::Id;
use crate::mutant::Mutant;

impl PostgresLeaseModel {
    pub(super) fn execute(&self, state: &mut State, mut sent: Sent) {
        state.requests.remove(&sent);
        let id = sent.id;
        let seen = match sent.stage {
            Stage::Begun(seen) => seen,
            _ => state.tables.clone(),
        };
        let answer = match sent.statement {
            Statement::Take => self.take(state, id, &seen),
            Statement::Queue => self.queue(state, id, &seen),
            Statement::Turn(place) => self.turn(state, id, place, &seen),
            Statement::Release | Statement::End | Statement::Bury => {
                if sent.statement == Statement::Bury {
                    state.tables.dead.insert(id);
                }
                // It locks the row, and looks for entries after that.
                let by_snapshot = self.mutant == Some(Mutant::BuriesBySnapshot);
                let leaves = |entry: &(u8, Id)| entry.1 != id || by_snapshot && !seen.queue.contains(entry);
                state.tables.queue.retain(leaves);
                state.tables.holder.take_if(|holder| *holder == id);
                state.ended.insert(id);
                state.durable = state.tables.clone();
                return;
            }
        };
        if answer == Answer::Granted {
            state.durable = state.tables.clone();
        }
        sent.stage = Stage::Done(answer);
        // Nobody waits for the answer any more.
        if state.id(id.client()) == id {
            state.requests.insert(sent);
        }
    }

    /// The row as the statement saw it, and as it is once the statement has locked it.
    fn both(&self, state: &State, seen: &Tables, fits: impl Fn(&Tables) -> bool) -> bool {
        let again = self.mutant == Some(Mutant::DecidesBySnapshot) || fits(&state.tables);
        fits(seen) && again
    }

    fn is_dead(&self, tables: &Tables, id: Id) -> bool {
        self.mutant != Some(Mutant::TombstonesUnread) && tables.dead.contains(&id)
    }

    fn take(&self, state: &mut State, id: Id, seen: &Tables) -> Answer {
        let fits =
            |row: &Tables| !self.is_dead(row, id) && (row.holder == Some(id) || row.holder.is_none() && !row.is_marked);
        if !self.both(state, seen, fits) {
            let (is_held, is_queued) = (seen.holder.is_some(), false);
            return Answer::Refused { is_held, is_queued };
        }
        state.grant(id, NO_PLACE, seen);
        Answer::Granted
    }

    fn queue(&self, state: &mut State, id: Id, seen: &Tables) -> Answer {
        let is_dead = |row: &Tables| self.mutant != Some(Mutant::QueuesTheDead) && self.is_dead(row, id);
        let fits = |row: &Tables| !is_dead(row) && (row.holder.is_some() || row.is_marked);
        if !self.both(state, seen, fits) {
            return Answer::Free;
        }
        state.clock += 1;
        let row = &mut state.tables;
        row.last_place = match self.mutant {
            Some(Mutant::PlacesAreCounted) => row.last_place + 1,
            _ => state.clock.max(row.last_place + 1),
        };
        row.is_marked = true;
        row.queue.push((row.last_place, id));
        Answer::Place(row.last_place)
    }

    fn turn(&self, state: &mut State, id: Id, place: u8, seen: &Tables) -> Answer {
        let fits = |row: &Tables| !self.is_dead(row, id) && row.holder.is_none_or(|holder| holder == id);
        let is_first = !seen.queue.iter().any(|(other, of)| *other < place && *of != id);
        if is_first && self.both(state, seen, fits) {
            // Nobody has queued after it: the row alone says so.
            if state.tables.last_place == place || self.mutant == Some(Mutant::EachGrantUnmarks) {
                state.tables.is_marked = false;
            }
            state.grant(id, place, seen);
            state.tables.queue.retain(|(_, of)| *of != id);
            return Answer::Granted;
        }
        let entry = (place, id);
        state.tables.is_marked |= seen.queue.contains(&entry);
        let is_queued = seen.queue.contains(&entry) && state.tables.queue.contains(&entry);
        let is_held = seen.holder.is_some();
        Answer::Refused { is_held, is_queued }
    }
}

impl State {
    pub(super) fn id(&self, index: usize) -> Id {
        Id::new(index, self.clients[index].run)
    }

    pub(super) fn send(&mut self, index: usize, statement: Statement) {
        let (id, stage) = (self.id(index), Stage::New);
        self.requests.insert(Sent { id, statement, stage });
    }

    pub(super) fn ask(&mut self, index: usize) {
        self.acted = self.acted.max(index + 1);
        self.send(
            index,
            match self.clients[index].place {
                Some(place) => Statement::Turn(place),
                None => Statement::Take,
            },
        );
        self.clients[index].phase = Phase::Asks;
    }

    /// Over another connection than the one over which it asks.
    pub(super) fn give_up(&mut self, index: usize) {
        let client = &self.clients[index];
        let how = match client.phase == Phase::Asks || client.unanswered {
            true => Statement::Bury,
            false => Statement::End,
        };
        self.send(index, how);
        let id = self.id(index);
        self.requests
            .retain(|sent| sent.id != id || !matches!(sent.stage, Stage::Done(_)));
        self.go_out(index);
    }

    pub(super) fn go_out(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.run += 1;
        client.phase = Phase::Out;
        client.place = None;
        client.unanswered = false;
    }

    pub(super) fn deliver(&mut self, sent: Sent) {
        self.requests.remove(&sent);
        let index = sent.id.client();
        let Stage::Done(answer) = sent.stage else { return };
        match answer {
            Answer::Granted => self.clients[index].phase = Phase::Holds,
            Answer::Place(place) => {
                self.clients[index].place = Some(place);
                self.clients[index].phase = Phase::Waits;
            }
            // It was freed meanwhile.
            Answer::Free => self.send(index, Statement::Take),
            Answer::Refused { is_queued: true, .. } => self.clients[index].phase = Phase::Waits,
            // Perhaps only marked, for nobody who still waits.
            Answer::Refused { is_held: false, .. } if sent.statement == Statement::Take => {
                self.send(index, Statement::Turn(NO_PLACE));
            }
            Answer::Refused { .. } => {
                self.clients[index].place = None;
                self.send(index, Statement::Queue);
            }
        }
    }

    /// Whoever asked gets no answer, and asks again. What ends an id is sent again.
    pub(super) fn crash(&mut self) {
        self.crashed += 1;
        self.tables = self.durable.clone();
        let requests = std::mem::take(&mut self.requests);
        for mut sent in requests {
            if matches!(sent.statement, Statement::Release | Statement::End | Statement::Bury) {
                sent.stage = Stage::New;
                self.requests.insert(sent);
            }
        }
        for client in &mut self.clients {
            if client.phase == Phase::Asks {
                client.phase = Phase::Waits;
                client.unanswered = true;
            }
        }
    }

    fn grant(&mut self, id: Id, place: u8, seen: &Tables) {
        let passed = |entry: &&(u8, Id)| entry.0 < place && entry.1 != id && self.tables.queue.contains(entry);
        // Whoever was in the queue before the request came is served first.
        self.starved |= seen.queue.iter().any(|entry| passed(&entry)) && self.tables.holder != Some(id);
        self.tables.holder = Some(id);
    }
}
