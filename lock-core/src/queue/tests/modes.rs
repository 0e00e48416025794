//! The lines of readers, of upgradable readers and of permits.

use super::*;

/// Enters this line; what it shares in is chosen by `share`.
fn enter_line(
    queues: &Arc<Queues<Caller>>,
    kind: LineKind,
    is_patient: bool,
    key: Option<&ReentryKey>,
    share: impl FnMut(&Weak<()>, Sharing) -> Result<bool>,
) -> Entered {
    let name = name();
    let entry = Entry {
        name: &name,
        kind,
        key,
        is_patient,
        deadline: None,
    };
    let wait = || {
        let (told, receiver) = oneshot::channel();
        let caller = Caller {
            is_patient,
            deadline: None,
            key: key.cloned(),
            told,
        };
        (caller, receiver)
    };
    queues.enter(&entry, share, wait).unwrap()
}

fn come(queues: &Arc<Queues<Caller>>, kind: LineKind, is_patient: bool) -> Entered {
    enter_line(queues, kind, is_patient, None, |_, _| Ok(false))
}

fn turn(queues: &Arc<Queues<Caller>>, kind: LineKind) -> Turn<Caller> {
    match come(queues, kind, true) {
        Admission::Turn(turn, _) => turn,
        _ => panic!("somebody is before us"),
    }
}

fn wait_in(queues: &Arc<Queues<Caller>>, kind: LineKind, is_patient: bool) -> oneshot::Receiver<Told> {
    match come(queues, kind, is_patient) {
        Admission::Waiting(receiver, _) => receiver,
        _ => panic!("nobody is before us, or all is known"),
    }
}

fn given(receiver: &mut oneshot::Receiver<Told>) -> Option<Turn<Caller>> {
    match receiver.try_recv() {
        Ok(Told::Turn(turn)) => Some(turn),
        _ => None,
    }
}

fn holds(queues: &Arc<Queues<Caller>>) -> usize {
    queues.0.lock().len()
}

/// Detaches the turn. Nobody shares the new hold.
fn detach(turn: Turn<Caller>, hold: &Arc<()>, key: Option<&ReentryKey>) -> Detached<Caller> {
    let (chosen, detached) = turn.detach(hold, key, (0, |_: &Caller| true)).unwrap();
    assert!(chosen.is_empty());
    detached
}

#[test]
fn each_line_has_a_turn_of_its_own() {
    use LineKind::{Exclusive, Permits, Shared, Upgradable};
    let queues = Arc::new(Queues::default());
    let turns = [Exclusive, Shared, Upgradable, Permits].map(|kind| turn(&queues, kind));
    let mut behind = [Exclusive, Shared, Upgradable].map(|kind| wait_in(&queues, kind, true));
    assert!(behind.iter_mut().all(|behind| given(behind).is_none()));
    drop(turns);
    let turns = behind.map(|mut behind| given(&mut behind).unwrap());
    assert_eq!(
        turns.each_ref().map(Turn::kind),
        [Exclusive, Shared, Upgradable].map(Some)
    );
    drop(turns);
    assert_eq!(holds(&queues), 0, "nothing stays behind");
}

#[test]
fn permits_have_sixteen_turns() {
    let queues = Arc::new(Queues::default());
    let mut turns: Vec<_> = (0..16).map(|_| turn(&queues, LineKind::Permits)).collect();
    let (left, mut second) = (
        wait_in(&queues, LineKind::Permits, true),
        wait_in(&queues, LineKind::Permits, false),
    );
    let mut third = wait_in(&queues, LineKind::Permits, true);
    drop(left);
    turns.pop();
    let second = given(&mut second).expect("the first one has gone");
    assert!(given(&mut third).is_none());
    drop((turns, second));
    assert!(given(&mut third).is_some());
    assert_eq!(holds(&queues), 0);
}

