//! Forked processes with lockers of their own: none repeats an id of another, whatever its parent did before the fork.

use std::collections::HashSet;

use polylock::backend::HolderId;

use crate::child::report;
use crate::fork::{FINE, fork_off, in_a_process_of_its_own, wait_for};

#[test]
fn forked_processes_mint_different_ids() {
    const IDS: usize = 16;
    let mint = || (0..IDS).for_each(|_| report(&HolderId::random().to_string()));
    let fork_twice = |_: &str| {
        // What a generator remembers, it does by now.
        mint();
        for _ in 0..2 {
            wait_for(fork_off(|| {
                mint();
                Ok(())
            }));
        }
    };
    in_a_process_of_its_own("", fork_twice, |reports| {
        let ids: HashSet<_> = reports.iter().filter(|report| *report != FINE).collect();
        assert_eq!((reports.len(), ids.len()), (3 * IDS + 2, 3 * IDS), "{reports:#?}");
    });
}

#[cfg(any(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod on_servers {
    use std::time::Duration;

    use testbed::assert_safe;
    use tokio::time::sleep;

    use super::*;
    use crate::fork::{current_thread, in_a_process_with};

    /// Long enough for one worker to ask while the other one holds the lock.
    const WORK: Duration = Duration::from_millis(300);

    #[cfg(feature = "redis")]
    #[test]
    fn forked_workers_exclude_each_other_on_redis() {
        let server = testbed::Redis::new().start();
        in_a_process_with(server, "", |url| fork_workers(url, Before::Used), all_had_it);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn forked_workers_exclude_each_other_on_mysql() {
        let server = testbed::MariaDb::new().start();
        in_a_process_with(server, "", |url| fork_workers(url, Before::Used), all_had_it);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn forked_workers_exclude_each_other_on_postgres() {
        let server = testbed::Postgres::new().start();
        in_a_process_with(server, "", |url| fork_workers(url, Before::Used), all_had_it);
    }

    /// The driver has one I/O thread for the whole process. Once it runs, a forked process can make no connection.
    #[cfg(feature = "zookeeper")]
    #[test]
    fn forked_workers_exclude_each_other_on_zookeeper() {
        let server = testbed::ZooKeeper::new().start();
        in_a_process_with(server, "", |url| fork_workers(url, Before::Made), all_had_it);
    }

    /// What a process has done with a locker before it forks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Before {
        Made,
        Used,
    }

    fn fork_workers(url: &str, before: Before) {
        let (runtime, locks) = (current_thread(), polylock::connect_lazy(url).expect("a URL"));
        // On this very thread, whose generators the workers get a copy of.
        let _minted = HolderId::random();
        if before == Before::Used {
            runtime.block_on(work(&locks)).expect("the server answers");
        }
        let worker = || {
            let locks = polylock::connect_lazy(url).expect("a URL");
            current_thread()
                .block_on(work(&locks))
                .map_err(|error| format!("{error:?}"))
        };
        let workers = [fork_off(worker), fork_off(worker)];
        workers.into_iter().for_each(wait_for);
    }

    async fn work(locks: &polylock::Locker) -> polylock::Result<()> {
        let guard = locks.lock("one").acquire().await?;
        report(&format!("in {}", guard.token()));
        sleep(WORK).await;
        report(&format!("out {}", guard.token()));
        guard.release().await.map(drop)
    }

    fn all_had_it(reports: Vec<String>) {
        let workers = reports.iter().filter(|report| *report == FINE).count();
        assert_eq!(workers, 2, "{reports:#?}");
        // All write to one pipe, in the order in which they come and go.
        let moves = reports.iter().filter_map(|report| report.split_once(' '));
        let moves: Vec<_> = moves.filter(|(what, _)| ["in", "out"].contains(what)).collect();
        assert!(moves.len() >= 4, "{reports:#?}");
        for pair in moves.chunks(2) {
            let alone = pair.len() == 2 && (pair[0].0, pair[1].0) == ("in", "out") && pair[0].1 == pair[1].1;
            assert_safe!(alone, "two are in at a time: {reports:#?}");
        }
        let different: HashSet<_> = moves.iter().map(|(_, token)| token).collect();
        assert_eq!(2 * different.len(), moves.len(), "{reports:#?}");
    }
}
