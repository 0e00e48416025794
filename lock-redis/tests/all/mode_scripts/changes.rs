//! Upgrades and downgrades.

use super::{
    INBOX, TTL, again, arguments, ask, downgrade, end, holders, id, keys, refuse, renew, scripts, take, token, wait,
    woken,
};
use crate::support::link::Reply;
use crate::support::scripts::arguments::AcquireArguments;
use crate::support::scripts::{GRACE, KEYS, abandon};

#[testbed::test]
async fn an_upgrade_is_before_all_and_ends_what_it_replaces() {
    let Some(mut scripts) = scripts().await else { return };
    let base = take(&mut scripts, '1', "u");
    refuse(&mut scripts, '2', "u");
    take(&mut scripts, '2', "s");
    wait(&mut scripts, '3', "x");
    let upgrade = format!("x<{}", id('1'));
    assert_eq!(wait(&mut scripts, '4', &upgrade), 0, "before all");
    refuse(&mut scripts, '5', "s");
    end(&mut scripts, '2');
    assert_eq!(woken(&mut scripts), [('4', 0)]);
    assert_eq!(holders(&mut scripts), "1", "it has what it had until it confirms");
    let grant = again(&mut scripts, '4', &upgrade);
    assert!(token(&grant) > base);
    assert_eq!(
        again(&mut scripts, '4', &upgrade),
        grant,
        "a repetition is the same grant"
    );
    assert_eq!(holders(&mut scripts), "");
    assert_eq!((renew(&mut scripts, '1', TTL), end(&mut scripts, '1')), (0, 0));
    assert_eq!(end(&mut scripts, '4'), 1);
    assert_eq!(woken(&mut scripts), [('3', 0)]);

    // Whose base has ended.
    token(&again(&mut scripts, '3', "x"));
    end(&mut scripts, '3');
    take(&mut scripts, '6', "u");
    take(&mut scripts, '7', "s");
    let upgrade = format!("x<{}", id('6'));
    wait(&mut scripts, '8', &upgrade);
    end(&mut scripts, '6');
    take(&mut scripts, '9', "s");
    assert_eq!(again(&mut scripts, '8', &upgrade), Reply::Int(-1));
    assert!(scripts.state().queue.is_empty(), "nothing is left behind");
}

#[testbed::test]
async fn a_downgrade_keeps_id_and_token_and_admits_whoever_fits() {
    let Some(mut scripts) = scripts().await else { return };
    let kept = take(&mut scripts, '1', "x");
    wait(&mut scripts, '2', "s");
    wait(&mut scripts, '3', "x");
    scripts.link.ask(&["PEXPIRE", KEYS[0], "30000"]);
    for _ in 0..2 {
        assert_eq!(downgrade(&mut scripts, '1'), 1);
        assert_eq!(scripts.state().fields[&id('1')], format!("{kept} 010000 s"));
    }
    assert_eq!(woken(&mut scripts), [('2', 0), ('3', GRACE)]);
    assert_eq!(
        ask(&mut scripts, '1', "x", TTL, None, false),
        Reply::Text(kept.to_string()),
        "late"
    );
    assert!(token(&again(&mut scripts, '2', "s")) > kept);
    assert_eq!(
        (
            renew(&mut scripts, '1', TTL),
            end(&mut scripts, '1'),
            end(&mut scripts, '2')
        ),
        (1, 1, 1)
    );
    assert_eq!(woken(&mut scripts), [('3', 0)]);
    assert_eq!(downgrade(&mut scripts, '1'), 0);
    assert_eq!(downgrade(&mut scripts, '3'), 0, "an offer is no hold");
    token(&again(&mut scripts, '3', "x"));
    end(&mut scripts, '3');
    assert_eq!(keys(&mut scripts), <[String; 0]>::default());
}

#[testbed::test]
async fn a_downgrade_shortens_no_hold() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "x");
    assert_eq!(renew(&mut scripts, '1', 5 * TTL), 1);
    assert_eq!(downgrade(&mut scripts, '1'), 1);
    let (now, state) = (scripts.now(), scripts.state());
    assert_eq!((state.sharers[0].ends, state.left), (now + 5 * TTL, 5 * TTL));
}

/// What an upgrade replaced is back with its own token and label when the upgrade is undone. If it is not, its terms end with
/// the upgrade's ttl.
#[testbed::test]
async fn an_upgrade_that_is_undone_gives_back_token_and_label() {
    let Some(mut scripts) = scripts().await else { return };
    let base = id('1');
    let labelled = AcquireArguments {
        label: " its own".into(),
        ..arguments(&base, "u")
    };
    let reply = scripts.run("acquire", &labelled.all());
    let terms = format!("{} 10000 u its own", token(&reply));
    assert_eq!(scripts.state().fields[&base], terms);
    let upgrade = format!("x<{base}");
    for digit in ['2', '3'] {
        let labelled = AcquireArguments {
            label: " another".into(),
            ..arguments(&id(digit), &upgrade)
        };
        let grant = scripts.run("acquire", &labelled.all());
        assert!(token(&grant) > token(&reply));
        assert_eq!(
            scripts.state().lefts[2],
            TTL,
            "the terms are kept for as long as they may be needed"
        );
        let undo = abandon(&id(digit), &upgrade, INBOX);
        assert_eq!(scripts.run("end", &undo.all()).int(), 1);
        assert_eq!(scripts.state().fields[&base], terms);
        assert_eq!(scripts.run("end", &undo.all()).int(), 0, "a repetition");
    }
    assert_eq!(end(&mut scripts, '1'), 1);
    assert_eq!(keys(&mut scripts), [""; 0], "nothing is left behind");
}

/// Those that end before the last one are not looked at one by one.
#[testbed::test]
async fn a_clock_set_back_leaves_no_sharer_longer_than_the_longest_term() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "u");
    token(&ask(&mut scripts, '2', "s", 5 * TTL, None, false));
    scripts.pass(-2 * TTL);
    refuse(&mut scripts, '3', "u");
    let (now, state) = (scripts.now(), scripts.state());
    let lefts: Vec<i64> = state.sharers.iter().map(|sharer| sharer.ends - now).collect();
    assert_eq!(lefts, [3 * TTL, 5 * TTL]);
    scripts.pass(-TTL * 10);
    refuse(&mut scripts, '3', "u");
    let (now, state) = (scripts.now(), scripts.state());
    let lefts: Vec<i64> = state.sharers.iter().map(|sharer| sharer.ends - now).collect();
    assert_eq!(lefts, [TTL, 5 * TTL], "the last one after the other");
    scripts.pass(TTL);
    take(&mut scripts, '3', "u");
}

/// As when its first answer was lost. Another reader that lasted longer has left.
#[testbed::test]
async fn a_downgrade_of_a_hold_that_ended_leaves_nothing() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "x");
    assert_eq!(downgrade(&mut scripts, '1'), 1);
    token(&ask(&mut scripts, '2', "s", TTL + TTL / 2, None, false));
    assert_eq!(end(&mut scripts, '2'), 1);
    scripts.pass(TTL);
    assert_eq!(downgrade(&mut scripts, '1'), 0);
    assert_eq!(keys(&mut scripts), [""; 0], "nothing is left behind");
    take(&mut scripts, '3', "s");
    let state = scripts.state();
    assert!(state.lefts[1..].iter().all(|left| *left > 0), "they expire: {state:?}");
}