#[test]
fn a_request_that_waits_at_the_server_closes_the_line_of_permits_until_it_ends() {
    let queues = Arc::new(Queues::default());
    let (other, closer, late) = (
        turn(&queues, LineKind::Permits),
        turn(&queues, LineKind::Permits),
        turn(&queues, LineKind::Permits),
    );
    other.refused(Some("somebody".into()), None);
    assert!(
        queues.holder(&name(), LineKind::Permits).is_none(),
        "a try says nothing of others"
    );
    let (asked, _control) = request(Duration::from_secs(1));
    closer.refused(Some("elsewhere".into()), Some(&asked));
    let (later, _control) = request(Duration::from_secs(1));
    late.refused(Some("somebody".into()), Some(&later));
    assert_eq!(queues.holder(&name(), LineKind::Permits).as_deref(), Some("elsewhere"));
    assert!(matches!(come(&queues, LineKind::Permits, false), Admission::Busy));
    let mut waiting: Vec<_> = (0..20).map(|_| wait_in(&queues, LineKind::Permits, true)).collect();
    late.attempt_failed(&Error::new(ErrorKind::Unavailable, "not the closer's"));
    assert!(matches!(come(&queues, LineKind::Permits, false), Admission::Busy));
    drop((other, late));
    assert!(waiting.iter_mut().all(|waiting| given(waiting).is_none()));
    // It is unknown whether the closer is still in the server's queue.
    closer.attempt_failed(&Error::new(ErrorKind::Unavailable, "no server"));
    let mut tried = wait_in(&queues, LineKind::Permits, false);
    assert!(given(&mut tried).is_none() && given(&mut waiting[0]).is_none());
    closer.refused(None, Some(&asked));
    assert!(matches!(tried.try_recv(), Ok(Told::Busy)));
    drop(closer);
    let turns: Vec<_> = waiting.iter_mut().filter_map(given).collect();
    assert_eq!(turns.len(), 16, "as many as there are turns");
    drop((turns, waiting));
    assert_eq!(holds(&queues), 0);
}

#[test]
fn an_undone_request_for_permits_is_about_to_free_the_name() {
    let queues = Arc::new(Queues::default());
    let (mut closer, other) = (turn(&queues, LineKind::Permits), turn(&queues, LineKind::Permits));
    let (asked, _control) = request(Duration::from_secs(1));
    closer.refused(None, Some(&asked));
    closer.releasing();
    let mut tried = wait_in(&queues, LineKind::Permits, false);
    let mut answered = other.releases_answered().expect("it is being undone");
    assert!(is_idle(&mut answered) && is_idle(&mut tried));
    drop(closer);
    assert!(!is_idle(&mut answered));
    assert!(given(&mut tried).is_some());
}

#[test]
fn a_place_of_permits_passes_on_if_the_first_who_waits_may_have_it() {
    let queues = Arc::new(Queues::default());
    let closer = turn(&queues, LineKind::Permits);
    let (asked, _control) = request(Duration::from_secs(1));
    closer.shares(&asked);
    assert_eq!(asked.time_left(), None, "its callers give it up");
    closer.refused(None, Some(&asked));
    let (gone, _first) = (
        wait_in(&queues, LineKind::Permits, true),
        wait_in(&queues, LineKind::Permits, true),
    );
    drop(gone);
    assert!(closer.next_patient(|_| false).is_none());
    assert!(
        closer
            .next_patient(|_| true)
            .is_some_and(|(_, deadline)| deadline.is_none())
    );
    assert!(closer.next_patient(|_| true).is_none());
}

#[test]
fn a_shared_hold_is_joined_while_no_reader_is_before() {
    let queues = Arc::new(Queues::default());
    let hold = Arc::new(());
    let detached = detach_shared(&queues, &hold, None);
    let offered = |queues, kind, key| {
        let mut offered = Vec::new();
        let entered = enter_line(queues, kind, true, key, |hold, sharing| {
            offered.push((hold.clone(), sharing));
            Ok(true)
        });
        (offered, entered)
    };
    let (holds_offered, entered) = offered(&queues, LineKind::Shared, None);
    assert!(matches!(entered, Admission::Shared));
    assert!(holds_offered.len() == 1 && holds_offered[0].1 == Sharing::Joining);
    let (none, writer) = offered(&queues, LineKind::Exclusive, None);
    assert!(none.is_empty() && matches!(writer, Admission::Turn(..)));
    let asking = enter_line(&queues, LineKind::Shared, true, None, |_, _| Ok(false));
    let (none, behind) = offered(&queues, LineKind::Shared, None);
    assert!(none.is_empty() && matches!(behind, Admission::Waiting(..)));
    drop((asking, behind, writer));
    // The latest one.
    let (later, earlier) = (Arc::new(()), detached);
    let detached = detach_shared(&queues, &later, None);
    let (holds_offered, _) = offered(&queues, LineKind::Shared, None);
    assert!(holds_offered.len() == 1 && holds_offered[0].0.ptr_eq(&Arc::downgrade(&later)));
    drop(detached.releasing());
    assert!(
        offered(&queues, LineKind::Shared, None).0.is_empty(),
        "what is being released"
    );
    drop(earlier);
    assert_eq!(holds(&queues), 0);
}

