//! A forced release: the hold that a token names, and what is left.

use super::{TTL, ask, end, id, keys, scripts, take, token};
use crate::support::scripts::arguments::RevokeArguments;
use crate::support::scripts::{GRACE, Scripts};

/// The digit of the id that had the token, when the hold is revoked at the end of its lease.
fn revoke(scripts: &mut Scripts, token: u64) -> Option<char> {
    let arguments = RevokeArguments {
        asked: token.to_string().into(),
        at_once: "".into(),
        nobody: id('0').into(),
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
    assert_eq!(revoke(&mut scripts, first), None);
    assert_eq!(keys(&mut scripts), [""; 0], "nothing is left behind");
    take(&mut scripts, '3', "s");
    let state = scripts.state();
    assert!(state.lefts[1..].iter().all(|left| *left > 0), "they expire: {state:?}");
}
