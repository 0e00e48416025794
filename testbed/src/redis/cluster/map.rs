//! What the nodes of a cluster say of its slots.

use crate::redis::command::{Reply, call};

/// Whether all nodes that answer know all the others, see all slots served by the same masters, and the replicas have their
/// masters' data.
pub(super) fn serves(ports: &[u16]) -> bool {
    let mut answered = 0;
    let agree = ports.iter().all(|port| {
        let Ok(info) = call(*port, &["CLUSTER", "INFO"]) else {
            return true;
        };
        answered += 1;
        let (info, known) = (info.text(), format!("cluster_known_nodes:{}\r", ports.len()));
        let is_well = info.contains("cluster_state:ok") && info.contains(&known) && !info.contains("_pfail:1");
        is_well && (role(*port).as_deref() != Some("slave") || is_linked(*port))
    });
    let mut known = ports.iter().filter_map(|port| owners(*port));
    let first = known.next();
    agree && answered > 0 && known.all(|owners| Some(owners) == first)
}

/// Whether a replica has its master's data.
fn is_linked(port: u16) -> bool {
    call(port, &["INFO", "replication"]).is_ok_and(|info| info.text().contains("master_link_status:up"))
}

/// "master" or "slave".
pub(super) fn role(port: u16) -> Option<String> {
    Some(call(port, &["ROLE"]).ok()?.text().lines().next()?.to_owned())
}

/// The index of the node that serves a slot and says so itself.
pub(super) fn master_of(ports: &[u16], slot: u16) -> Option<usize> {
    let claims = |port: u16| owner_of(port, slot) == Some(port) && role(port).as_deref() == Some("master");
    let claimants = ports.iter().enumerate().filter(|(_, port)| claims(**port));
    // A former master claims its slots until it hears of its successor, whose configuration epoch is higher.
    let by_epoch = claimants.filter_map(|(node, port)| Some((epoch(*port)?, node)));
    by_epoch.max().map(|(_, node)| node)
}

/// The configuration epoch of this node, if it answers.
fn epoch(port: u16) -> Option<u64> {
    let info = call(port, &["CLUSTER", "INFO"]).ok()?.text();
    let line = info.lines().find_map(|line| line.strip_prefix("cluster_my_epoch:"))?;
    line.trim().parse().ok()
}

/// The port of a slot's master, as this node says, if it says anything.
fn owner_of(port: u16, slot: u16) -> Option<u16> {
    let ranges = owners(port)?;
    let range = ranges
        .iter()
        .find(|(first, last, _)| (*first..=*last).contains(&slot))?;
    Some(range.2)
}

/// The first and the last slot of each range and the port of its master, as this node says, if it says anything.
fn owners(port: u16) -> Option<Vec<(u16, u16, u16)>> {
    let Ok(Reply::List(ranges)) = call(port, &["CLUSTER", "SLOTS"]) else {
        return None;
    };
    let number = |reply: &Reply| match reply {
        Reply::Number(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let range = |range: &Reply| match range {
        Reply::List(parts) => match &parts[..] {
            [first, last, Reply::List(master), ..] => Some((number(first)?, number(last)?, number(master.get(1)?)?)),
            _ => None,
        },
        _ => None,
    };
    let mut owners = ranges.iter().map(range).collect::<Option<Vec<_>>>()?;
    owners.sort_unstable();
    Some(owners)
}
