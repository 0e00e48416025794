//! Holds that the server has forgotten, or of which it has forgotten a part, are put back.

use super::{TTL, downgrade, end, holders, id, keys, renew, scripts, take, token, wait};
use crate::support::link::Reply;
use crate::support::scripts::arguments::ReinstateArguments;
use crate::support::scripts::{KEYS, Scripts};

/// By the last token that came with its grant.
fn reinstate(scripts: &mut Scripts, digit: char, mode: &str, token: u64, last: u64) -> i64 {
    let arguments = ReinstateArguments {
        holder: id(digit).into(),
        ttl: TTL.to_string().into(),
        label: " its own".into(),
        token: token.to_string().into(),
        mode: mode.into(),
        own_last: last.to_string().into(),
        ..ReinstateArguments::default()
    };
    scripts.run("reinstate", &arguments.all()).int()
}

fn set(scripts: &mut Scripts, key: &str, value: &str) {
    scripts.link.ask(&["SET", key, value, "PX", "60000"]);
}

/// All keys of the name, as a snapshot has them.
fn snapshot(scripts: &mut Scripts) -> Vec<(String, String)> {
    let dump = "local all = {} for _, key in ipairs(KEYS) do
        local text, hex = redis.call('DUMP', key), {}
        for i = 1, #(text or '') do hex[i] = string.format('%02x', string.byte(text, i)) end
        table.insert(all, table.concat(hex))
    end return all";
    let mut words = vec!["EVAL", dump, "5"];
    words.extend(KEYS);
    let dumps = scripts.link.ask(&words).list().into_iter().map(Reply::text);
    KEYS.iter().map(|key| (*key).to_owned()).zip(dumps).collect()
}

/// The server has this again, for as long as it lasts.
fn restore(scripts: &mut Scripts, snapshot: &[(String, String)]) {
    let restore = "redis.call('DEL', KEYS[1]) if ARGV[1] == '' then return 0 end
        local text = string.gsub(ARGV[1], '..', function(hex) return string.char(tonumber(hex, 16)) end)
        return redis.call('RESTORE', KEYS[1], 60000, text)";
    for (key, dump) in snapshot {
        scripts.link.ask(&["EVAL", restore, "1", key, dump]);
    }
}

fn fence(scripts: &mut Scripts) -> String {
    scripts.link.ask(&["GET", KEYS[1]]).text()
}

#[testbed::test]
async fn what_an_exclusive_hold_came_after_does_not_keep_it_out() {
    let Some(mut scripts) = scripts().await else { return };
    let kept = format!("kept{:028} 900 1000", 0);
    let (old, own, other) = (
        format!("{} 900 60000 old", id('2')),
        format!("{} 0 100", id('1')),
        format!("{} 0 100", id('3')),
    );
    for before in ["", &old, &own, &other, &kept] {
        scripts.link.ask(&["FLUSHALL"]);
        set(&mut scripts, KEYS[1], "916");
        if !before.is_empty() {
            set(&mut scripts, KEYS[0], before);
        }
        assert_eq!(renew(&mut scripts, '1', TTL), 0, "{before:?} is not its hold");
        let together = scripts.run("renew_together", &["10000", &id('1'), "-", "-", "-", "-"]);
        assert_eq!(&together.text()[..1], "0", "{before:?} is not its hold");
        assert_eq!(reinstate(&mut scripts, '1', "x", 1000, 1016), 1, "{before:?}");
        assert_eq!(renew(&mut scripts, '1', TTL), 1, "{before:?}");
        let state = scripts.state();
        assert_eq!(
            state.value,
            Some(format!("{} 1000 10000 its own", id('1'))),
            "{before:?}"
        );
        assert_eq!(state.left, TTL);
        assert_eq!(fence(&mut scripts), "1016");
    }
}

#[testbed::test]
async fn what_came_after_an_exclusive_hold_keeps_it_out() {
    let Some(mut scripts) = scripts().await else { return };
    let later = format!("{} 1001 60000", id('2'));
    for (value, of_fence) in [
        (Some(&*later), "916"),
        (Some("another's"), "916"),
        (None, "1017"),
        (None, &format!("0 {}:99999999999", id('1'))),
        (None, "another's"),
    ] {
        scripts.link.ask(&["FLUSHALL"]);
        set(&mut scripts, KEYS[1], of_fence);
        if let Some(value) = value {
            set(&mut scripts, KEYS[0], value);
        }
        assert_eq!(
            reinstate(&mut scripts, '1', "x", 1000, 1016),
            0,
            "{value:?} {of_fence:?}"
        );
        assert_eq!(scripts.state().value.as_deref(), value);
        assert_eq!(fence(&mut scripts), of_fence);
    }
}

/// The server knows the holds from before the upgrade.
#[testbed::test]
async fn an_upgrade_that_was_forgotten_is_put_back() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "u");
    take(&mut scripts, '2', "s");
    let before = snapshot(&mut scripts);
    assert_eq!(end(&mut scripts, '2'), 1);
    let upgrade = format!("x<{}", id('1'));
    let granted = take(&mut scripts, '3', &upgrade);
    restore(&mut scripts, &before);
    assert_eq!(holders(&mut scripts), "12");
    assert_eq!(renew(&mut scripts, '3', TTL), 0);
    assert_eq!(reinstate(&mut scripts, '3', "x", granted, granted), 1);
    assert_eq!(holders(&mut scripts), "");
    assert_eq!(renew(&mut scripts, '3', TTL), 1);
    assert_eq!((renew(&mut scripts, '1', TTL), renew(&mut scripts, '2', TTL)), (0, 0));
    assert_eq!(end(&mut scripts, '3'), 1);
    assert_eq!(keys(&mut scripts), [""; 0], "nothing is left behind");
}

