//! Scripts with a mistake each, which a run finds out.

use super::plan::plan;
use super::run;
use crate::support::scripts::{Mistake, Scripts};

/// What is wrong, the text that is replaced and by what, and the plan that finds it out.
const MISTAKES: [(&str, Mistake, &str); 24] = [
    (
        "a reader does not look at the queue, so that writers starve",
        wrong(
            "acquire",
            "      granted = false\n      return true\n",
            "      return true\n",
        ),
        "readers in order",
    ),
    (
        "a reader that finds the name shared skips the queue",
        wrong("acquire", " and redis.call('EXISTS', KEYS[3]) == 0 then", " then"),
        "readers in order",
    ),
    (
        "the last reader wakes nobody",
        wrong("end_of_hold", "  more = admit(nil)\nelse", "  more = false\nelse"),
        "readers in order",
    ),
    (
        "the first reader to leave frees the name",
        wrong("end_of_hold", "  if not latest then", "  if true then"),
        "readers give up",
    ),
    (
        "a renewal prolongs the key alone",
        wrong(
            "sharers",
            "< ends then redis.call('ZADD', KEYS[4], ends, id) end",
            "< ends then ends = ends end",
        ),
        "long holds and crashes",
    ),
    (
        "a live reader renews a dead one",
        wrong(
            "renew",
            "prolong(value",
            "for _, id in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do redis.call('ZADD', KEYS[4], now_ms + ttl, id) end\nprolong(value",
        ),
        "long holds and crashes",
    ),
    (
        "the permits of a holder that ended do not come back",
        wrong(
            "sharers",
            "redis.call('HINCRBY', KEYS[5], 'permits', -permits) <= 0",
            "false",
        ),
        "permits in order",
    ),
    (
        "one waiter is woken at a time",
        wrong("admit", "local MOST_OFFERED = 64", "local MOST_OFFERED = 1"),
        "permits in order",
    ),
    (
        "those behind a waiter that leaves are not told",
        wrong(
            "end_of_hold",
            "if not ours and not left and searches_on == ''",
            "if not ours and searches_on == ''",
        ),
        "waiters leave",
    ),
    (
        "an offer that lapsed keeps its precedence",
        wrong("admit", "return kind ~= 'x'", "return false"),
        "permits and hung waiters",
    ),
    (
        "a downgrade frees the name in between",
        wrong(
            "downgrade",
            "taken = 's'\nif",
            "taken = 's'\nredis.call('DEL', KEYS[1])\nif",
        ),
        "downgrades",
    ),
    (
        "an upgrade is granted beside other readers",
        wrong("sharers", "redis.call('ZCARD', KEYS[4]) == 1 and", ""),
        "upgrades",
    ),
    (
        "two are upgradable",
        wrong(
            "sharers",
            " or redis.call('HEXISTS', KEYS[5], 'upgradable') == 0)",
            " or true)",
        ),
        "upgrades",
    ),
    (
        "a repetition takes a second permit",
        wrong("sharers", "'NX', ends, id) == 0", "ends, id) == 2"),
        "lost permits",
    ),
    (
        "one limit counts for all",
        wrong("sharers", "+ permits <= of", "+ permits <= 5"),
        "limits and faults",
    ),
    (
        "grants that go out together take no notice of the fence",
        wrong(
            "grant_together",
            "local is_behind = not last or",
            "local is_behind = true or",
        ),
        "a clock set back",
    ),
    (
        "grants that go out together take no notice of the holder",
        wrong("grant_together", "'NX', 'PX', ttl)", "'PX', ttl)"),
        "writers alone",
    ),
    (
        "releases that go out together wake nobody",
        wrong(
            "end_together",
            "if not nobody_waits and redis.call('EXISTS', queues[index]) == 1 then",
            "if false then",
        ),
        "writers alone",
    ),
    (
        "releases that go out together end any hold of the name",
        wrong(
            "end_together",
            "string.sub(value, 1, 32) == string.sub(held, 1, 32)",
            "true",
        ),
        "hangs",
    ),
    (
        "a grant at once keeps no tokens for passes",
        wrong("last_reserved", "tens + 1, ones + 6", "tens, ones"),
        "passes and a clock set back",
    ),
    (
        "a grant keeps no tokens for passes",
        wrong("next_token", "tonumber(token) + RESERVED", "tonumber(token)"),
        "passes and a clock set back",
    ),
    (
        "a reader's token is not new",
        wrong(
            "acquire",
            "  if share(value or nil, holder, token,",
            "  token = last or token\n  if share(value or nil, holder, token,",
        ),
        "readers in order",
    ),
    (
        "an upgrade that is undone gives nothing back",
        wrong("end_of_hold", "\nif replaced then\n", "\nif false then\n"),
        "upgrades",
    ),
    (
        "an upgrade whose base has ended waits on",
        wrong(
            "acquire",
            "if replaced and not (taken",
            "if replaced and taken == 'p' and not (taken",
        ),
        "upgrades and faults",
    ),
];

const fn wrong(file: &'static str, text: &'static str, by: &'static str) -> Mistake {
    Mistake { file, text, by }
}

#[testbed::test]
async fn every_mistake_is_found_out() {
    const SEEDS: u64 = 20;
    let Some(mut scripts) = Scripts::start().await else {
        return;
    };
    let mut missed = Vec::new();
    for (what, mistake, name) in MISTAKES {
        scripts.load(Some(mistake));
        let start = std::time::Instant::now();
        let found = (1..=SEEDS).find_map(|seed| run(&mut scripts, plan(name), seed).err());
        match found {
            Some(broken) => println!("{what}: {:.160} in {:?}", broken, start.elapsed()),
            None => missed.push(what),
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:#?}");
}
