//! The queue in the scripts of `lock-redis` and in the model: the same requests to both at the same moments, and the same
//! answers, holds, queue entries and messages.

use std::time::Duration;

use lock_core::backend::rules;
use lock_redis::redis::{self, Value};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use testbed::steady::SAFETY;
use torture_models::id::Id;
use torture_models::mutant::Mutant;
use torture_models::request::{Reply, Request, Wake};
use torture_models::server::{ServerModel, Settings};

use super::scripts::Scripts;
use super::scripts::arguments::{AcquireArguments, EndArguments, RenewArguments, YES};
use super::scripts::files::{ACQUIRE, END, RENEW};

const CLIENTS: usize = 4;
const GRACE: Duration = Duration::from_secs(1);
const ENTRY_TTL: Duration = Duration::from_secs(12);
/// The longest TTL of an entry, as the scripts have it.
const LONGEST_ENTRY_TTL: Duration = Duration::from_secs(15);
const LAST_RUN: u8 = Id::PER_CLIENT - 1;

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Try(usize),
    Renew(usize, u64),
    Release(usize),
    Keep(usize, u64),
    Abandon(usize),
    /// The client's inbox gets a subscriber, and the client asks again if it waits; or it has none any more.
    Hear(usize, bool),
    /// The server's clock moves by so many seconds.
    Move(i64),
}

#[testbed::test]
async fn the_queue_s_scripts_decide_as_the_model() {
    let mut scripts = Scripts::start().await;
    if scripts.skip_external() {
        return;
    }
    let mut granted = 0;
    for seed in 0..500 {
        granted += examine(&mut scripts, None, seed)
            .await
            .unwrap_or_else(|wrong| panic!("{SAFETY}{wrong}"));
    }
    assert!(
        granted > 2000,
        "{granted}: sequences that get no further than \"busy\" would agree with anything"
    );
}

/// A model that is not as the scripts are is found out.
#[testbed::test]
async fn a_model_of_another_queue_is_caught() {
    let mut scripts = Scripts::start().await;
    if scripts.skip_external() {
        return;
    }
    for mutant in [
        Mutant::NoStandBy,
        Mutant::StandByNotRelieved,
        Mutant::LeavesAFreeName,
        Mutant::LeavesAtGrant,
        Mutant::RefreshKeepsAll,
        Mutant::NotRepaired,
        Mutant::KeepForgotten,
        Mutant::KeptForAnyone,
        Mutant::KeptNotRepaired,
    ] {
        let mut caught = false;
        for seed in 0..150 {
            caught = caught || examine(&mut scripts, Some(mutant), seed).await.is_err();
        }
        assert!(caught, "{mutant:?} is not found out");
    }
}

/// Runs one seed. Returns the number of grants, or the difference of the two.
async fn examine(scripts: &mut Scripts, mutant: Option<Mutant>, seed: u64) -> Result<u64, String> {
    let _: Value = scripts.ask(redis::cmd("FLUSHALL")).await;
    let mut random = StdRng::seed_from_u64(seed);
    let mut pair = Pair {
        settings: Settings {
            reserved: 16,
            grace: GRACE,
            entry_ttl: ENTRY_TTL,
            longest_entry_ttl: LONGEST_ENTRY_TTL,
            tombstones: false,
            mutant,
        },
        model: ServerModel::default(),
        clients: [Client::default(); CLIENTS],
        granted: 0,
    };
    for client in 0..CLIENTS {
        scripts.hear(&inbox(client)).await;
    }
    let mut steps = Vec::new();
    for _ in 0..40 {
        let client = random.random_range(0..CLIENTS);
        let step = match random.random_range(0..23) {
            0..7 => Step::Ask(client),
            7 => Step::Try(client),
            8 => Step::Renew(client, random.random_range(5..40)),
            9..12 => Step::Release(client),
            12..14 => Step::Keep(client, random.random_range(1..8)),
            14..16 => Step::Abandon(client),
            16 => Step::Hear(client, false),
            17 => Step::Hear(client, true),
            18 if random.random_bool(0.3) => Step::Move(-random.random_range(1..40)),
            _ => Step::Move(random.random_range(1..6)),
        };
        steps.push(step);
        let agreed = pair.take(scripts, step).await;
        agreed.map_err(|wrong| format!("seed {seed} after {steps:?}: {wrong}"))?;
    }
    Ok(pair.granted)
}

#[derive(Clone, Copy, Default)]
struct Client {
    run: u8,
    holds: bool,
    asked: bool,
}

