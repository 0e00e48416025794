//! The modes, script by script on a server whose clock stands still: what no test through a backend can see.

use crate::support::link::Reply;
use crate::support::scripts::arguments::{AcquireArguments, EndArguments, YES};
use crate::support::scripts::{self, Asker, GRACE, KEYS, Scripts, abandon, release};

mod changes;
mod forgotten;
mod many;
mod revoked;

const TTL: i64 = 10_000;
const INBOX: &str = "inbox";

/// A holder id of this digit.
fn id(digit: char) -> String {
    digit.to_string().repeat(32)
}

/// A server on which the waiters of [`INBOX`] are connected, if it is ours.
async fn scripts() -> Option<Scripts> {
    let mut scripts = Scripts::start().await?;
    scripts.link.hear("SUBSCRIBE", INBOX);
    Some(scripts)
}

/// Of a request that does not wait.
fn arguments(id: &str, mode: &str) -> AcquireArguments<'static> {
    let asker = Asker {
        id,
        mode,
        ttl: TTL,
        inbox: None,
        may_have_entry: false,
    };
    asker.arguments()
}

fn ask(scripts: &mut Scripts, digit: char, mode: &str, ttl: i64, inbox: Option<&str>, may_have_entry: bool) -> Reply {
    scripts.acquire(&Asker {
        id: &id(digit),
        mode,
        ttl,
        inbox,
        may_have_entry,
    })
}

fn token(reply: &Reply) -> u64 {
    match reply {
        Reply::Text(token) => token.parse().expect("a token"),
        other => panic!("it was not granted: {other:?}"),
    }
}

/// Granted at once.
fn take(scripts: &mut Scripts, digit: char, mode: &str) -> u64 {
    let reply = ask(scripts, digit, mode, TTL, None, false);
    token(&reply)
}

/// Refused; it does not wait.
fn refuse(scripts: &mut Scripts, digit: char, mode: &str) {
    let reply = ask(scripts, digit, mode, TTL, None, false);
    assert!(matches!(reply, Reply::List(_)), "{digit} was granted: {reply:?}");
}

/// Refused; from now on it waits.
fn wait(scripts: &mut Scripts, digit: char, mode: &str) -> i64 {
    let reply = ask(scripts, digit, mode, TTL, Some(INBOX), false);
    let Reply::List(taken) = &reply else {
        panic!("{digit} was granted: {reply:?}");
    };
    taken[2].int()
}

/// One that waits asks again.
fn again(scripts: &mut Scripts, digit: char, mode: &str) -> Reply {
    ask(scripts, digit, mode, TTL, Some(INBOX), true)
}

fn end(scripts: &mut Scripts, digit: char) -> i64 {
    scripts.run("end", &release(&id(digit)).all()).int()
}

/// One that waits leaves.
fn leave(scripts: &mut Scripts, digit: char, mode: &str) {
    scripts.run("end", &abandon(&id(digit), mode, INBOX).all());
}

fn renew(scripts: &mut Scripts, digit: char, ttl: i64) -> i64 {
    scripts.run("renew", &scripts::renew(&id(digit), ttl).all()).int()
}

fn downgrade(scripts: &mut Scripts, digit: char) -> i64 {
    scripts
        .run("downgrade", &scripts::downgrade(&id(digit), TTL).all())
        .int()
}

/// Who was woken since this was asked last, and after how many ms each asks.
fn woken(scripts: &mut Scripts) -> Vec<(char, i64)> {
    scripts.link.ask(&["PING"]);
    let news = scripts.link.news().into_iter();
    let parse = |(_, message): (String, String)| {
        let (id, ms) = message.split_once(' ').expect("an id and a time");
        (id.chars().next().expect("a digit"), ms.parse().expect("a number"))
    };
    news.map(parse).collect()
}

fn holders(scripts: &mut Scripts) -> String {
    let mut ids: Vec<char> = scripts
        .state()
        .sharers
        .iter()
        .filter_map(|sharer| sharer.id.chars().next())
        .collect();
    ids.sort_unstable();
    ids.into_iter().collect()
}

