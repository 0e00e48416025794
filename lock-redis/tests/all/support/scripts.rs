//! The scripts as they stand in `src/protocol/scripts/`, or each with a mistake, run one by one on a server whose clock stands
//! still.

use std::collections::HashMap;

use testbed::Clock;

use super::link::{Link, Reply};

macro_rules! file {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../src/protocol/scripts/", $name, ".lua")),
        )
    };
}

/// Earlier ones may include later ones.
const FILES: [(&str, &str); 13] = [
    file!("acquire"),
    file!("end"),
    file!("renew"),
    file!("downgrade"),
    file!("hand_over"),
    file!("status"),
    file!("next_token"),
    file!("fence"),
    file!("extend"),
    file!("sharers"),
    file!("queue"),
    file!("admit"),
    // What the server has of one name, at once.
    (
        "state",
        "local all = {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]),
          redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[5]),
          redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), {}}
        for i = 3, 5 do all[6][i - 2] = redis.call('PTTL', KEYS[i]) end
        return all",
    ),
];

pub(crate) const KEYS: [&str; 5] = ["a", "{a}:fence", "{a}:queue", "{a}:ends", "{a}:terms"];

/// A text of a script that is replaced by another, to see that somebody notices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mistake {
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
    pub(crate) by: &'static str,
}

pub(crate) struct Scripts {
    _server: testbed::Server,
    clock: Clock,
    pub(crate) link: Link,
    hashes: HashMap<&'static str, String>,
    /// By the server's clock.
    micros: i64,
}

/// One that asks, as the scripts take it.
pub(crate) struct Asker<'a> {
    pub(crate) id: &'a str,
    pub(crate) mode: &'a str,
    pub(crate) ttl: i64,
    /// `None`: it does not wait.
    pub(crate) inbox: Option<&'a str>,
    pub(crate) may_have_entry: bool,
}

/// What the server has of the name.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) value: Option<String>,
    /// What is left of the lock's key.
    pub(crate) left: i64,
    pub(crate) sharers: Vec<Sharer>,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) queue: Vec<Place>,
    /// What is left of queue, ends and terms.
    pub(crate) lefts: Vec<i64>,
}

/// One that shares the name, or to whom it is offered.
#[derive(Debug)]
pub(crate) struct Sharer {
    pub(crate) id: String,
    pub(crate) ends: i64,
    /// Empty where there are no terms of it.
    pub(crate) token: String,
    pub(crate) mode: String,
}

/// A queue entry.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) mode: String,
    pub(crate) inbox: String,
    pub(crate) is_aside: bool,
    pub(crate) expires: i64,
}

impl Scripts {
    /// `None` where the server is not ours.
    pub(crate) async fn start() -> Option<Self> {
        let clock = Clock::new().expect("a clock");
        clock.run_faster(-1_000_000).expect("it stands still");
        let redis = testbed::Redis::new().clock(&clock).setting("appendonly", ["no"]);
        let server = redis.start().await.expect("a Redis");
        if server.is_external() {
            return None;
        }
        let mut link = Link::connect(server.address());
        let time: Vec<i64> = link
            .ask(&["TIME"])
            .list()
            .into_iter()
            .map(|part| part.text().parse().expect("a number"))
            .collect();
        let mut scripts = Self {
            _server: server,
            clock,
            link,
            hashes: HashMap::new(),
            micros: time[0] * 1_000_000 + time[1],
        };
        scripts.load(None);
        Some(scripts)
    }

    /// From now on with this mistake, or without any.
    pub(crate) fn load(&mut self, mistake: Option<Mistake>) {
        let files = FILES.map(|(name, text)| match mistake {
            Some(mistake) if mistake.file == name => {
                assert!(text.contains(mistake.text), "{name} is otherwise by now: {mistake:?}");
                (name, text.replacen(mistake.text, mistake.by, 1))
            }
            _ => (name, text.to_owned()),
        });
        for (name, text) in &files {
            let include =
                |text: String, (name, file): &(&str, String)| text.replace(&format!("-- include {name}.lua\n"), file);
            let text = files.iter().fold(text.clone(), include);
            assert!(!text.contains("-- include"), "{name}: {text}");
            // A fragment alone is no script.
            if let Reply::Text(hash) = self.link.ask(&["SCRIPT", "LOAD", &text]) {
                self.hashes.insert(name, hash);
            }
        }
    }

