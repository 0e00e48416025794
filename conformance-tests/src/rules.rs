//! The sentences of the contract, as `lock-core` documents them, by the topics of the cases that check them.

/// The rule that the cases of this topic check. A test compares it with the docs of `lock-core`.
pub(crate) fn of(topic: &str) -> &'static str {
    match topic {
        "exclusion" | "contention" => {
            "All who hold a name at a time fit together: one exclusive holder alone, or readers, or permits within their limit."
        }
        "waiting" => "Acquires the name, or returns that it is taken.",
        "abandon" => "After abandon or a release, no request of that holder id may take effect.",
        "cancel" | "dropping" => {
            "A dropped acquire is undone in the background, and a dropped guard is released there."
        }
        "tokens" | "adopted_tokens" => {
            "Each grant's token is larger than the tokens of all earlier grants of that name, also after expiry, release, rollback and \
             deletion of the name's state."
        }
        "any_floor" => "The grant's token must be larger than this one, if there is one.",
        "belief" => {
            "With the connection at hand, call AcquireRequest::sending just before each request that may grant or leave a queue entry."
        }
        "expiry" => "Each holder expires by itself.",
        "renewal" | "extend" => "Keeps the hold for at least ttl from now.",
        "changing" => {
            "No request ever shortens a hold at the server: its expiry only moves forward, so that late, repeated and reordered requests are harmless."
        }
        "release" => "Releasing a lock you no longer hold is an error and never affects the new holder.",
        "loss" => "A guard that was lost stays lost.",
        "dead_clients" => {
            "If a process dies, its lock frees itself within the TTL, or within a longer minimum hold or extension."
        }
        "outages" | "errors" => "After a timeout, a reset or a dropped connection, the request may have taken effect.",
        "maximum" => "Lock::hold_at_most ends a hold that lasts too long, and frees its name",
        "minimum" | "keeping" => "Lock::hold_at_least keeps a name taken for a minimum time",
        "passes" | "passing_on" => {
            "Passes the hold on to the next waiter of this process without asking the server. The new hold has the same holder id, the next \
             token that the grant reserved, and the lease next, which inherits the rest of this hold's lease."
        }
        "readers" | "readers_waiting" | "permits_waiting" => {
            "A request is granted if it fits with all who hold the name and all live queue entries before it, each of which must fit in turn."
        }
        "readers_expiry" | "permits_expiry" => "A renewal prolongs the hold of its own holder id and no other.",
        "permits" => "A request for several permits is one hold: it gets all of them or none.",
        "downgrade" => {
            "Makes this exclusive hold one in Mode::Shared, in one step: under the same holder id and token, for at least ttl from now."
        }
        "upgrade" => "An exclusive request may replace a hold in Mode::Upgradable.",
        "undeclared" => "A backend keeps Mode::Exclusive, and the other modes only if its Capabilities declare them.",
        "names" => "The lock with this name, which may be acquired any number of times.",
        "multi" => "Releases all locks at the same time, and reports whether all were held until now.",
        "places" => "Tasks of one process that wait for the same name share one queue entry at the server.",
        "reentry" => {
            "An acquire with the key of a live hold of the same Locker succeeds at once, without asking the server."
        }
        "runtimes" => {
            "If another runtime takes over, core drops the future and makes the same call again: all three are idempotent."
        }
        "ending_runtimes" => {
            "On a runtime that is shutting down, where each new task is dropped at once, a call returns."
        }
        "status" | "status_details" => "Returns the holders of the name, as the server sees them.",
        "list" => "A name that is held during all pages is in one of them at least, whatever else changes meanwhile.",
        "revoke" | "revoke_beside" => "Ends the hold of this name with this token, whoever has it, and no other hold.",
        "following" => {
            "Returns the status, and a Change that completes when the name may have changed hands since this answer."
        }
        "elections" | "elections_beside" | "elections_loss" => {
            "An election is a lock: the leader holds it, the fencing token is the term, and the label is the leader's value."
        }
        "guarantees" => "A backend answers Verdict::Yes only if it passes the conformance cases of the guarantee's id.",
        _ => "",
    }
}