fn exists(scripts: &mut Scripts) -> bool {
    scripts.link.ask(&["EXISTS", KEYS[0]]).int() == 1
}

/// All keys of the name but its fence.
fn keys(scripts: &mut Scripts) -> Vec<String> {
    let keys = scripts.link.ask(&["KEYS", "*"]).list().into_iter().map(Reply::text);
    keys.filter(|key| !key.ends_with(":fence")).collect()
}

#[testbed::test]
async fn the_formats_stay_as_they_are() {
    let Some(mut scripts) = scripts().await else { return };
    let now = scripts.now();
    let arguments = AcquireArguments {
        label: " a b".into(),
        ..arguments(&id('1'), "p2/5")
    };
    let reply = scripts.run("acquire", &arguments.all());
    let token = token(&reply);
    assert!(wait(&mut scripts, '2', "s") == 0 && wait(&mut scripts, '3', "x") == 1);
    let state = scripts.state();
    let (ends, cleared) = (now + TTL, now + TTL + 60_000);
    assert_eq!(state.value, Some(format!("permits {token} {ends} {cleared} a b")));
    assert_eq!(state.fields[&id('1')], format!("{token} 10000 p2/5 a b"));
    assert_eq!(state.fields["permits"], "2");
    let queue = scripts.link.ask(&["ZRANGE", KEYS[2], "0", "-1"]).list();
    let queue: Vec<String> = queue.into_iter().map(Reply::text).collect();
    let (shared, exclusive) = (format!("{}/s {INBOX}", id('2')), format!("{} {INBOX}", id('3')));
    assert_eq!(queue[..2], [shared.clone(), exclusive]);
    assert_eq!(
        queue[2],
        format!(">{shared}")
            .replace(&shared, &format!("{} {INBOX}", id('2')))
            .replace(' ', "/s ")
    );
    assert_eq!(end(&mut scripts, '1'), 1);
    assert_eq!(
        scripts.state().value,
        Some(format!("shared 0 {} {}", now + GRACE, now + GRACE + 60_000)),
        "an offer has no token"
    );
}

#[testbed::test]
async fn an_exclusive_pair_sends_seven_commands_and_a_shared_pair_the_same_beside_many() {
    let Some(mut scripts) = scripts().await else { return };
    let commands = |scripts: &mut Scripts| {
        let stats = scripts.link.ask(&["INFO", "commandstats"]).text();
        let calls = |line: &str| -> i64 { line.split(['=', ',']).nth(1).expect("calls").parse().expect("a number") };
        let inner = |line: &&str| {
            line.starts_with("cmdstat_") && !["evalsha", "info", "ping"].iter().any(|name| line.contains(name))
        };
        stats.lines().filter(inner).map(calls).sum::<i64>()
    };
    let pair = |scripts: &mut Scripts, mode: &str| {
        let before = commands(scripts);
        let token = take(scripts, 'f', mode);
        let held = match mode {
            "x" => format!("{} {token} {TTL}", id('f')),
            _ => id('f'),
        };
        assert_eq!(scripts.run("end", &release(&held).all()).int(), 1);
        commands(scripts) - before
    };
    assert_eq!(pair(&mut scripts, "x"), 7);
    for (mode, beside) in [("s", 16), ("p1/1000", 19)] {
        let mut sent = Vec::new();
        for reader in 0..100 {
            let reply = scripts.run("acquire", &arguments(&format!("{reader:032x}"), mode).all());
            token(&reply);
            if matches!(reader, 0 | 9 | 99) {
                sent.push(pair(&mut scripts, mode));
            }
        }
        assert_eq!(sent, [beside; 3], "{mode}");
        scripts.pass(TTL + 1);
        assert!(!exists(&mut scripts));
    }
}

