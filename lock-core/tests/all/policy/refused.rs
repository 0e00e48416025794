//! Requests that the server refused: they were certainly not executed, and that is no unknown outcome.

use lock_core::Release;
use tokio::time::sleep;

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request};

#[tokio::test(start_paused = true)]
async fn a_refused_release_excuses_no_loss() {
    for (answer, is_known) in [(Answer::NotExecuted, true), (Answer::Fail, false)] {
        let (backend, locks) = scripted();
        let guard = locks.lock("a").acquire().await.unwrap();
        // Refused once; then somebody else has it, before the lease has ended.
        backend.next(Request::Release, [answer]);
        let releasing = tokio::spawn(guard.release());
        tokio::task::yield_now().await;
        backend.server().hold_elsewhere("a", seconds(60)).unwrap();
        match (is_known, releasing.await.unwrap()) {
            (true, Err(error)) => assert!(error.is_lost(), "{error:?}"),
            // Its answer may have got lost, and it may have freed the name.
            (false, Ok(outcome)) => assert_eq!(outcome, Release::Released),
            (_, unexpected) => panic!("after {answer:?}: {unexpected:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_unknown_outcome_leaves_it_unknown() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Release, [Answer::DoThenFail, Answer::NotExecuted]);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_is_not_undone() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::NotSent; 1000]);
    for _ in 0..3 {
        locks.lock("a").acquire_within(seconds(1)).await.unwrap_err();
        locks.lock("a").try_acquire().await.unwrap_err();
    }
    sleep(TTL).await;
    assert_eq!(backend.count(Request::Abandon), 0);
    backend.clear();
    backend.next(Request::Acquire, [Answer::Fail]);
    locks.lock("a").try_acquire().await.unwrap_err();
    locks.shutdown().await.unwrap();
    assert_eq!(backend.count(Request::Abandon), 1);
}
