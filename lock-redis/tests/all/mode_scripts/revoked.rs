//! A forced release: the hold that a token names, and what is left.

use super::{TTL, ask, downgrade, end, id, keys, renew, scripts, take, token};
use crate::support::scripts::arguments::{DowngradeArguments, RevokeArguments};
use crate::support::scripts::{GRACE, Scripts};

/// The digit of the id that had the token, when the hold is revoked at the end of its lease. From then on `nobody` has it.
fn revoke(scripts: &mut Scripts, token: u64, nobody: char) -> Option<char> {
    let arguments = RevokeArguments {
        asked: token.to_string().into(),
        at_once: "".into(),
        nobody: id(nobody).into(),
        grace: GRACE.to_string().into(),
    };
    let reply = scripts.run("revoke", &arguments.all()).list();
    reply[0].clone().text().chars().next()
}

/// Another reader that lasted longer has left.
#[testbed::test]
async fn a_revoke_after_the_last_reader_ended_leaves_nothing() {
    let Some(mut scripts) = scripts().await else { return };
    let first = take(&mut scripts, '1', "s");
    token(&ask(&mut scripts, '2', "s", TTL + TTL / 2, None, false));
    assert_eq!(end(&mut scripts, '2'), 1);
    scripts.pass(TTL);
    assert_eq!(revoke(&mut scripts, first, 'a'), None);
    assert_eq!(keys(&mut scripts), [""; 0], "nothing is left behind");
    take(&mut scripts, '3', "s");
    let state = scripts.state();
    assert!(state.lefts[1..].iter().all(|left| *left > 0), "they expire: {state:?}");
}

/// As the clock stands still, the tokens of readers follow those that were reserved at once.
#[testbed::test]
async fn a_hold_that_was_exclusive_has_the_tokens_that_its_grant_reserved() {
    let Some(mut scripts) = scripts().await else { return };
    let own = take(&mut scripts, '1', "x");
    assert_eq!(downgrade(&mut scripts, '1'), 1);
    let readers = ['2', '3'].map(|digit| take(&mut scripts, digit, "s"));
    assert_eq!(readers, [own + 17, own + 18]);
    // Its terms change, and it stays the same hold.
    assert_eq!(renew(&mut scripts, '1', 2 * TTL), 1);
    assert_eq!(revoke(&mut scripts, own - 1, 'a'), None);
    assert_eq!(revoke(&mut scripts, own + 16, 'b'), Some('1'));
    assert_eq!(revoke(&mut scripts, own + 1, 'c'), Some('b'));
    assert_eq!(revoke(&mut scripts, own, 'd'), Some('c'));
    assert_eq!(end(&mut scripts, '3'), 1);
    assert_eq!(revoke(&mut scripts, own + 18, 'e'), None, "a reader has one token");
    assert_eq!(revoke(&mut scripts, own + 17, 'f'), Some('2'));
}

/// An upgrade reserves nothing.
#[testbed::test]
async fn an_upgrade_that_was_downgraded_has_one_token() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, '1', "u");
    let own = take(&mut scripts, '2', &format!("x<{}", id('1')));
    let arguments = DowngradeArguments {
        reserves: "".into(),
        ..scripts::downgrade(&id('2'), TTL)
    };
    assert_eq!(scripts.run("downgrade", &arguments.all()).int(), 1);
    assert_eq!(take(&mut scripts, '3', "s"), own + 1);
    assert_eq!(end(&mut scripts, '3'), 1);
    assert_eq!(revoke(&mut scripts, own + 1, 'a'), None);
    assert_eq!(revoke(&mut scripts, own, 'b'), Some('2'));
}
