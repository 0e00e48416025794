//! The guarantees that a backend's capabilities decide.

use std::time::Duration;

use super::Capabilities;
use crate::guarantee::{Guarantee, Verdict, written};

impl Capabilities {
    /// All guarantees with the parameters of this backend: the most permits, and the shortest TTL.
    pub(crate) fn guarantees(&self) -> [Guarantee; 16] {
        // A semaphore of 1 is a lock.
        Guarantee::all(self.permits.max(2), self.shortest_ttl)
    }

    /// The verdict on a guarantee that follows from these capabilities. `None` if it depends on the server.
    pub(crate) fn verdict(&self, guarantee: Guarantee) -> Option<Verdict> {
        let (is_kept, because, instead) = match guarantee {
            Guarantee::ServerCrash
            | Guarantee::Failover
            | Guarantee::Partition
            | Guarantee::ClockStep
            | Guarantee::ConnectionLoss
            | Guarantee::NoEviction => return None,
            Guarantee::Fifo => (
                self.fifo,
                "waiters are served in any order",
                "use Redis, ZooKeeper, or PostgreSQL with ?strategy=lease",
            ),
            Guarantee::DurableTokens => (
                self.durable_tokens,
                "tokens start again if the server loses its data",
                "use Redis, MySQL or PostgreSQL, or set a token floor after a loss of data",
            ),
            Guarantee::Shared => (self.shared, "there are no shared holds", "use an exclusive lock"),
            Guarantee::Upgradable => (
                self.upgradable,
                "there are no upgradable readers",
                "use Redis, or acquire the write side at once",
            ),
            Guarantee::Downgrade => (
                self.downgrade,
                "a writer cannot become a reader",
                "release it and acquire the read side, or use Redis, ZooKeeper, or PostgreSQL or MySQL with ?strategy=lease",
            ),
            Guarantee::Permits(most) => return Some(permits(most, self.permits)),
            Guarantee::FixedLease => (
                self.fixed_lease,
                "all holds are renewed",
                "leave out `fixed_lease`, or use another backend",
            ),
            Guarantee::Extend => (
                self.extend,
                "a hold cannot be extended",
                "choose a longer TTL, or use Redis, MySQL, or PostgreSQL with ?strategy=lease",
            ),
            Guarantee::MinimumHold => (
                self.minimum_hold,
                "there is no minimum hold",
                "leave out `hold_at_least`, or use Redis, ZooKeeper, or PostgreSQL or MySQL with ?strategy=lease",
            ),
            Guarantee::Ttl(ttl) => return Some(within(ttl, self)),
        };
        Some(match is_kept {
            true => Verdict::Yes,
            false => Verdict::no(because, instead),
        })
    }
}

fn permits(required: u32, most: u32) -> Verdict {
    match most {
        _ if required <= most => Verdict::Yes,
        0 | 1 => Verdict::no(
            "there are no semaphores",
            "use Redis, ZooKeeper, or PostgreSQL or MySQL with ?strategy=lease",
        ),
        most => Verdict::no(
            format!("a semaphore has at most {most} permits"),
            "choose a lower limit",
        ),
    }
}

fn within(ttl: Duration, capabilities: &Capabilities) -> Verdict {
    let Capabilities {
        shortest_ttl,
        longest_ttl,
        ..
    } = capabilities;
    if ttl < *shortest_ttl {
        let because = format!("the shortest TTL is {}", written(*shortest_ttl));
        return Verdict::no(because, "choose a longer TTL, or another server");
    }
    if ttl > *longest_ttl {
        let because = format!("the longest TTL is {}", written(*longest_ttl));
        return Verdict::no(because, "choose a shorter TTL, or another server");
    }
    Verdict::Yes
}