struct Pair {
    settings: Settings,
    model: ServerModel<Duration>,
    clients: [Client; CLIENTS],
    granted: u64,
}

impl Pair {
    async fn take(&mut self, scripts: &mut Scripts, step: Step) -> Result<(), String> {
        let micros = scripts.now().await;
        let now = Duration::from_millis(micros / 1000);
        let client = |client: usize| (self.clients[client], Id::new(client, self.clients[client].run));
        let ttl = Duration::from_secs(30);
        let request = match step {
            Step::Move(seconds) => {
                // An entry that has ended comes back with no clock, whether the server has removed it by now or not.
                if !scripts.is_there(QUEUE).await {
                    self.model.queue.clear();
                }
                if !scripts.is_there(LOCK).await {
                    self.model.hold = None;
                }
                // A millisecond more, so that nothing ends in the very moment.
                scripts.move_clock(seconds * 1000 + i64::from(seconds > 0));
                return Ok(());
            }
            Step::Hear(client, true) => {
                scripts.hear(&inbox(client)).await;
                self.model.unreachable.remove(Id::new(client, 0));
                return match self.clients[client] {
                    Client {
                        asked: true,
                        holds: false,
                        ..
                    } => Box::pin(self.take(scripts, Step::Ask(client))).await,
                    _ => Ok(()),
                };
            }
            Step::Hear(client, false) => {
                scripts.stop_hearing(&inbox(client)).await;
                self.model.unreachable.insert(Id::new(client, 0));
                return Ok(());
            }
            // Core asks for another one with another id.
            Step::Ask(at) | Step::Try(at) if client(at).0.holds && !self.is_held_by(client(at).1, now) => return Ok(()),
            Step::Ask(at) | Step::Try(at) if client(at).0.run < LAST_RUN => {
                // Who waits goes on to.
                let waits = matches!(step, Step::Ask(_)) || client(at).0.asked;
                let id = client(at).1;
                Request::Acquire { id, ttl, waits }
            }
            Step::Renew(at, seconds) if client(at).0.holds => Request::Renew {
                id: client(at).1,
                ttl: Duration::from_secs(seconds),
            },
            Step::Release(at) if client(at).0.holds => Request::Release(client(at).1),
            Step::Keep(at, seconds) if client(at).0.holds => Request::Keep {
                id: client(at).1,
                time: Duration::from_secs(seconds),
            },
            Step::Abandon(at) if client(at).0.asked => Request::Abandon(client(at).1),
            _ => return Ok(()),
        };
        let mut wakes = Vec::new();
        let expected = self.model.answer(request, (now, micros), &self.settings, &mut wakes);
        let (reply, taken) = ask(scripts, request).await;
        if reply != expected {
            return Err(format!("{request} is answered {reply}, not {expected}"));
        }
        let is_entry = matches!(request, Request::Acquire { waits: true, .. }) && reply == Reply::Busy;
        let expected = is_entry.then(|| self.model.taken(request.id(), now)).flatten();
        let expected = expected.map(|(end, ahead)| (end.saturating_sub(now), ahead));
        if taken != expected {
            return Err(format!("{request} is taken for {taken:?}, not {expected:?}"));
        }
        self.note(request, reply);
        self.compare(scripts, now, &wakes).await
    }

    fn is_held_by(&self, id: Id, now: Duration) -> bool {
        let holder = self.model.holder(now).filter(|hold| hold.kept.is_none());
        holder.is_some_and(|hold| hold.holder == id)
    }

    fn note(&mut self, request: Request, reply: Reply) {
        let client = &mut self.clients[request.id().client()];
        let gone = |client: &Client| Client {
            run: client.run + 1,
            ..Client::default()
        };
        match (request, reply) {
            (Request::Acquire { waits, .. }, _) => {
                client.asked |= waits;
                client.holds |= matches!(reply, Reply::Granted(_));
            }
            (Request::Renew { .. }, Reply::Done) => {}
            _ => *client = gone(client),
        }
        self.granted += u64::from(matches!(reply, Reply::Granted(_)));
    }

