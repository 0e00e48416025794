//! The scripts as they stand in `src/protocol/scripts/`, or each with a mistake, run one by one on a server whose clock stands
//! still.

use std::collections::HashMap;

use testbed::Clock;

use super::link::{Link, Reply};

#[allow(dead_code, reason = "not all scripts are run one by one")]
#[path = "../../../src/protocol/arguments.rs"]
pub(crate) mod arguments;
#[allow(dead_code, reason = "not all scripts are run one by one")]
#[path = "../../../src/protocol/files.rs"]
mod files;

use arguments::{AcquireArguments, DowngradeArguments, EndArguments, RenewArguments, YES};

const SCRIPTS: [(&str, &str); 15] = [
    ("acquire", files::ACQUIRE),
    ("grant_together", files::GRANT_TOGETHER),
    ("end", files::END),
    ("end_together", files::END_TOGETHER),
    ("renew", files::RENEW),
    ("renew_together", files::RENEW_TOGETHER),
    ("raise", files::RAISE),
    ("reinstate", files::REINSTATE),
    ("downgrade", files::DOWNGRADE),
    ("revoke", files::REVOKE),
    ("status", files::STATUS),
    // Those of the last version without modes, with all that they include.
    ("old acquire", include_str!("without_modes/acquire.lua")),
    ("old end", include_str!("without_modes/end.lua")),
    ("old renew", include_str!("without_modes/renew.lua")),
    ("state", STATE),
];

/// What the server has of the name, at once and in few texts: lines of words.
const STATE: &str = "
local function lines(parts, count)
  local all = {}
  for i = 1, #parts, count do table.insert(all, table.concat(parts, ' ', i, i + count - 1)) end
  return table.concat(all, '\\n')
end
local members, expires, queue = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), {}, {}
for i = 1, #members, 2 do expires[members[i]] = members[i + 1] end
for i = 1, #members, 2 do
  if string.sub(members[i], 1, 1) ~= '>' then
    for _, word in ipairs({members[i], members[i + 1], expires['>' .. members[i]] or '0'}) do table.insert(queue, word) end
  end
end
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]),
  lines(redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), 2), lines(redis.call('HGETALL', KEYS[5]), 2), lines(queue, 3),
  {redis.call('PTTL', KEYS[3]), redis.call('PTTL', KEYS[4]), redis.call('PTTL', KEYS[5])}}
";

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
    /// `None`, and the test is skipped, where the server is not ours, or its clock does not stand still.
    pub(crate) async fn start() -> Option<Self> {
        let clock = Clock::new().expect("a clock");
        clock.run_faster(-1_000_000).expect("it stands still");
        let redis = testbed::Redis::new()
            .clock(&clock)
            .setting("appendonly", ["no"])
            .setting("hz", ["500"]);
        let server = redis.start().await.expect("a Redis");
        if testbed::skip_external([&server]) {
            return None;
        }
        let mut link = Link::connect(server.address());
        if link.ask(&["INFO", "server"]).text().contains("valkey_version") {
            testbed::skip("Valkey counts on from its last look at the clock by one that does not stand still");
            return None;
        }
        let mut scripts = Self {
            _server: server,
            clock,
            link,
            hashes: HashMap::new(),
            micros: 0,
        };
        scripts.micros = scripts.ask_time();
        scripts.load(None);
        Some(scripts)
    }

    /// As a script is told.
    fn ask_time(&mut self) -> i64 {
        let time = self.link.ask(&["EVAL", "return redis.call('TIME')", "0"]).list();
        let number = |part: &Reply| part.clone().text().parse::<i64>().expect("a number");
        number(&time[0]) * 1_000_000 + number(&time[1])
    }

    /// From now on with this mistake, or without any.
    pub(crate) fn load(&mut self, mistake: Option<Mistake>) {
        let mut is_made = mistake.is_none();
        let mut with_mistake = |(name, text): (&'static str, &str)| match mistake {
            Some(mistake) if mistake.file == name => {
                assert!(text.contains(mistake.text), "{name} is otherwise by now: {mistake:?}");
                is_made = true;
                (name, text.replacen(mistake.text, mistake.by, 1))
            }
            _ => (name, text.to_owned()),
        };
        let scripts = SCRIPTS.map(&mut with_mistake);
        let fragments = files::FRAGMENTS.map(with_mistake);
        assert!(is_made, "there is no such file: {mistake:?}");
        let fragments = fragments.each_ref().map(|(name, text)| (*name, &**text));
        for (name, text) in &scripts {
            let text = files::include(text, &fragments);
            assert!(!text.contains("-- include"), "{name}: {text}");
            let hash = self.link.ask(&["SCRIPT", "LOAD", &text]).text();
            self.hashes.insert(name, hash);
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

    pub(crate) fn pass(&mut self, ms: i64) {
        self.set_micros(self.micros + ms * 1000);
    }

    pub(crate) fn add(&mut self, script: &str, arguments: &[impl AsRef<str>]) {
        self.add_with(script, &KEYS, arguments);
    }

    /// A script of the last version without modes.
    pub(crate) fn add_old(&mut self, script: &str, arguments: &[impl AsRef<str>]) {
        self.add_with(&format!("old {script}"), &KEYS[..3], arguments);
    }

    /// A script for many names, with this one alone: some of its keys, what all have in common, and its own.
    pub(crate) fn add_together(&mut self, script: &str, keys: [&str; 2], arguments: &[impl AsRef<str>]) {
        self.add_with(script, &keys, arguments);
    }

    fn add_with(&mut self, script: &str, keys: &[&str], arguments: &[impl AsRef<str>]) {
        let count = keys.len().to_string();
        let mut words = vec!["EVALSHA", &self.hashes[script], &count];
        words.extend(keys);
        words.extend(arguments.iter().map(AsRef::as_ref));
        self.link.add(&words);
    }

    pub(crate) fn run(&mut self, script: &str, arguments: &[impl AsRef<str>]) -> Reply {
        self.add(script, arguments);
        self.link.run(1).remove(0)
    }

    pub(crate) fn acquire(&mut self, asker: &Asker<'_>) -> Reply {
        self.run("acquire", &asker.arguments().all())
    }

    pub(crate) fn state(&mut self) -> State {
        State::parse(self.run("state", NOTHING))
    }
}

/// The arguments of a script that takes none.
pub(crate) const NOTHING: &[&str] = &[];

pub(crate) const GRACE: i64 = 100;

/// Of a hold that is released, by its holder id, or by the value that its grant has left.
pub(crate) fn release(held: &str) -> EndArguments<'static> {
    EndArguments {
        held: held.to_owned().into(),
        grace: GRACE.to_string().into(),
        mode: "x".into(),
        ..EndArguments::default()
    }
}

