//! Holds that are due at nearly the same time are renewed together.

use std::time::Duration;

use lock_core::HoldState;
use tokio::time::sleep;

use super::{scripted, seconds};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_due_soon_is_renewed_with_one_that_is_due_now() {
    let (backend, locks) = scripted();
    let mut guards = Vec::new();
    for (name, pause) in [("a", 90), ("b", 160), ("c", 0)] {
        guards.push(locks.lock(name).acquire().await.unwrap());
        sleep(ms(pause)).await;
    }
    sleep(seconds(7) - ms(250)).await;
    let (together, apart) = ([seconds(3), seconds(6)], [ms(3250), ms(6250)]);
    assert_eq!(
        backend.renewals(),
        [together[0], together[0], apart[0], together[1], together[1], apart[1]]
    );
    assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
}

#[tokio::test(start_paused = true)]
async fn a_short_ttl_makes_no_hold_of_a_longer_one_due() {
    let (backend, locks) = scripted();
    let _short = locks.lock("a").ttl(ms(300)).acquire().await.unwrap();
    let _long = locks.lock("b").ttl(seconds(60)).acquire().await.unwrap();
    sleep(ms(19_850)).await;
    let of_the_short_one = 19_850 / 100;
    assert_eq!(backend.renewals().len(), of_the_short_one);
    // The long one is due in 20 s, and early by a tenth of a second at most.
    sleep(ms(100)).await;
    assert_eq!(backend.renewals().len(), of_the_short_one + 2);
}