#[testbed::test]
async fn each_reader_ends_by_itself_and_a_renewal_prolongs_no_other() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "s");
    take(&mut scripts, '2', "s");
    scripts.pass(TTL - 1);
    assert_eq!(renew(&mut scripts, '1', TTL), 1);
    scripts.pass(1);
    // In the millisecond of its end it has ended.
    assert_eq!(renew(&mut scripts, '2', TTL), 0, "a renewal of another reader kept it");
    assert_eq!(end(&mut scripts, '2'), 0);
    assert_eq!(holders(&mut scripts), "1");
    scripts.pass(TTL - 1);
    assert_eq!(renew(&mut scripts, '1', TTL), 0);
    take(&mut scripts, '3', "x");
    assert_eq!(renew(&mut scripts, '1', TTL), 0);
}

#[testbed::test]
async fn a_reader_whose_name_was_deleted_does_not_come_back() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "s");
    scripts.link.ask(&["DEL", KEYS[0]]);
    take(&mut scripts, '2', "x");
    assert_eq!(end(&mut scripts, '2'), 1);
    take(&mut scripts, '3', "s");
    assert_eq!(renew(&mut scripts, '1', TTL), 0, "somebody wrote in between");
    assert_eq!(holders(&mut scripts), "3");
}

#[testbed::test]
async fn all_waiters_that_fit_are_woken_at_once_and_the_next_one_after_the_grace() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "x");
    for (reader, digit) in "2345".chars().enumerate() {
        assert_eq!(wait(&mut scripts, digit, "s"), i64::try_from(reader).expect("a few"));
    }
    wait(&mut scripts, '6', "x");
    wait(&mut scripts, '7', "s");
    assert_eq!(end(&mut scripts, '1'), 1);
    let expected = [('2', 0), ('3', 0), ('4', 0), ('5', 0), ('6', GRACE)];
    assert_eq!(woken(&mut scripts), expected);
    refuse(&mut scripts, '8', "s");
    let tokens: Vec<u64> = "2345"
        .chars()
        .map(|digit| token(&again(&mut scripts, digit, "s")))
        .collect();
    assert!(tokens.is_sorted_by(|one, next| one < next));
    for digit in "234".chars() {
        assert_eq!(end(&mut scripts, digit), 1);
        assert_eq!(woken(&mut scripts), []);
    }
    assert_eq!(end(&mut scripts, '5'), 1);
    assert_eq!(woken(&mut scripts), [('6', 0), ('7', GRACE)]);

    // The same with permits.
    token(&again(&mut scripts, '6', "x"));
    leave(&mut scripts, '7', "s");
    for (digit, mode) in [('a', "p2/5"), ('b', "p1/5"), ('c', "p3/5"), ('d', "p1/5")] {
        wait(&mut scripts, digit, mode);
    }
    woken(&mut scripts);
    assert_eq!(end(&mut scripts, '6'), 1);
    assert_eq!(
        woken(&mut scripts),
        [('a', 0), ('b', 0), ('c', GRACE)],
        "no small one passes a large one"
    );
}

#[testbed::test]
async fn a_waiter_that_leaves_lets_those_behind_it_in() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "s");
    wait(&mut scripts, '2', "x");
    wait(&mut scripts, '3', "s");
    wait(&mut scripts, '4', "s");
    wait(&mut scripts, '5', "x");
    leave(&mut scripts, '2', "x");
    assert_eq!(woken(&mut scripts), [('3', 0), ('4', 0), ('5', GRACE)]);
    assert_eq!(holders(&mut scripts), "134");
    // One to which it was offered leaves.
    leave(&mut scripts, '3', "s");
    assert_eq!(holders(&mut scripts), "14");
}

