use super::*;
use crate::error::ErrorKind;

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn first(queues: &Arc<Queues>) -> Turn {
    queues.enter(&name(), true).expect("nobody is there")
}

fn wait(queues: &Arc<Queues>) -> oneshot::Receiver<Answer> {
    queues.enter(&name(), true).expect_err("somebody has the turn")
}

fn is_idle(receiver: &mut oneshot::Receiver<Answer>) -> bool {
    matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

#[test]
fn the_turn_goes_round_in_order_and_skips_those_who_left() {
    let queues = Arc::new(Queues::default());
    let turn = first(&queues);
    let (left, mut second, mut third) = (wait(&queues), wait(&queues), wait(&queues));
    drop(left);
    drop(turn);
    assert!(is_idle(&mut third));
    let Ok(Answer::Turn(turn)) = second.try_recv() else {
        panic!("the second one is next")
    };
    drop(turn);
    // Sent, but never taken: it passes itself on when the receiver is dropped.
    let mut fourth = wait(&queues);
    drop(third);
    assert!(matches!(fourth.try_recv(), Ok(Answer::Turn(_))));
    assert!(queues.0.lock().is_empty(), "nothing stays behind");
}

#[test]
fn who_does_not_wait_learns_only_what_is_known() {
    let queues = Arc::new(Queues::default());
    let turn = first(&queues);
    let mut asking = queues.enter(&name(), false).unwrap_err();
    assert!(is_idle(&mut asking));
    turn.progress(Progress::Holding(Some("me".into())));
    assert!(matches!(asking.try_recv(), Ok(Answer::Busy)));
    assert_eq!(queues.holder(&name()).as_deref(), Some("me"));
    assert!(matches!(
        queues.enter(&name(), false).unwrap_err().try_recv(),
        Ok(Answer::Busy)
    ));

    turn.progress(Progress::Releasing);
    let mut behind = queues.enter(&name(), false).unwrap_err();
    assert!(is_idle(&mut behind), "the name is about to be free");
    drop(turn);
    assert!(matches!(behind.try_recv(), Ok(Answer::Turn(_))));
}

#[test]
fn one_failure_is_everybodys() {
    let queues = Arc::new(Queues::default());
    let turn = first(&queues);
    let mut second = wait(&queues);
    turn.fail_all(&Error::new(ErrorKind::Unavailable, "no server"));
    assert!(matches!(second.try_recv(), Ok(Answer::Failed(error)) if error.kind() == ErrorKind::Unavailable));
}

#[test]
fn those_who_left_do_not_pile_up() {
    let queues = Arc::new(Queues::default());
    let _turn = first(&queues);
    for _ in 0..1000 {
        drop(wait(&queues));
    }
    assert!(queues.0.lock()[&name()].waiting.len() <= 16);
}