fn detach_shared(queues: &Arc<Queues<Caller>>, hold: &Arc<()>, key: Option<&ReentryKey>) -> Detached<Caller> {
    match enter_line(queues, LineKind::Shared, true, None, |_, _| Ok(false)) {
        Admission::Turn(turn, _) => detach(turn, hold, key),
        _ => panic!("somebody is before us"),
    }
}

#[test]
fn a_key_finds_its_shared_hold_until_that_is_released() {
    let queues = Arc::new(Queues::default());
    let (key, other) = (ReentryKey::new(), ReentryKey::new());
    let (hold, plain) = (Arc::new(()), Arc::new(()));
    let detached = detach_shared(&queues, &hold, Some(&key));
    let plain_detached = detach_shared(&queues, &plain, None);
    let find = |kind, key| {
        let mut found = Vec::new();
        drop(enter_line(&queues, kind, true, Some(key), |hold, sharing| {
            found.extend((sharing == Sharing::Reentry).then(|| hold.clone()));
            Ok(false)
        }));
        found
    };
    for kind in [LineKind::Exclusive, LineKind::Shared, LineKind::Upgradable] {
        let found = find(kind, &key);
        assert!(found.len() == 1 && found[0].ptr_eq(&Arc::downgrade(&hold)), "{kind:?}");
        assert!(find(kind, &other).is_empty());
    }
    let release = detached.releasing();
    assert!(find(LineKind::Exclusive, &key).is_empty());
    drop((release, plain_detached));
    assert_eq!(holds(&queues), 0);
}

#[test]
fn a_later_hold_of_a_key_outlives_the_earlier_one() {
    let queues = Arc::new(Queues::default());
    let key = ReentryKey::new();
    let (lost, hold) = (Arc::new(()), Arc::new(()));
    let (first, _second) = (
        detach_shared(&queues, &lost, Some(&key)),
        detach_shared(&queues, &hold, Some(&key)),
    );
    drop(first);
    let mut found = 0;
    let entered = enter_line(&queues, LineKind::Exclusive, true, Some(&key), |_, _| {
        found += 1;
        Ok(true)
    });
    assert!(matches!(entered, Admission::Shared) && found == 1);
}

#[test]
fn readers_enter_with_a_grant_in_order_and_up_to_the_bound() {
    let queues = Arc::new(Queues::default());
    let turn = turn(&queues, LineKind::Shared);
    let readers = [true, false, true, true, true].map(|is_patient| wait_in(&queues, LineKind::Shared, is_patient));
    let [gone, try_it, third, mut fourth, last] = readers;
    drop(gone);
    let (chosen, detached) = turn.detach(&Arc::new(()), None, (2, |_: &Caller| true)).unwrap();
    assert_eq!(
        chosen.iter().map(|caller| caller.is_patient).collect::<Vec<_>>(),
        [false, true]
    );
    drop(turn);
    let turn = given(&mut fourth).expect("the next one asks");
    let (chosen, more) = turn.detach(&Arc::new(()), None, (2, |_: &Caller| false)).unwrap();
    assert!(chosen.is_empty(), "on other terms");
    drop((try_it, third, last, turn, detached, more));
    assert_eq!(holds(&queues), 0);
}

#[test]
fn an_exclusive_hold_takes_in_the_waiting_readers_of_its_key() {
    let queues = Arc::new(Queues::default());
    let key = ReentryKey::new();
    let mut writer = turn(&queues, LineKind::Exclusive);
    let _reader = turn(&queues, LineKind::Shared);
    let wait = |key| enter_line(&queues, LineKind::Shared, true, key, |_, _| Ok(false));
    let (_ours, _plain) = (wait(Some(&key)), wait(None));
    let chosen = writer.holding(&Arc::new(()), None, Some(&key));
    assert_eq!(chosen.len(), 1);
    assert!(chosen[0].key.as_ref() == Some(&key));
}

#[test]
fn a_hold_that_is_handed_over_is_no_release_under_way() {
    let queues = Arc::new(Queues::default());
    let mut writer = first(&queues, None);
    writer.releasing();
    let reader = turn(&queues, LineKind::Shared);
    let mut answered = reader.releases_answered().expect("as one cannot know");
    assert!(is_idle(&mut answered));
    writer.holding(&Arc::new(()), None, None);
    assert!(!is_idle(&mut answered));
    assert!(reader.releases_answered().is_none());
}