#[testbed::test]
async fn an_offer_that_lapsed_keeps_nobody_waiting_until_its_waiter_asks_again() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "p5/5");
    wait(&mut scripts, '2', "p5/5");
    wait(&mut scripts, '3', "p1/5");
    end(&mut scripts, '1');
    assert_eq!(woken(&mut scripts), [('2', 0), ('3', GRACE)]);
    scripts.pass(GRACE);
    token(&again(&mut scripts, '3', "p1/5"));
    take(&mut scripts, '4', "p1/5");
    // It has its position again.
    assert!(matches!(again(&mut scripts, '2', "p5/5"), Reply::List(_)));
    refuse(&mut scripts, '5', "p1/5");
    end(&mut scripts, '3');
    end(&mut scripts, '4');
    assert_eq!(woken(&mut scripts), [('2', 0)]);

    // An exclusive one.
    leave(&mut scripts, '2', "p5/5");
    take(&mut scripts, '6', "x");
    wait(&mut scripts, '7', "x");
    wait(&mut scripts, '8', "s");
    end(&mut scripts, '6');
    assert_eq!(woken(&mut scripts), [('7', 0), ('8', GRACE)]);
    scripts.pass(GRACE + 1);
    token(&again(&mut scripts, '8', "s"));
    assert_eq!(woken(&mut scripts), [('7', 0)]);
    take(&mut scripts, '9', "s");
    assert!(matches!(again(&mut scripts, '7', "x"), Reply::List(_)));
    refuse(&mut scripts, 'a', "s");
}

#[testbed::test]
async fn a_clock_set_back_keeps_nobody_out_beyond_a_term() {
    let Some(mut scripts) = scripts().await else { return };
    for (mode, other) in [("s", "x"), ("p5/5", "p1/5")] {
        take(&mut scripts, '1', mode);
        assert_eq!(renew(&mut scripts, '1', 2 * TTL), 1);
        scripts.pass(-3_600_000);
        refuse(&mut scripts, '2', other);
        assert_eq!(scripts.state().left, 2 * TTL, "the longest ttl that it asked for");
        scripts.pass(2 * TTL - 1);
        refuse(&mut scripts, '2', other);
        scripts.pass(1);
        take(&mut scripts, '2', other);
        end(&mut scripts, '2');
    }
}

#[testbed::test]
async fn the_key_outlasts_no_reader_by_more_than_that_has_left() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "s");
    let reply = ask(&mut scripts, '2', "s", 100 * TTL, None, false);
    token(&reply);
    assert_eq!(scripts.state().left, 100 * TTL);
    end(&mut scripts, '2');
    assert_eq!(scripts.state().left, TTL, "other clients would wait for it");
}

#[testbed::test]
async fn a_repeated_acquire_takes_no_second_permit() {
    let Some(mut scripts) = scripts().await else { return };
    let first = take(&mut scripts, '1', "p2/5");
    scripts.pass(10);
    assert_eq!(take(&mut scripts, '1', "p2/5"), first);
    assert_eq!(scripts.state().fields["permits"], "2");
    assert_eq!(scripts.state().left, TTL, "for the full ttl");
    refuse(&mut scripts, '2', "p4/5");
    refuse(&mut scripts, '2', "p1/2");
    take(&mut scripts, '2', "p1/3");
    scripts.pass(TTL);
    take(&mut scripts, '3', "p5/5");
}

#[testbed::test]
async fn a_kept_name_goes_to_the_first_in_any_mode() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "x");
    wait(&mut scripts, '2', "s");
    wait(&mut scripts, '3', "s");
    let keeping = EndArguments {
        keep_for: "1000".into(),
        ..release(&id('1'))
    };
    assert_eq!(scripts.run("end", &keeping.all()).int(), 1);
    assert_eq!(woken(&mut scripts), [('2', 1000), ('3', 1000 + GRACE)]);
    refuse(&mut scripts, '4', "s");
    scripts.pass(1000);
    refuse(&mut scripts, '4', "s");
    token(&again(&mut scripts, '2', "s"));
    assert_eq!(woken(&mut scripts), [('3', 0)]);
}

#[testbed::test]
async fn a_tombstone_refuses_a_late_reader() {
    let Some(mut scripts) = scripts().await else { return };
    let abandoning = EndArguments {
        leaves_tombstone: YES.into(),
        ..abandon(&id('1'), "s", INBOX)
    };
    scripts.run("end", &abandoning.all());
    assert_eq!(ask(&mut scripts, '1', "s", TTL, None, false), Reply::Int(0));
}
