use std::time::Duration;

use super::*;
use crate::backend::request::{RequestControl, RequestOptions, Terms};
use crate::error::{Error, ErrorKind};
use crate::reentry::ReentryKey;
use crate::sync::oneshot;

mod modes;

#[derive(Debug)]
enum Told {
    Turn(Turn<Caller>),
    Busy,
    Failed(Error),
}

#[derive(Debug)]
struct Caller {
    is_patient: bool,
    deadline: Option<Instant>,
    key: Option<ReentryKey>,
    told: oneshot::Sender<Told>,
}

impl Waiter for Caller {
    type Hold = ();

    fn is_patient(&self) -> bool {
        self.is_patient
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn reentry(&self) -> Option<&ReentryKey> {
        self.key.as_ref()
    }

    fn is_gone(&self) -> bool {
        self.told.is_closed()
    }

    fn take_turn(self, turn: Turn<Self>) -> Result<(), Turn<Self>> {
        match self.told.send(Told::Turn(turn)) {
            Err(Told::Turn(turn)) => Err(turn),
            _ => Ok(()),
        }
    }

    fn refuse(self) {
        self.told.send(Told::Busy).unwrap();
    }

    fn fail(self, error: Error) {
        self.told.send(Told::Failed(error)).unwrap();
    }
}

type Entered = Admission<Caller, oneshot::Receiver<Told>>;

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn try_enter(queues: &Arc<Queues<Caller>>, is_patient: bool, deadline: Option<Instant>) -> Entered {
    let name = name();
    let entry = Entry {
        name: &name,
        kind: LineKind::Exclusive,
        key: None,
        is_patient,
        deadline,
    };
    let wait = || {
        let (told, receiver) = oneshot::channel();
        let caller = Caller {
            is_patient,
            deadline,
            key: None,
            told,
        };
        (caller, receiver)
    };
    queues.enter(&entry, |_, _| Ok(false), wait).unwrap()
}

fn first(queues: &Arc<Queues<Caller>>, deadline: Option<Instant>) -> Turn<Caller> {
    match try_enter(queues, true, deadline) {
        Admission::Turn(turn, _) => turn,
        _ => panic!("somebody is there"),
    }
}

fn enter(queues: &Arc<Queues<Caller>>, is_patient: bool, deadline: Option<Instant>) -> oneshot::Receiver<Told> {
    match try_enter(queues, is_patient, deadline) {
        Admission::Waiting(receiver, _) => receiver,
        _ => panic!("nobody has the turn, or all is known"),
    }
}

fn wait(queues: &Arc<Queues<Caller>>) -> oneshot::Receiver<Told> {
    enter(queues, true, None)
}

fn is_idle<T>(receiver: &mut oneshot::Receiver<T>) -> bool {
    matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

fn request(deadline: Duration) -> (AcquireRequest, RequestControl) {
    RequestOptions::new(name(), Terms::new(Duration::from_secs(10)).time_left(deadline)).start()
}

#[test]
fn the_turn_goes_round_in_order_and_skips_those_who_left() {
    let queues = Arc::new(Queues::default());
    let turn = first(&queues, None);
    let (left, mut second, mut third) = (wait(&queues), wait(&queues), wait(&queues));
    drop(left);
    drop(turn);
    assert!(is_idle(&mut third));
    let Ok(Told::Turn(turn)) = second.try_recv() else {
        panic!("the second one is next")
    };
    drop(turn);
    // Sent, but never taken: it passes itself on when the receiver is dropped.
    let mut fourth = wait(&queues);
    drop(third);
    assert!(matches!(fourth.try_recv(), Ok(Told::Turn(_))));
    assert!(queues.0.lock().is_empty(), "nothing stays behind");
}

#[test]
fn who_does_not_wait_learns_only_what_is_known() {
    let queues = Arc::new(Queues::default());
    let mut turn = first(&queues, None);
    let mut asking = enter(&queues, false, None);
    assert!(is_idle(&mut asking));
    turn.refused(Some("elsewhere".into()), None);
    assert!(matches!(asking.try_recv(), Ok(Told::Busy)));
    assert_eq!(
        queues.holder(&name(), LineKind::Exclusive).as_deref(),
        Some("elsewhere")
    );
    assert!(matches!(try_enter(&queues, false, None), Admission::Busy));

    turn.releasing();
    let mut behind = enter(&queues, false, None);
    assert!(is_idle(&mut behind), "the name is about to be free");
    drop(turn);
    assert!(matches!(behind.try_recv(), Ok(Told::Turn(_))));
}

#[tokio::test(start_paused = true)]
async fn the_place_waits_as_long_as_anybody() {
    let queues = Arc::new(Queues::default());
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let turn = first(&queues, Some(now + second));
    let (shared, _control) = request(second);
    let _longer = enter(&queues, true, Some(now + second * 3));
    turn.shares(&shared);
    assert_eq!(shared.time_left(), Some(second * 3), "whoever came before");
    turn.refused(None, None);
    let _longest = enter(&queues, true, Some(now + second * 5));
    let busy = try_enter(&queues, false, Some(now + second * 9));
    assert!(matches!(busy, Admission::Busy));
    assert_eq!(shared.time_left(), Some(second * 5), "and after it");
    let _forever = wait(&queues);
    assert_eq!(shared.time_left(), None);
    let (waiter, deadline) = turn.next_patient(|_| true).unwrap();
    assert_eq!((waiter.deadline, deadline), (Some(now + second * 3), None));
}

#[test]
fn one_failure_is_everybodys() {
    let queues = Arc::new(Queues::default());
    let turn = first(&queues, None);
    let mut second = wait(&queues);
    turn.fail_all(&Error::new(ErrorKind::Unavailable, "no server"));
    assert!(matches!(second.try_recv(), Ok(Told::Failed(error)) if error.kind() == ErrorKind::Unavailable));
}

#[test]
fn those_who_left_do_not_pile_up() {
    let queues = Arc::new(Queues::default());
    let _turn = first(&queues, None);
    for _ in 0..1000 {
        drop(wait(&queues));
    }
    assert!(
        queues.0.lock()[&name()]
            .known_line(LineKind::Exclusive)
            .unwrap()
            .line
            .len()
            <= 16
    );
}

#[test]
fn the_last_word_is_the_latest() {
    let queues = Arc::new(Queues::default());
    let late = |news, half_time| queues.last_word(&name(), LineKind::Exclusive, Since { news, half_time });
    let word = |news| late(news, None);
    assert!(matches!(word(0), LastWord::Nothing));
    let mut turn = first(&queues, None);
    assert!(matches!(word(0), LastWord::Nothing));
    turn.attempt_failed(&Error::new(ErrorKind::Unavailable, "no server"));
    assert!(matches!(word(0), LastWord::Failed(_)));
    turn.refused(Some("elsewhere".into()), None);
    assert!(matches!(word(0), LastWord::Taken(Some(_))));
    turn.holding(&Arc::new(()), None, None);
    assert!(matches!(word(0), LastWord::Taken(None)));
    turn.releasing();
    // One more thing was learned than the caller knew, or nothing more.
    assert!(matches!(word(2), LastWord::Taken(None)));
    assert!(matches!(word(3), LastWord::Nothing));
    let (shared, _control) = request(Duration::from_secs(1));
    turn.shares(&shared);
    assert!(matches!(word(2), LastWord::Taken(None)));
    let later = Instant::now() + Duration::from_secs(1);
    assert!(matches!(late(2, Some(later)), LastWord::Nothing), "silent since");
    shared.note_unreachable(Error::new(ErrorKind::Unavailable, "the line is cut"));
    assert!(matches!(word(2), LastWord::Failed(_)));
}

/// Its turn comes when its own time is up: that this request has no answer says nothing of the server.
#[test]
fn a_waiter_that_came_after_a_refusal_is_told_of_it() {
    let queues = Arc::new(Queues::default());
    let turn = first(&queues, None);
    turn.refused(Some("elsewhere".into()), None);
    let Admission::Waiting(mut receiver, news) = try_enter(&queues, true, None) else {
        panic!("it waits");
    };
    drop(turn);
    let Ok(Told::Turn(turn)) = receiver.try_recv() else {
        panic!("it has the turn");
    };
    let since = Since { news, half_time: None };
    let word = queues.last_word(&name(), LineKind::Exclusive, since);
    assert!(matches!(word, LastWord::Taken(None)), "{word:?}");
    let (asking, _control) = request(Duration::from_secs(1));
    assert!(turn.has_news(since, &asking));
    // Unless the server is silent for half of its time.
    let half_time = Some(Instant::now() + Duration::from_secs(1));
    assert!(!turn.has_news(Since { news, half_time }, &asking));
}

#[test]
fn a_release_under_way_keeps_the_queue_and_wakes_the_refused() {
    let queues = Arc::new(Queues::default());
    let mut turn = first(&queues, None);
    let release = turn.release_goes_on();
    drop(turn);
    let next = first(&queues, None);
    let mut answered = next.releases_answered().expect("one goes on");
    assert!(is_idle(&mut answered));
    drop(release);
    assert!(!is_idle(&mut answered));
    assert!(next.releases_answered().is_none(), "none goes on");
    drop(next);
    assert!(queues.0.lock().is_empty(), "nothing stays behind");
    let (turn, release) = {
        let mut turn = first(&queues, None);
        let release = turn.release_goes_on();
        (turn, release)
    };
    drop(turn);
    drop(release);
    assert!(queues.0.lock().is_empty(), "nothing stays behind");
}
