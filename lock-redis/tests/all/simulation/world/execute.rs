//! A request at the server: its script, the news that it publishes, and the answer.

use rand::RngExt;

use super::{Broken, Event, MS, Process, Script, Stage, Time, World};
use crate::support::link::Reply;
use crate::support::scripts::arguments::{EndArguments, YES};
use crate::support::scripts::{self, Asker, GRACE, KEYS, NOTHING, State, abandon, downgrade, renew};

impl World<'_> {
    pub(super) fn execute(&mut self, script: Script, request: usize, sent: Time) -> Result<(), Broken> {
        self.tally.calls += 1;
        self.scripts.set_micros(self.base + self.now + self.skew);
        let of = &self.requests[request];
        let Process { inbox, is_old, .. } = &self.processes[of.process];
        let is_old = *is_old;
        let (ttl, grace) = (of.ttl.to_string(), GRACE.to_string());
        match script {
            Script::Acquire => {
                let asker = Asker {
                    id: &of.id,
                    mode: &of.mode,
                    ttl: of.ttl,
                    inbox: Some(inbox),
                    may_have_entry: of.may_have_entry,
                };
                match is_old {
                    true => {
                        let arguments = asker.old_arguments();
                        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                        self.scripts.add_old("acquire", &arguments);
                    }
                    false => self.scripts.add("acquire", &asker.arguments().all()),
                }
            }
            Script::Grant => {
                let [lock, fence, ..] = KEYS;
                self.scripts
                    .add_together("grant_together", [lock, fence], &[&*ttl, "", &of.id]);
            }
            Script::EndTogether => {
                let [lock, _fence, queue, ..] = KEYS;
                let held = scripts::release(&of.held()).held;
                self.scripts.add_together("end_together", [lock, queue], &[held]);
            }
            Script::Renew if is_old => self.scripts.add_old("renew", &[&of.id, &ttl]),
            Script::Renew => self.scripts.add("renew", &renew(&of.id, of.ttl).all()),
            Script::Downgrade => self.scripts.add("downgrade", &downgrade(&of.id, of.ttl).all()),
            Script::End => {
                let arguments = match of.stage {
                    Stage::GaveUp => EndArguments {
                        leaves_tombstone: YES.into(),
                        ..abandon(&of.id, &of.mode, inbox)
                    },
                    _ => scripts::release(&of.held()),
                };
                let EndArguments {
                    inbox,
                    leaves_tombstone,
                    ..
                } = &arguments;
                match is_old {
                    true => {
                        let arguments = [&of.id, &grace, &**inbox, "", leaves_tombstone];
                        self.scripts.add_old("end", &arguments);
                    }
                    false => self.scripts.add("end", &arguments.all()),
                }
            }
        }
        self.scripts.add("state", NOTHING);
        let [reply, state] = self.scripts.link.run(2).try_into().expect("two replies");
        let state = match state {
            Reply::Error(error) => return Err(error),
            state => State::parse(state),
        };
        if let Reply::Error(error) = reply {
            return Err(format!("{script:?}: {error}"));
        }
        let (script, reply) = match script {
            Script::Grant => granted(&reply.text())?,
            Script::EndTogether => ended(&reply.text())?,
            script => (script, reply),
        };
        let news: Vec<(usize, i64)> = self
            .scripts
            .link
            .news()
            .iter()
            .map(|(_, message)| self.parse(message))
            .collect();
        self.note_end(script == Script::End, request);
        if script == Script::Acquire {
            self.note_acquired(request, &reply, &news, &state)?;
        }
        if matches!(script, Script::End | Script::Downgrade) && !is_old {
            self.check_admitted(request, &reply, &state)?;
        }
        for (waiter, ms) in news {
            if ms == 0 {
                self.watch.offered.insert(waiter, self.now + GRACE * MS);
            }
            if !self.chance(self.plan.loses.0) {
                let (process, latency) = (self.requests[waiter].process, self.latency());
                self.at(latency, Event::Message(process, waiter, ms));
            }
        }
        self.check(&state)?;
        if self.chance(self.plan.loses.1) {
            // Asked again, as the outcome is unknown.
            let after = self.latency() + self.random.random_range(0..50 * MS);
            self.at(after, Event::Send(script, request));
            return Ok(());
        }
        let latency = self.latency();
        let process = &mut self.processes[self.requests[request].process];
        process.last_answered = (self.now + latency).max(process.last_answered + 1);
        let after = process.last_answered - self.now;
        self.at(after, Event::Answer(script, request, sent, reply));
        Ok(())
    }

    fn parse(&self, message: &str) -> (usize, i64) {
        let (id, ms) = message.split_once(' ').expect("an id and a time");
        (self.by_id[id], ms.parse().expect("a number"))
    }
}

/// The answer to an acquire that went out together with none, as that to one that went out alone; or that it has to go alone.
fn granted(reply: &str) -> Result<(Script, Reply), Broken> {
    match reply.split_once(' ') {
        Some((token, "1")) => Ok((Script::Acquire, Reply::Text(token.to_owned()))),
        Some((_token, "2")) => Ok((Script::Grant, Reply::Nil)),
        _ => Err(format!("grant_together: {reply}")),
    }
}

/// The same for an end.
fn ended(reply: &str) -> Result<(Script, Reply), Broken> {
    match reply {
        "0" | "1" => Ok((Script::End, Reply::Int(reply.parse().expect("a digit")))),
        "2" => Ok((Script::EndTogether, Reply::Nil)),
        _ => Err(format!("end_together: {reply}")),
    }
}