    /// By the server's clock, in milliseconds.
    pub(crate) fn now(&self) -> i64 {
        self.micros / 1000
    }

    /// Sets the server's clock.
    pub(crate) fn set_micros(&mut self, micros: i64) {
        self.clock.step((micros - self.micros) * 1000).expect("it is set");
        self.micros = micros;
    }

    pub(crate) fn micros(&self) -> i64 {
        self.micros
    }

    pub(crate) fn pass(&mut self, ms: i64) {
        self.set_micros(self.micros + ms * 1000);
    }

    pub(crate) fn add(&mut self, script: &str, arguments: &[&str]) {
        let mut words = vec!["EVALSHA", &self.hashes[script], "5"];
        words.extend(KEYS);
        words.extend(arguments);
        self.link.add(&words);
    }

    pub(crate) fn run(&mut self, script: &str, arguments: &[&str]) -> Reply {
        self.add(script, arguments);
        self.link.run(1).remove(0)
    }

    pub(crate) fn acquire(&mut self, asker: &Asker<'_>) -> Reply {
        let arguments = asker.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.run("acquire", &arguments)
    }

    pub(crate) fn state(&mut self) -> State {
        State::parse(self.run("state", &[]))
    }
}

pub(crate) const GRACE: i64 = 100;

impl Asker<'_> {
    pub(crate) fn entry_lifetime(&self) -> i64 {
        self.ttl.clamp(3 * GRACE, 15_000)
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = [self.id, &self.ttl.to_string(), "", "0", self.mode, &GRACE.to_string()]
            .map(str::to_owned)
            .to_vec();
        if let Some(inbox) = self.inbox {
            let may = if self.may_have_entry { "1" } else { "" };
            arguments.extend([inbox.to_owned(), self.entry_lifetime().to_string(), may.to_owned()]);
        }
        arguments
    }
}

impl State {
    pub(crate) fn parse(reply: Reply) -> Self {
        let mut parts = reply.list().into_iter();
        let mut next = || parts.next().expect("a part");
        let value = match next() {
            Reply::Nil => None,
            value => Some(value.text()),
        };
        let left = next().int();
        let pairs = |reply: Reply| -> Vec<(String, String)> {
            let texts: Vec<String> = reply.list().into_iter().map(Reply::text).collect();
            texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        };
        let (ends, fields, queue) = (pairs(next()), pairs(next()), pairs(next()));
        let fields: HashMap<String, String> = fields.into_iter().collect();
        let sharers = ends.into_iter().map(|(id, ends)| {
            let mut terms = fields.get(&id).map(String::as_str).unwrap_or_default().split(' ');
            let token = terms.next().unwrap_or_default().to_owned();
            let mode = terms.nth(1).unwrap_or_default().to_owned();
            let ends = ends.parse().expect("milliseconds");
            Sharer { id, ends, token, mode }
        });
        let sharers = sharers.collect();
        let expiries: HashMap<&str, i64> = queue
            .iter()
            .filter_map(|(member, score)| Some((member.strip_prefix('>')?, score.parse().expect("milliseconds"))))
            .collect();
        let places = queue.iter().filter(|(member, _)| !member.starts_with('>'));
        let place = |(member, score): &(String, String)| {
            let (id, rest) = member.split_at(32);
            let (mode, inbox) = match rest.strip_prefix('/') {
                Some(rest) => rest.split_once(' ').expect("a mode and an inbox"),
                None => ("x", &rest[1..]),
            };
            Place {
                id: id.to_owned(),
                mode: mode.to_owned(),
                inbox: inbox.to_owned(),
                is_aside: score.parse::<f64>().expect("a number") < -1e15 && !mode.starts_with("x<"),
                expires: expiries.get(&**member).copied().unwrap_or(0),
            }
        };
        let queue = places.map(place).collect();
        let lefts = next().list().iter().map(Reply::int).collect();
        Self {
            value,
            left,
            sharers,
            fields,
            queue,
            lefts,
        }
    }
}
