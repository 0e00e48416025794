//! One sequence of steps, on the subject and on the model.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, DistributedLock, Hold, LockStatus, ReleaseOptions, ReleaseOutcome, Renewal, rules,
};
use lock_core::{FencingToken, LockName};
use testbed::steady::SAFETY;
use tokio::time::Instant;
use torture_models::id::Id;
use torture_models::mutant::Mutant;
use torture_models::request::{Reply, Request};
use torture_models::server::{ServerModel, Settings};

use super::subjects::Subject;
use super::{Answers, CLIENTS, Step};

/// After so many acquisitions a client only watches.
const LAST_RUN: u8 = Id::PER_CLIENT - 1;

/// The resolution of a server's clock, at worst.
const TICK: Duration = Duration::from_millis(2);

/// The subject and the model, side by side, on a name of their own.
pub(crate) struct Pair<'a, S> {
    subject: &'a S,
    backend: Arc<dyn DistributedLock>,
    name: LockName,
    seed: u64,
    settings: Settings,
    steps: Vec<Step>,
    origin: Instant,
    /// The model as if the server had decided at the earliest and at the latest moment that it can have: what the
    /// server does lies in between.
    earliest: ServerModel<Duration>,
    latest: ServerModel<Duration>,
    last_token: u64,
    clients: [Client; CLIENTS],
}

#[derive(Default)]
struct Client {
    run: u8,
    acquiring: Option<(AcquireRequest, RequestControl)>,
    hold: Option<Arc<dyn Hold>>,
}

impl<'a, S: Subject> Pair<'a, S> {
    pub(crate) fn new(subject: &'a S, mutant: Option<Mutant>, seed: u64) -> Self {
        Self {
            subject,
            backend: subject.backend(),
            name: LockName::new(format!("differential-{seed}")).expect("a good name"),
            seed,
            settings: Settings {
                reserved: 0,
                tombstones: true,
                mutant,
                ..Settings::default()
            },
            steps: Vec::new(),
            origin: Instant::now(),
            earliest: ServerModel::default(),
            latest: ServerModel::default(),
            last_token: 0,
            clients: Default::default(),
        }
    }

    /// Takes a step on both.
    pub(crate) async fn take(&mut self, step: Step, with_floor: bool, answers: &mut Answers) {
        self.steps.push(step);
        match step {
            Step::Acquire(client, ttl) => self.acquire(client, ttl, with_floor, answers).await,
            Step::Renew(client, ttl) => {
                let Some(hold) = self.clients[client].hold.clone() else {
                    return;
                };
                let id = self.id(client);
                let before = self.now();
                let reply = match hold.renew(ttl).await {
                    Ok(Renewal::Renewed(_)) => Reply::Done,
                    Ok(Renewal::Lost) => Reply::NotYours,
                    other => panic!("{}: {other:?}", self.context()),
                };
                self.agree(Request::Renew { id, ttl }, before, reply, answers);
            }
            Step::Release(client) => {
                let Some(hold) = self.clients[client].hold.clone() else {
                    return;
                };
                let id = self.id(client);
                let before = self.now();
                let reply = match hold.release(ReleaseOptions::default()).await {
                    Ok(ReleaseOutcome::Released) => Reply::Done,
                    Ok(ReleaseOutcome::AlreadyLost) => Reply::NotYours,
                    other => panic!("{}: {other:?}", self.context()),
                };
                self.agree(Request::Release(id), before, reply, answers);
            }
            Step::Abandon(client) => {
                let Some((request, _)) = &self.clients[client].acquiring else {
                    return;
                };
                let (request, id, before) = (request.clone(), self.id(client), self.now());
                let abandoned = self.backend.abandon(&request).await;
                abandoned.unwrap_or_else(|error| panic!("{}: {error}", self.context()));
                self.agree(Request::Abandon(id), before, Reply::Done, answers);
                self.clients[client] = Client {
                    run: self.clients[client].run + 1,
                    ..Client::default()
                };
            }
            Step::Expire => {
                if self.earliest.holder(self.now()).is_some() {
                    self.subject.expire(&self.name).await;
                    self.earliest.hold = None;
                    self.latest.hold = None;
                }
            }
            Step::Pass => self.subject.pass().await,
        }
    }