    /// holds, queue entries and messages.
    async fn compare(&self, scripts: &mut Scripts, now: Duration, wakes: &[Wake<Duration>]) -> Result<(), String> {
        let told = scripts.told().await;
        let expected: Vec<_> = wakes
            .iter()
            .map(|wake| match wake {
                Wake::Offer(id) => (holder(*id), Duration::ZERO),
                Wake::StandBy(id, at) => (holder(*id), at.saturating_sub(now)),
            })
            .collect();
        if told != expected {
            return Err(format!("told {told:?}, not {expected:?}"));
        }
        let entries = scripts.entries(QUEUE, now).await;
        let live = self
            .model
            .queue
            .iter()
            .filter(|entry| !rules::has_expired(entry.expires, now));
        let expected: Vec<_> = live.map(|entry| (holder(entry.holder), entry.expires)).collect();
        if entries != expected {
            return Err(format!("entries {entries:?}, not {expected:?}"));
        }
        let mut get = redis::cmd("GET");
        let value: Option<String> = scripts.ask(get.arg(LOCK).to_owned()).await;
        let mut rest = redis::cmd("PTTL");
        let rest: i64 = scripts.ask(rest.arg(LOCK).to_owned()).await;
        let expected = self.model.holder(now).map(|hold| {
            let id = match hold.kept {
                Some(kept) => format!("kept{:028}", kept.as_millis()),
                None => holder(hold.holder),
            };
            let value = format!("{id} {} {}", hold.token.unwrap_or(0), hold.term.as_millis());
            (value, (hold.expires - now).as_millis())
        });
        let found = value.map(|value| (value, u128::try_from(rest).unwrap_or(0)));
        if found != expected {
            return Err(format!("the name is {found:?}, not {expected:?}"));
        }
        Ok(())
    }
}

const LOCK: &str = "a";
const FENCE: &str = "{a}:fence";
const QUEUE: &str = "{a}:queue";

/// The answer, and to one that waits for how long and after how many others.
async fn ask(scripts: &Scripts, request: Request) -> (Reply, Option<(Duration, usize)>) {
    let keys = [LOCK, FENCE, QUEUE, "{a}:ends", "{a}:terms"];
    let ms = |time: Duration| time.as_millis().to_string();
    let (id, inbox, grace) = (holder(request.id()), inbox(request.id().client()), ms(GRACE));
    let done = |answer: u8| match answer {
        1 => Reply::Done,
        _ => Reply::NotYours,
    };
    let ending = EndArguments {
        held: (&*id).into(),
        grace: (&*grace).into(),
        mode: "x".into(),
        ..EndArguments::default()
    };
    let reply = match request {
        Request::Acquire { ttl, waits, .. } => {
            let arguments = AcquireArguments {
                holder: (&*id).into(),
                ttl: ms(ttl).into(),
                floor: "0".into(),
                mode: "x".into(),
                grace: (&*grace).into(),
                is_plain: if waits { "" } else { YES }.into(),
                ..AcquireArguments::default()
            };
            let arguments = match waits {
                true => AcquireArguments {
                    inbox: (&*inbox).into(),
                    lifetime: ms(ENTRY_TTL).into(),
                    may_have_entry: YES.into(),
                    ..arguments
                },
                false => arguments,
            };
            let answer: Value = scripts.run(ACQUIRE, &keys, &arguments.all()).await;
            let Value::Array(taken) = &answer else {
                return (Reply::Granted(token(&answer)), None);
            };
            let [_, Value::Int(left), Value::Int(ahead)] = &taken[..] else {
                panic!("{taken:?}");
            };
            let left = Duration::from_millis(u64::try_from(*left).unwrap_or(0));
            return (Reply::Busy, usize::try_from(*ahead).ok().map(|ahead| (left, ahead)));
        }
        Request::Renew { ttl, .. } => {
            let arguments = RenewArguments {
                holder: id.into(),
                ttl: ms(ttl).into(),
            };
            done(scripts.run(RENEW, &keys, &arguments.all()).await)
        }
        Request::Release(_) => done(scripts.run(END, &keys, &ending.all()).await),
        Request::Keep { time, .. } => {
            let keep_for = ms(time).into();
            let keeping = EndArguments { keep_for, ..ending };
            done(scripts.run(END, &keys, &keeping.all()).await)
        }
        Request::Abandon(_) => {
            let inbox = inbox.into();
            let abandoning = EndArguments { inbox, ..ending };
            let _: u8 = scripts.run(END, &keys, &abandoning.all()).await;
            Reply::Done
        }
    };
    (reply, None)
}

fn token(answer: &Value) -> u64 {
    let text: String = redis::from_redis_value_ref(answer).expect("a token");
    text.parse().expect("a number")
}

fn holder(id: Id) -> String {
    format!("{:032x}", u32::from(id.0) + 0xa000)
}

fn inbox(client: usize) -> String {
    format!("inbox-{client}")
}
