//! What becomes of each request, from its start to its end.

use rand::RngExt;

use super::{Broken, Event, MS, Request, Script, Stage, Time, World};
use crate::support::link::Reply;
use crate::support::scripts::GRACE;

impl World<'_> {
    pub(super) fn start(&mut self, process: usize) {
        if self.now > self.plan.until * MS {
            return;
        }
        let mode = match self.processes[process].is_old {
            true => "x".to_owned(),
            false => self.plan.modes.draw(&mut self.random),
        };
        let ttl = self.one_of(self.plan.ttls) / MS;
        let request = self.request(process, mode, ttl, None);
        if self.plan.gives_up && self.random.random_bool(0.5) {
            let after = self.one_of(&[30, 300, 5000]);
            self.at(after, Event::TooLate(request));
        }
        self.ask(request);
    }

    fn request(&mut self, process: usize, mode: String, ttl: i64, replaces: Option<usize>) -> usize {
        let id = format!("{:032x}", self.random.random::<u128>());
        let hold = self.one_of(self.plan.holds);
        self.by_id.insert(id.clone(), self.requests.len());
        self.requests.push(Request {
            process,
            id,
            mode,
            ttl,
            hold,
            replaces,
            stage: Stage::Asks,
            may_have_entry: false,
            asks_at: 0,
            turn: 0,
            heard: Time::MAX,
            token: None,
            passes: 0,
        });
        self.requests.len() - 1
    }

    pub(super) fn ask(&mut self, request: usize) {
        self.requests[request].stage = Stage::Asks;
        self.requests[request].heard = Time::MAX;
        let of = &self.requests[request];
        let is_plain = of.mode == "x" && !of.may_have_entry && !self.processes[of.process].is_old;
        let script = match is_plain && self.plan.together && of.is_gathered() {
            true => Script::Grant,
            false => Script::Acquire,
        };
        self.send(script, request);
    }

    pub(super) fn answered(&mut self, script: Script, request: usize, sent: Time, reply: Reply) -> Result<(), Broken> {
        let stage = self.requests[request].stage;
        match script {
            Script::Grant if stage == Stage::Asks => self.send(Script::Acquire, request),
            Script::EndTogether => self.send(Script::End, request),
            Script::Acquire if stage == Stage::Asks => return self.acquired(request, sent, reply),
            Script::Renew | Script::Downgrade if stage == Stage::Holds => {
                if reply.int() == 0 || !self.watch.believes(request, self.now) {
                    self.lose(request);
                    return Ok(());
                }
                let ends = sent + self.requests[request].ttl * MS * 9 / 10;
                self.watch.prolong(request, ends);
                if script == Script::Renew {
                    let after = sent + self.requests[request].ttl * MS / 3 - self.now;
                    self.at(after, Event::Renew(request));
                } else {
                    let after = self.one_of(self.plan.holds);
                    self.at(after, Event::Release(request));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn acquired(&mut self, request: usize, sent: Time, reply: Reply) -> Result<(), Broken> {
        let Request { ttl, hold, process, .. } = self.requests[request];
        match reply {
            Reply::List(taken) => {
                let (left, ahead) = (taken[1].int(), taken[2].int());
                let lifetime = ttl.clamp(3 * GRACE, 15_000) * MS;
                let refresh = lifetime / 3 * self.random.random_range(80..=100) / 100;
                let after = if left < 0 {
                    refresh
                } else {
                    refresh.min((left + 1 + GRACE * ahead) * MS)
                };
                let heard = self.requests[request].heard;
                let of = &mut self.requests[request];
                of.stage = Stage::Sleeps;
                of.may_have_entry = true;
                self.wake_at(request, (self.now + after).min(heard.max(self.now)));
            }
            Reply::Int(-1) if self.requests[request].replaces.is_some() => {
                self.requests[request].stage = Stage::Done;
                self.watch.waits.remove(&request);
            }
            Reply::Text(_) => {
                let ends = sent + ttl * MS * 9 / 10;
                let of = &mut self.requests[request];
                of.stage = Stage::Holds;
                if ends <= self.now {
                    // Granted, and over before it is known.
                    self.lose(request);
                    return Ok(());
                }
                if let Some(base) = self.requests[request].replaces {
                    self.tally.upgrades += 1;
                    self.requests[base].stage = Stage::Done;
                    self.watch.forget(|request| request == base);
                }
                self.believe(request, ends)?;
                self.at(ttl * MS / 3, Event::Renew(request));
                self.at(hold, Event::Release(request));
            }
            other => return Err(format!("process {process} is answered {other:?}")),
        }
        Ok(())
    }

    fn wake_at(&mut self, request: usize, time: Time) {
        let of = &mut self.requests[request];
        of.asks_at = time;
        of.turn += 1;
        let turn = of.turn;
        self.at(time - self.now, Event::Ask(request, turn));
    }

    pub(super) fn message(&mut self, request: usize, ms: i64) {
        let time = self.now + ms * MS;
        let of = &mut self.requests[request];
        match of.stage {
            Stage::Sleeps if time < of.asks_at => self.wake_at(request, time),
            Stage::Asks => of.heard = of.heard.min(time),
            _ => {}
        }
    }

    pub(super) fn give_up(&mut self, request: usize) {
        self.tally.given_up += 1;
        self.requests[request].stage = Stage::GaveUp;
        let Some(base) = self.requests[request].replaces else {
            return self.finish(request, true);
        };
        // Which reads on, and is released later.
        self.watch.forget(|other| other == request);
        self.send(Script::End, request);
        let after = self.one_of(self.plan.holds);
        self.at(after, Event::Release(base));
    }

    /// Whether it holds, and its lease has not ended.
    pub(super) fn still_holds(&mut self, request: usize) -> bool {
        let holds = self.requests[request].stage == Stage::Holds;
        if holds && !self.watch.believes(request, self.now) {
            self.lose(request);
            return false;
        }
        holds
    }

    fn lose(&mut self, request: usize) {
        self.tally.lost += 1;
        self.requests[request].stage = Stage::Done;
        self.finish(request, true);
    }

    pub(super) fn release(&mut self, request: usize) -> Result<(), Broken> {
        let Request { process, ttl, .. } = self.requests[request];
        let mode = self.requests[request].mode.clone();
        let may_change = mode == "x" && !self.processes[process].is_old;
        if may_change
            && self.chance(self.plan.passes)
            && let Some(token) = self.requests[request].next_reserved()
        {
            return self.pass(request, token);
        }
        if may_change && self.chance(self.plan.downgrades) {
            self.tally.downgrades += 1;
            // From now on it relies on no more than that.
            "s".clone_into(&mut self.requests[request].mode);
            self.send(Script::Downgrade, request);
        } else if mode == "u" && self.random.random_bool(0.5) {
            // It goes on holding meanwhile, and is renewed.
            let replaced = format!("x<{}", self.requests[request].id);
            let upgrade = self.request(process, replaced, ttl, Some(request));
            if self.plan.gives_up && self.random.random_bool(0.5) {
                let after = self.one_of(&[1, 3, 30]);
                self.at(after, Event::TooLate(upgrade));
            }
            self.ask(upgrade);
        } else {
            self.requests[request].stage = Stage::Done;
            self.finish(request, true);
        }
        Ok(())
    }

    /// Another task of the process goes on with the hold and this token. Nobody asks the server.
    fn pass(&mut self, request: usize, token: u64) -> Result<(), Broken> {
        self.requests[request].passes += 1;
        self.tally.passes += 1;
        self.watch.note_passed(token)?;
        let after = self.one_of(self.plan.holds);
        self.at(after, Event::Release(request));
        Ok(())
    }

    /// The request is over, and another one begins a little later.
    pub(super) fn finish(&mut self, request: usize, ends: bool) {
        self.watch.forget(|other| other == request);
        if ends {
            let of = &self.requests[request];
            let is_gathered = self.plan.together && of.is_gathered() && !self.processes[of.process].is_old;
            let script = match is_gathered && of.stage != Stage::GaveUp {
                true => Script::EndTogether,
                false => Script::End,
            };
            self.send(script, request);
        }
        let (process, after) = (self.requests[request].process, self.one_of(self.plan.thinks));
        self.at(after, Event::Start(process));
    }
}
