//! Many who wait for one name.

use super::{INBOX, TTL, end, scripts, take, token};
use crate::support::link::Reply;
use crate::support::scripts::{Asker, Scripts};

/// A release offers the name to 64 readers, and so does one that asks before a confirm has offered it to the others.
#[testbed::test]
async fn a_reader_that_comes_later_offers_the_name_to_64_at_most() {
    let Some(mut scripts) = scripts().await else { return };
    take(&mut scripts, 'f', "x");
    let ask = |scripts: &mut Scripts, number: u32, may_have_entry| {
        scripts.acquire(&Asker {
            id: &format!("{number:032}"),
            mode: "s",
            ttl: TTL,
            inbox: Some(INBOX),
            may_have_entry,
        })
    };
    for number in 0..130 {
        assert!(matches!(ask(&mut scripts, number, false), Reply::List(_)));
    }
    end(&mut scripts, 'f');
    assert_eq!(scripts.state().sharers.len(), 64);
    let last = ask(&mut scripts, 130, false);
    assert!(matches!(last, Reply::List(_)), "it overtakes two readers: {last:?}");
    assert_eq!(scripts.state().sharers.len(), 128);
    token(&ask(&mut scripts, 0, true));
    let state = scripts.state();
    assert_eq!(state.sharers.len(), 131, "the confirm goes on");
    assert!(state.queue.iter().all(|place| place.is_aside), "{:?}", state.queue);
}
