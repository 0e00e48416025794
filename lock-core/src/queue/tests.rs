use std::time::Duration;

use super::*;
use crate::backend::Capabilities;
use crate::error::ErrorKind;
use crate::limits::Limits;

const ONCE: Patience = Patience::Once;

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn plan() -> Plan {
    Plan {
        name: name(),
        ttl: Duration::from_secs(10),
        label: None,
        fixed: false,
        minimum: None,
        reentry: None,
        limits: Limits {
            capabilities: Capabilities::default(),
            patience: Duration::from_secs(5),
            hand_overs: 16,
        },
    }
}

fn first(queues: &Arc<Queues>) -> Turn {
    match queues.enter(&plan(), Patience::Forever, None) {
        Ok(Entered::Turn(turn)) => turn,
        _ => panic!("somebody is there"),
    }
}

fn enter(queues: &Arc<Queues>, patience: Patience, deadline: Option<Instant>) -> oneshot::Receiver<Answer> {
    match queues.enter(&plan(), patience, deadline) {
        Ok(Entered::Waiting(receiver, _)) => receiver,
        _ => panic!("nobody has the turn, or all is known"),
    }
}

fn wait(queues: &Arc<Queues>) -> oneshot::Receiver<Answer> {
    enter(queues, Patience::Forever, None)
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
    let mut asking = enter(&queues, ONCE, None);
    assert!(is_idle(&mut asking));
    turn.refused(Some("elsewhere".into()));
    assert!(matches!(asking.try_recv(), Ok(Answer::Busy)));
    assert_eq!(queues.holder(&name()).as_deref(), Some("elsewhere"));
    assert!(matches!(queues.enter(&plan(), ONCE, None), Ok(Entered::Busy)));

    turn.releasing();
    let mut behind = enter(&queues, ONCE, None);
    assert!(is_idle(&mut behind), "the name is about to be free");
    drop(turn);
    assert!(matches!(behind.try_recv(), Ok(Answer::Turn(_))));
}

#[tokio::test(start_paused = true)]
async fn the_place_waits_as_long_as_anybody() {
    let queues = Arc::new(Queues::default());
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let patience = Patience::Within(second);
    let Ok(Entered::Turn(turn)) = queues.enter(&plan(), patience, Some(now + second)) else {
        panic!("nobody is there")
    };
    let (place, _control) = plan().request(patience, Some(now + second));
    let _longer = enter(&queues, patience, Some(now + second * 3));
    turn.shares(&place);
    assert_eq!(place.time_left(), Some(second * 3), "whoever came before");
    turn.refused(None);
    let _longest = enter(&queues, patience, Some(now + second * 5));
    enter_busy(&queues, Some(now + second * 9));
    assert_eq!(place.time_left(), Some(second * 5), "and after it");
    let _forever = wait(&queues);
    assert_eq!(place.time_left(), None);
    let (waiting, deadline) = turn.next_patient().unwrap();
    assert_eq!((waiting.deadline, deadline), (Some(now + second * 3), None));
}

fn enter_busy(queues: &Arc<Queues>, deadline: Option<Instant>) {
    assert!(matches!(queues.enter(&plan(), ONCE, deadline), Ok(Entered::Busy)));
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
