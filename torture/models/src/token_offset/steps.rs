//! The effect of each event.

use super::{Held, Listing, State, Step, TOKENS_PER_ZXID, TokenOffsetModel};
use crate::mutant::Mutant;

impl TokenOffsetModel {
    pub(super) fn list(&self, state: &State, index: usize) -> Step {
        let client = &state.clients[index];
        let Some(directory) = state.directory.filter(|_| state.is_first(index)) else {
            return Step::Idle;
        };
        let base = match client.written {
            Some(written) => Some(written),
            None if client.same_connection && self.has(Mutant::ZookeeperCreatedOnly) => Some(client.czxid),
            None if client.same_connection || self.has(Mutant::TrustsARestartedServer) => {
                Some(client.czxid.max(directory.pzxid))
            }
            None => None,
        };
        Step::Listed(Listing {
            number: state.next_number(),
            base,
            known: client.known,
            watched: client.watched,
        })
    }

    /// As `lock-zookeeper/src/acquire/token.rs`.
    pub(super) fn decide(&self, state: &mut State, index: usize) -> Option<()> {
        let mut client = state.clients[index];
        let Step::Read(listing, read, directory) = client.step else {
            return None;
        };
        client.step = Step::Queued;
        state.clients[index] = client;
        let Some(base) = listing.base else {
            let written = state.write_node(index);
            state.clients[index].written = written;
            return Some(());
        };
        let known = listing.known;
        let offset = match () {
            () if self.has(Mutant::OffsetForFloorsOnly) && self.floors[index] == 0 => 0,
            () if self.has(Mutant::KnownOffsetIsEnough) && known > 0 => known,
            () => read,
        };
        let wanted = match self.floors[index] {
            0 => known,
            floor => known.max((floor + 1).saturating_sub(self.token(base, 0, 0))),
        };
        let ignores_directory = self.has(Mutant::OffsetNotInTheDirectory) || self.has(Mutant::OffsetNotKnownBefore);
        if wanted > offset && !self.has(Mutant::OffsetForFloorsOnly) {
            // By compare-and-set.
            if state.offset == read {
                self.raise(state, wanted);
                client.watched = state.clients[index].watched;
                client.known = client.known.max(wanted);
            }
        } else if offset > known && !self.has(Mutant::OffsetNotKnownBefore) {
            client.known = client.known.max(offset);
        } else if directory != offset && !ignores_directory {
            if let Some(directory) = &mut state.directory {
                directory.offset = offset;
                state.write();
            }
        } else {
            let (number, passed) = (listing.number, 0);
            let held = Held {
                number,
                base,
                offset,
                passed,
                is_raised: false,
            };
            self.granted(state, index, held);
            return Some(());
        }
        state.clients[index] = client;
        Some(())
    }

    /// Writes the offset. The watches fire.
    pub(super) fn raise(&self, state: &mut State, offset: u64) {
        if offset != state.offset && !self.has(Mutant::WatchIsNotAsked) {
            state.clients.iter_mut().for_each(|client| client.watched = None);
        }
        state.offset = offset;
        state.write();
    }

    pub(super) fn granted(&self, state: &mut State, index: usize, held: Held) {
        let token = self.token(held.base, held.offset, held.passed);
        state.grants.push((held.number, token));
        state.below_floor |= token <= self.floors[index];
        state.clients[index].step = Step::Holds(held);
    }

    pub(super) fn token(&self, base: u64, offset: u64, passed: u64) -> u64 {
        let room = match self.mutant {
            Some(Mutant::NoRoomForPasses) => 1,
            _ => TOKENS_PER_ZXID,
        };
        base * room + offset + passed
    }

    /// Whether the token that the server shows, if it shows one, is that of the holder's grant. A client that lost its
    /// node before its grant may still write the directory; a server that restarted may know too little.
    pub(super) fn shows_the_token(&self, state: &State) -> bool {
        let (Some(node), Some(directory)) = (state.nodes.first(), state.directory) else {
            return true;
        };
        let Step::Holds(held) = state.clients[node.owner].step else {
            return true;
        };
        let base = match self.mutant {
            Some(Mutant::StatusGuessesTheZxid) => node.mzxid.max(directory.pzxid),
            _ if node.mzxid > node.czxid => node.mzxid,
            _ if directory.pzxid == node.czxid => node.czxid,
            _ => return true,
        };
        let shown = self.token(base, directory.offset, 0);
        state.deletions + state.restarts > 0 || shown == self.token(held.base, held.offset, 0)
    }
}

impl State {
    pub(super) fn write(&mut self) -> u64 {
        self.zxid += 1;
        self.zxid
    }

    /// The last write was that of a child's creation or end.
    pub(super) fn children_changed(&mut self) {
        if let Some(directory) = &mut self.directory {
            directory.pzxid = self.zxid;
        }
    }

    pub(super) fn end_node(&mut self, place: usize) {
        self.nodes.remove(place);
        self.write();
        self.children_changed();
    }

    /// The zxid of a write of the client's node, if it is there.
    pub(super) fn write_node(&mut self, client: usize) -> Option<u64> {
        let place = self.nodes.iter().position(|node| node.owner == client)?;
        let zxid = self.write();
        self.nodes[place].mzxid = zxid;
        Some(zxid)
    }

    /// Larger than those of all listings that were or may be granted by.
    pub(super) fn next_number(&self) -> u8 {
        let open = self.clients.iter().filter_map(|client| match client.step {
            Step::Listed(listing) | Step::Read(listing, ..) => Some(listing.number),
            _ => None,
        });
        let granted = self.grants.iter().map(|(number, _)| *number);
        open.chain(granted).max().unwrap_or_default() + 1
    }

    pub(super) fn is_first(&self, client: usize) -> bool {
        self.nodes.first().is_some_and(|node| node.owner == client)
    }
}
