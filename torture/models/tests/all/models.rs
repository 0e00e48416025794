//! The models of the protocols: each keeps its properties in every order of events within its bounds, and every
//! mutant breaks the one that it is said to break, by the trace in `src/traces.md`.
//!
//! `cargo test --release -p torture-models --test models models:: -- --nocapture` prints the bounds, the states and the seconds.

use std::collections::HashSet;

use torture_models::acquire_all::AcquireAllModel;
use torture_models::check::{ProtocolModel, check, numbered, shortest_trace};
use torture_models::joins::JoinsModel;
use torture_models::lease::LeaseModel;
use torture_models::modes::{Kind, ModesModel};
use torture_models::mutant::Mutant;
use torture_models::passes::PassModel;
use torture_models::postgres_lease::PostgresLeaseModel;
use torture_models::queue::QueueModel;
use torture_models::session::SessionModel;
use torture_models::token_offset::TokenOffsetModel;
use torture_models::tokens::TokenModel;
use torture_models::zookeeper_minimum::ZookeeperMinimumModel;
use torture_models::zookeeper_modes::ZookeeperModesModel;

const TRACES: &str = include_str!("../../src/traces.md");

/// Two clients, two holds each, and nothing goes wrong but that everything is late or lost, or paused.
const LEASE: LeaseModel = LeaseModel {
    ttls: &[20, 20],
    runs: 2,
    renewals: &[],
    keeps: 0,
    writes: true,
    until: 40,
    lag: 1,
    repeats: 0,
    gives_up: false,
    waits: false,
    set_back: 0,
    restarts: 0,
    mutant: None,
};

/// Three processes of which one hangs, and one message of the server gets lost.
const QUEUE: QueueModel = QueueModel {
    processes: 3,
    runs: 1,
    until: 80,
    hangs: 1,
    losses: 1,
    cuts: 0,
    keeps: 0,
    set_back: 0,
    gives_up: true,
    mutant: None,
};

/// Two readers and a writer, of which one hangs.
const MODES: ModesModel = ModesModel {
    kinds: &[Kind::Shared, Kind::Shared, Kind::Exclusive],
    runs: 1,
    until: 60,
    hangs: 1,
    renewals: 0,
    gives_up: true,
    changes: false,
    late: false,
    repeats: 0,
    mutant: None,
};

/// The same, but requests and answers are late.
const LATE_MODES: ModesModel = ModesModel {
    until: 30,
    hangs: 0,
    late: true,
    ..MODES
};

/// Two clients without a floor, a pass, a server that restarts, and a node that somebody deletes.
const ZOOKEEPER_TOKENS: TokenOffsetModel = TokenOffsetModel {
    floors: &[0, 0],
    holds: 3,
    passes: 1,
    deletions: 1,
    raises: 0,
    raised_holds: 0,
    restarts: 1,
    watches: false,
    mutant: None,
};

/// Three clients that want two of three names each, in a circle.
const ACQUIRE_ALL: AcquireAllModel = AcquireAllModel {
    wanted: &[
        &[(0, false), (1, false)],
        &[(1, false), (2, false)],
        &[(2, false), (0, false)],
    ],
    runs: 1,
    losses: 1,
    gives_up: true,
    mutant: None,
};

/// Four holds of a process that passes them on, and one elsewhere.
const PASSES: PassModel = PassModel {
    holds: 4,
    others: 1,
    renewals: 1,
    until: 54,
    set_backs: 1,
    crashes: 0,
    mutant: None,
};

/// A reader, a writer and a permit; writers downgrade, a session ends, and an answer gets lost.
const ZOOKEEPER_MODES: ZookeeperModesModel = ZookeeperModesModel {
    kinds: &[Kind::Exclusive, Kind::Shared, Kind::Permits(1, 2)],
    in_order: false,
    deletions: 1,
    losses: 1,
    downgrades: true,
    mutant: None,
};

/// A minimum hold, two who come after it, an election, a clock that is set back, and an old read.
const ZOOKEEPER_MINIMUM: ZookeeperMinimumModel = ZookeeperMinimumModel {
    minimum: 2,
    until: 6,
    comes: 2,
    elections: 1,
    set_backs: 1,
    old_reads: 1,
    mutant: None,
};