#[testbed::test]
async fn readers_that_came_after_it_keep_an_exclusive_hold_out() {
    let Some(mut scripts) = scripts().await else { return };
    let granted = take(&mut scripts, '1', "x");
    assert_eq!(end(&mut scripts, '1'), 1);
    scripts.pass(1);
    take(&mut scripts, '2', "s");
    assert_eq!(reinstate(&mut scripts, '1', "x", granted, granted + 16), 0);
    assert_eq!(holders(&mut scripts), "2");
}

/// The server knows the hold as it was before.
#[testbed::test]
async fn a_downgrade_that_was_forgotten_is_repeated() {
    let Some(mut scripts) = scripts().await else { return };
    let kept = take(&mut scripts, '1', "x");
    let before = snapshot(&mut scripts);
    assert_eq!(downgrade(&mut scripts, '1'), 1);
    let reader = take(&mut scripts, '2', "s");
    restore(&mut scripts, &before);
    // The reader comes back first.
    assert_eq!(renew(&mut scripts, '2', TTL), 0);
    assert_eq!(reinstate(&mut scripts, '2', "s", reader, reader), 1);
    assert_eq!(renew(&mut scripts, '1', TTL), 0);
    assert_eq!(reinstate(&mut scripts, '1', "s", kept, kept + 16), 1);
    assert_eq!(holders(&mut scripts), "12");
    // The other comes back first.
    restore(&mut scripts, &before);
    assert_eq!(downgrade(&mut scripts, '1'), 1);
    assert_eq!(reinstate(&mut scripts, '2', "s", reader, reader), 1);
    assert_eq!(holders(&mut scripts), "12");
    assert_eq!((renew(&mut scripts, '1', TTL), renew(&mut scripts, '2', TTL)), (1, 1));
}

/// From before its grant.
#[testbed::test]
async fn an_offer_to_itself_does_not_keep_a_hold_out() {
    let Some(mut scripts) = scripts().await else { return };
    for mode in ["s", "u", "p5/5"] {
        scripts.link.ask(&["FLUSHALL"]);
        take(&mut scripts, '1', "x");
        wait(&mut scripts, '2', mode);
        assert_eq!(end(&mut scripts, '1'), 1);
        let offered = snapshot(&mut scripts);
        assert_eq!(holders(&mut scripts), "2");
        let granted = token(&super::again(&mut scripts, '2', mode));
        restore(&mut scripts, &offered);
        assert_eq!(renew(&mut scripts, '2', TTL), 0, "{mode}: an offer is no hold");
        assert_eq!(reinstate(&mut scripts, '2', mode, granted, granted), 1, "{mode}");
        assert_eq!(renew(&mut scripts, '2', TTL), 1, "{mode}");
        let state = scripts.state();
        assert_eq!(state.fields[&id('2')], format!("{granted} 10000 {mode} its own"));
        let permits = state.fields.get("permits").map(String::as_str);
        assert_eq!(permits, (mode == "p5/5").then_some("5"));
        assert_eq!(end(&mut scripts, '2'), 1);
        assert!(!super::exists(&mut scripts), "{mode}");
    }
}

/// Which nobody may make use of as long as a hold may come back.
#[testbed::test]
async fn offers_to_others_do_not_keep_a_hold_out() {
    let Some(mut scripts) = scripts().await else { return };
    for (mode, offered) in [
        ("x", "s"),
        ("u", "u"),
        ("p5/5", "p1/5"),
        ("s", "p1/5"),
        ("p1/5", "s"),
        ("s", "x"),
    ] {
        scripts.link.ask(&["FLUSHALL"]);
        let granted = take(&mut scripts, '1', mode);
        scripts.link.ask(&["FLUSHALL"]);
        take(&mut scripts, '2', "x");
        wait(&mut scripts, '3', offered);
        assert_eq!(end(&mut scripts, '2'), 1, "it is offered");
        scripts.link.ask(&["DEL", KEYS[1]]);
        let last = if mode == "x" { granted + 16 } else { granted };
        assert_eq!(reinstate(&mut scripts, '1', mode, granted, last), 1, "{mode} {offered}");
        assert_eq!(renew(&mut scripts, '1', TTL), 1, "{mode} {offered}");
        let reply = super::again(&mut scripts, '3', offered);
        assert!(matches!(reply, Reply::List(_)), "{mode} {offered}: {reply:?}");
        assert_eq!(end(&mut scripts, '1'), 1, "{mode} {offered}");
    }
}

/// There is one at a time.
#[testbed::test]
async fn an_upgradable_hold_that_ended_does_not_keep_the_next_one_out() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "u");
    let reader = take(&mut scripts, '2', "s");
    let before = snapshot(&mut scripts);
    assert_eq!(end(&mut scripts, '1'), 1);
    let granted = take(&mut scripts, '3', "u");
    restore(&mut scripts, &before);
    assert_eq!(reinstate(&mut scripts, '3', "u", granted, granted), 1);
    assert_eq!(holders(&mut scripts), "23");
    assert_eq!(scripts.state().fields["upgradable"], id('3'));
    // But none that came after it.
    assert_eq!(reinstate(&mut scripts, '1', "u", reader - 1, reader - 1), 0);
    assert_eq!(holders(&mut scripts), "23");
}