    async fn acquire(&mut self, client: usize, ttl: Duration, with_floor: bool, answers: &mut Answers) {
        let holds = |pair: &Self| {
            let holder = pair.earliest.holder(pair.now());
            holder.is_some_and(|hold| hold.holder == pair.id(client))
        };
        if self.clients[client].hold.is_some() && !holds(self) {
            // Its id is dead, as core's would be.
            let run = self.clients[client].run + 1;
            self.clients[client] = Client {
                run,
                ..Client::default()
            };
        }
        if self.clients[client].run == LAST_RUN {
            return;
        }
        let (name, last) = (self.name.clone(), self.last_token);
        let (request, control) = self.clients[client].acquiring.get_or_insert_with(|| {
            let options = RequestOptions::new(name, Terms::new(ttl)).waits(false);
            match FencingToken::new(last + 10_000_000).filter(|_| with_floor) {
                Some(floor) => options.token_above(floor).start(),
                None => options.start(),
            }
        });
        control.set_terms(Terms::new(ttl));
        let request = request.clone();
        let is_repeated = holds(self);

        let clock_before = self.subject.clock().await;
        let before = self.now();
        let attempt = self.backend.acquire(&request).await;
        let (reply, hold) = match attempt {
            Ok(Attempt::Granted(hold, _)) => (Reply::Granted(hold.token().as_u64()), Some(hold)),
            Ok(Attempt::Busy(_)) => (Reply::Busy, None),
            other => panic!("{}: {other:?}", self.context()),
        };
        let id = self.id(client);
        let waits = false;
        self.agree(Request::Acquire { id, ttl, waits }, before, reply, answers);
        let Some(hold) = hold else { return };
        let token = hold.token().as_u64();
        if is_repeated {
            answers.repeated += 1;
            assert_eq!(token, self.last_token, "{}", self.context());
        } else {
            let last = match self.last_token {
                0 => 0,
                token => token + self.subject.reserved(),
            };
            let next = |clock| rules::next_token(last, clock, request.token_floor()).map(u64::from);
            let (least, most) = (next(clock_before), next(self.subject.clock().await));
            assert!(token > self.last_token, "{}", self.context());
            assert!(
                least <= Some(token) && Some(token) <= most,
                "{}: {least:?} <= {token} <= {most:?}",
                self.context()
            );
        }
        self.last_token = token;
        for model in [&mut self.earliest, &mut self.latest] {
            model.stored = token;
            model.hold.iter_mut().for_each(|hold| hold.token = Some(token));
        }
        self.clients[client].hold = Some(hold);
    }

    /// Both answers are of one kind.
    fn agree(&mut self, request: Request, before: Duration, reply: Reply, answers: &mut Answers) {
        let after = self.now();
        let settings = self.settings;
        let answer = |model: &mut ServerModel<Duration>, now| model.answer(request, (now, 0), &settings, &mut vec![]);
        let expected = [answer(&mut self.earliest, before), answer(&mut self.latest, after)];
        for expected in expected {
            let kinds = (std::mem::discriminant(&expected), std::mem::discriminant(&reply));
            assert_eq!(
                kinds.0,
                kinds.1,
                "{}: {request} is answered {reply} instead of {expected}",
                self.context()
            );
        }
        match reply {
            Reply::Granted(_) => answers.granted += 1,
            Reply::Busy => answers.busy += 1,
            Reply::Done => answers.done += 1,
            Reply::NotYours | Reply::Dead => answers.not_yours += 1,
        }
    }

    /// The server says of the hold what the model does.
    pub(crate) async fn compare_status(&self) {
        let before = self.now();
        let status = self.backend.status(&self.name).await;
        let after = self.now();
        let LockStatus { holders, .. } = status.unwrap_or_else(|error| panic!("{}: {error}", self.context()));
        let (early, late) = (self.earliest.holder(before), self.latest.holder(before));
        let (Some(early), Some(late)) = (early, late) else {
            assert_eq!(holders.len(), 0, "{}: held after its end", self.context());
            return;
        };
        assert_eq!(holders.len(), 1, "{}: not held before its end", self.context());
        let token = holders[0].token.map(u64::from);
        assert_eq!(token, early.token, "{}", self.context());
        // A row lock that is renewed shows no end.
        let Some(rest) = holders[0].expires_in else {
            return;
        };
        let least = early.expires.saturating_sub(after).saturating_sub(TICK);
        let most = late.expires - before + TICK;
        assert!(
            least <= rest && rest <= most,
            "{}: {least:?} <= {rest:?} <= {most:?}",
            self.context()
        );
    }

    fn id(&self, client: usize) -> Id {
        Id::new(client, self.clients[client].run)
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Of a disagreement, which no slow machine explains.
    fn context(&self) -> String {
        format!("{SAFETY}seed {} after {:?}", self.seed, self.steps)
    }
}