/// Three clients, of which the first one comes again.
const POSTGRES_LEASE: PostgresLeaseModel = PostgresLeaseModel {
    runs: &[2, 1, 1],
    gives_up: false,
    crashes: 0,
    mutant: None,
};

/// Every test with its mutants.
macro_rules! models {
    ($($name:ident: $model:expr, broken by [$($mutant:ident),*];)+) => {
        $(
            #[test]
            fn $name() {
                examine(stringify!($name), &$model, &[$(Mutant::$mutant),*]);
            }
        )+

        #[test]
        fn every_mutant_has_its_model_and_its_trace() {
            let tested = [$($(Mutant::$mutant,)*)+].into_iter().collect::<HashSet<_>>();
            for mutant in Mutant::ALL {
                assert!(tested.contains(mutant), "no model is run with {mutant:?}");
                assert!(TRACES.contains(&heading(*mutant)), "no trace of {mutant:?}");
            }
            assert_eq!(TRACES.matches("\n## ").count(), Mutant::ALL.len(), "a trace of what is no mutant any more");
        }
    };
}

models! {
    model_lease: LEASE,
        broken by [NoDeadline, DeadlineFromReply, NoMargin, NoFence, FenceOnWritesOnly, DeletesWithoutCompare];
    model_lease_of_three: LeaseModel { ttls: &[20, 20, 20], runs: 1, ..LEASE }, broken by [];
    model_restart: LeaseModel { restarts: 1, lag: 0, ..LEASE }, broken by [CounterLost];
    model_renewals: LeaseModel { renewals: &[40, 20], runs: 1, writes: false, until: 60, lag: 0, ..LEASE },
        broken by [RenewalShortens, RenewalAdds, RenewalResurrects];
    model_abandoned_acquires: LeaseModel { gives_up: true, writes: false, until: 20, lag: 0, ..LEASE },
        broken by [NoTombstone];
    model_repeated_requests:
        LeaseModel { gives_up: true, repeats: 2, runs: 1, writes: false, until: 30, lag: 0, ..LEASE },
        broken by [];
    model_late_confirms:
        LeaseModel { waits: true, gives_up: true, ttls: &[20; 3], runs: 1, writes: false, until: 30, lag: 0, ..LEASE },
        broken by [];
    model_different_ttls: LeaseModel { ttls: &[40, 20], runs: 1, until: 60, ..LEASE }, broken by [AskerCutsHolder];
    model_clock_set_back:
        LeaseModel { set_back: 20, renewals: &[40, 20], runs: 1, writes: false, until: 40, lag: 0, ..LEASE },
        broken by [LastTermCuts, NotRepaired];
    model_queue: QUEUE, broken by [BelievesTheOffer, NoStandBy, SleepsToTheEnd, RefreshKeepsAll];
    model_queue_with_two_hung: QueueModel { hangs: 2, losses: 0, until: 60, ..QUEUE }, broken by [];
    model_queue_of_four: QueueModel { processes: 4, until: 40, losses: 0, ..QUEUE },
        broken by [StandByNotRelieved, LeavesAFreeName];
    model_queue_again: QueueModel { runs: 2, until: 40, hangs: 0, gives_up: false, ..QUEUE }, broken by [LeavesAtGrant];
    model_queue_cut_off: QueueModel { cuts: 2, hangs: 0, losses: 0, until: 60, ..QUEUE }, broken by [NotAskedAfterACut];
    model_kept_names: QueueModel { keeps: 1, hangs: 1, losses: 0, until: 60, gives_up: false, ..QUEUE },
        broken by [KeepForgotten, KeptForAnyone];
    model_kept_names_and_losses: QueueModel { processes: 2, keeps: 1, runs: 2, until: 80, ..QUEUE }, broken by [];
    model_queue_clock_set_back: QueueModel {
        processes: 2,
        runs: 2,
        keeps: 1,
        set_back: 80,
        until: 90,
        losses: 0,
        gives_up: false,
        ..QUEUE
    }, broken by [];
    // One process is enough for this mutant.
    model_clock_set_back_while_kept:
        QueueModel { processes: 1, runs: 2, keeps: 1, set_back: 80, until: 90, hangs: 0, losses: 0, ..QUEUE },
        broken by [KeptNotRepaired];
    model_late_renewals_of_kept_names:
        LeaseModel { keeps: 10, renewals: &[20], runs: 1, writes: false, until: 40, lag: 0, ..LEASE },
        broken by [KeptIsRenewed];
    model_readers_and_a_writer: MODES, broken by [FirstReaderFrees, ReadersPassWriters, OneIsTold];
    model_readers_and_two_writers: ModesModel {
        kinds: &[Kind::Shared, Kind::Shared, Kind::Exclusive, Kind::Exclusive],
        hangs: 0,
        until: 40,
        ..MODES
    }, broken by [];
    model_readers_renew: ModesModel { renewals: 1, ..MODES }, broken by [RenewsAll];
    model_downgrades: ModesModel {
        kinds: &[Kind::Shared, Kind::Exclusive, Kind::Exclusive],
        changes: true,
        ..MODES
    }, broken by [DowngradeLetsWriterIn, DowngradeTellsNobody];
    model_upgrades: ModesModel {
        kinds: &[Kind::Upgradable, Kind::Upgradable, Kind::Exclusive],
        until: 40,
        changes: true,
        ..MODES
    }, broken by [TwoUpgraders, UpgradeOfNothing, UpgradeKeepsToken];
    model_late_upgrades: ModesModel {
        kinds: &[Kind::Upgradable, Kind::Exclusive],
        changes: true,
        until: 20,
        ..LATE_MODES
    }, broken by [AbandonedUpgradeEndsAll];
    model_repeated_upgrades: ModesModel {
        kinds: &[Kind::Upgradable, Kind::Exclusive],
        changes: true,
        repeats: 1,
        until: 0,
        ..LATE_MODES
    }, broken by [ReplacedIsNotRetired];
    model_late_downgrades: ModesModel { kinds: &[Kind::Shared, Kind::Exclusive], changes: true, ..LATE_MODES },
        broken by [];
    model_permits: ModesModel { kinds: &[Kind::Permits(1, 2), Kind::Permits(1, 2), Kind::Permits(2, 2)], ..MODES },
        broken by [SmallPassesLarge, CancelLeavesPermit];
    model_permits_of_two_limits:
        ModesModel { kinds: &[Kind::Permits(1, 2), Kind::Permits(1, 2), Kind::Permits(2, 3)], hangs: 0, ..MODES },
        broken by [];
    model_late_permits: ModesModel { kinds: &[Kind::Permits(1, 2), Kind::Permits(2, 3)], ..LATE_MODES },
        broken by [];
    model_acquire_all: ACQUIRE_ALL, broken by [CallersOrder, KeepsWhatItGot, LeavesPartBehind];
    model_acquire_all_again: AcquireAllModel { runs: 2, gives_up: false, losses: 0, ..ACQUIRE_ALL }, broken by [];
    model_acquire_all_shared: AcquireAllModel {
        wanted: &[
            &[(2, true), (0, true), (1, false)],
            &[(1, true), (2, false), (0, true)],
            &[(0, false), (2, true), (1, true)],
        ],
        ..ACQUIRE_ALL
    }, broken by [];
    model_joins: JoinsModel { readers: 4, until: 60, renewals: 1, mutant: None },
        broken by [UnboundedJoins, JoinsAfterTheLast, KeptAfterTheLast, LeaseFromTheJoin];
    model_passes: PASSES,
        broken by [PassKeepsToken, GrantReservesNothing, PassesWhatIsReleased, PassArmsAnew, PassesForEver];
    model_passes_and_losses_of_data: PassModel { crashes: 1, set_backs: 0, ..PASSES }, broken by [TokensAheadOfTheClock];
    model_zookeeper_session: SessionModel { until: 90, joins: false, mutant: None },
        broken by [BeatProvesItself, BeatsSpacedBySending];
    model_zookeeper_standalone: SessionModel { until: 90, joins: true, mutant: None },
        broken by [StandaloneForEver];
    model_zookeeper_tokens: ZOOKEEPER_TOKENS,
        broken by [ZookeeperCreatedOnly, TrustsARestartedServer, NoRoomForPasses, StatusGuessesTheZxid];
    model_zookeeper_token_offset: TokenOffsetModel {
        floors: &[0, 200], passes: 0, raises: 1, restarts: 0, ..ZOOKEEPER_TOKENS
    }, broken by [OffsetForFloorsOnly, KnownOffsetIsEnough, OffsetNotKnownBefore, OffsetNotInTheDirectory];
    model_zookeeper_raised_holds: TokenOffsetModel {
        floors: &[0, 0], holds: 3, raises: 0, raised_holds: 1, restarts: 0, ..ZOOKEEPER_TOKENS
    }, broken by [RaiseWithoutACheck];
    model_zookeeper_watched_offset: TokenOffsetModel {
        floors: &[0, 200], holds: 2, passes: 0, deletions: 0, raises: 1, watches: true, ..ZOOKEEPER_TOKENS
    }, broken by [WatchIsNotAsked];
    model_zookeeper_modes: ZOOKEEPER_MODES, broken by [DowngradeOfTheFirstOnly];
    model_zookeeper_readers: ZookeeperModesModel {
        kinds: &[Kind::Exclusive, Kind::Shared, Kind::Shared],
        ..ZOOKEEPER_MODES
    }, broken by [
        SharersTakeTheirCreation,
        SharersTakeTheList,
        CreatedBesideADowngrade,
        ReadersHeedThoseBehind,
        DowngradeUnnoticed
    ];
    model_zookeeper_writers: ZookeeperModesModel {
        kinds: &[Kind::Exclusive, Kind::Exclusive, Kind::Shared],
        ..ZOOKEEPER_MODES
    }, broken by [DowngradeByNewNode];
    model_zookeeper_readers_in_order: ZookeeperModesModel {
        kinds: &[Kind::Shared, Kind::Exclusive, Kind::Shared, Kind::Shared],
        in_order: true,
        losses: 0,
        ..ZOOKEEPER_MODES
    }, broken by [];
    model_zookeeper_permits: ZookeeperModesModel {
        kinds: &[Kind::Permits(3, 3), Kind::Permits(1, 3), Kind::Permits(1, 3), Kind::Permits(1, 3)],
        in_order: true,
        losses: 0,
        ..ZOOKEEPER_MODES
    }, broken by [EntersUnnoticed];
    model_zookeeper_permits_of_two_limits: ZookeeperModesModel {
        kinds: &[Kind::Permits(1, 2), Kind::Permits(3, 3), Kind::Permits(1, 3)],
        ..ZOOKEEPER_MODES
    }, broken by [PassesLargePermits];
    model_zookeeper_minimum: ZOOKEEPER_MINIMUM,
        broken by [ComparesTwoClocks, ReleasesBeforeKeeping, DeletesAnyKept, KeptWithoutAClock];
    model_postgres_lease: POSTGRES_LEASE, broken by [DecidesBySnapshot, EachGrantUnmarks];
    model_postgres_lease_that_is_given_up: PostgresLeaseModel { runs: &[2, 1], gives_up: true, ..POSTGRES_LEASE },
        broken by [TombstonesUnread, QueuesTheDead, BuriesBySnapshot];
    model_postgres_lease_and_a_crash: PostgresLeaseModel { crashes: 1, ..POSTGRES_LEASE }, broken by [PlacesAreCounted];
    model_row_lock_tokens: TokenModel { holds: 6, mutant: None }, broken by [RolledBackToken];
}

fn examine<M: ProtocolModel>(name: &str, model: &M, mutants: &[Mutant]) {
    let checked = check(model).unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!(
        "{name}: states={} seconds={:.1} bounds={model:?}",
        checked.states, checked.seconds
    );
    let mut other = String::new();
    for mutant in mutants {
        let trace = shortest_trace(&model.with(*mutant), mutant.breaks());
        let trace = trace.unwrap_or_else(|| panic!("{name}: {mutant:?} does not break {:?}", mutant.breaks()));
        println!(
            "{name}: {mutant:?} breaks {:?} in {} steps",
            mutant.breaks(),
            trace.len()
        );
        let section = format!("{}\n{}", heading(*mutant), numbered(&trace));
        let documented = format!("{TRACES}\n").contains(&format!("{section}\n"));
        if !documented {
            other += &section;
        }
    }
    assert!(
        other.is_empty(),
        "the traces in traces.md are other ones; put these in their place:\n{other}"
    );
}

fn heading(mutant: Mutant) -> String {
    format!("\n## {mutant:?} breaks \"{}\"\n", mutant.breaks())
}