/// Of a request that waits, and is given up.
pub(crate) fn abandon(id: &str, mode: &str, inbox: &str) -> EndArguments<'static> {
    EndArguments {
        mode: mode.to_owned().into(),
        inbox: inbox.to_owned().into(),
        ..release(id)
    }
}

pub(crate) fn renew(id: &str, ttl: i64) -> RenewArguments<'static> {
    RenewArguments {
        holder: id.to_owned().into(),
        ttl: ttl.to_string().into(),
    }
}

pub(crate) fn downgrade(id: &str, ttl: i64) -> DowngradeArguments<'static> {
    DowngradeArguments {
        holder: id.to_owned().into(),
        ttl: ttl.to_string().into(),
        grace: GRACE.to_string().into(),
        reserves: YES.into(),
    }
}

impl Asker<'_> {
    pub(crate) fn entry_lifetime(&self) -> i64 {
        self.ttl.clamp(3 * GRACE, 15_000)
    }

    pub(crate) fn arguments(&self) -> AcquireArguments<'static> {
        let arguments = AcquireArguments {
            holder: self.id.to_owned().into(),
            ttl: self.ttl.to_string().into(),
            floor: "0".into(),
            mode: self.mode.to_owned().into(),
            grace: GRACE.to_string().into(),
            is_plain: if self.mode == "x" && !self.may_have_entry {
                YES
            } else {
                ""
            }
            .into(),
            ..AcquireArguments::default()
        };
        match self.inbox {
            Some(inbox) => AcquireArguments {
                inbox: inbox.to_owned().into(),
                lifetime: self.entry_lifetime().to_string().into(),
                may_have_entry: if self.may_have_entry { YES } else { "" }.into(),
                ..arguments
            },
            None => arguments,
        }
    }

    /// As the last version without modes took them, of one that waits.
    pub(crate) fn old_arguments(&self) -> Vec<String> {
        let may = if self.may_have_entry { "1" } else { "" };
        let (ttl, lifetime, grace) = (
            self.ttl.to_string(),
            self.entry_lifetime().to_string(),
            GRACE.to_string(),
        );
        let inbox = self.inbox.expect("it waits");
        [self.id, &ttl, "", "0", inbox, &lifetime, &grace, may]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Place {
    /// `ID INBOX SCORE EXPIRES` or `ID/MODE INBOX SCORE EXPIRES`.
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [entry, inbox, score, expires] = words[..] else {
            panic!("an entry of four words, not {line:?}");
        };
        let (id, mode) = entry.split_once('/').unwrap_or((entry, "x"));
        Self {
            id: id.to_owned(),
            mode: mode.to_owned(),
            inbox: inbox.to_owned(),
            is_aside: score.parse::<f64>().expect("a number") < -1e15 && !mode.starts_with("x<"),
            expires: expires.parse().expect("milliseconds"),
        }
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
        let (ends, fields, queue) = (next().text(), next().text(), next().text());
        let pairs = fields.lines().filter_map(|line| line.split_once(' '));
        let fields: HashMap<String, String> = pairs.map(|(id, terms)| (id.to_owned(), terms.to_owned())).collect();
        let sharer = |line: &str| {
            let (id, ends) = line.split_once(' ').expect("an id and its end");
            let mut terms = fields.get(id).map(String::as_str).unwrap_or_default().split(' ');
            Sharer {
                id: id.to_owned(),
                ends: ends.parse().expect("milliseconds"),
                token: terms.next().unwrap_or_default().to_owned(),
                mode: terms.nth(1).unwrap_or_default().to_owned(),
            }
        };
        let sharers = ends.lines().map(sharer).collect();
        let queue = queue.lines().map(Place::parse).collect();
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
