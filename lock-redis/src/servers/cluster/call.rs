//! A request on its way through a cluster: it is sent again wherever its slot has moved to.

use lock_core::Error;
use lock_kit::claims::InFlight;
use redis::Value;

use super::patience::Patience;
use super::slots::{Redirect, redirect};
use super::{Cluster, unserved};
use crate::connection::{Reply, Room};
use crate::error::Failure;
use crate::names::Keys;
use crate::protocol::arguments::texts;
use crate::protocol::{ACQUIRE, Ask, Script};
use crate::servers::Route;

impl Cluster {
    pub(in crate::servers) async fn run(
        &self,
        on: &mut Route,
        script: &'static Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Reply {
        self.call(on, &Call::of(script, keys, arguments), None).await
    }

    pub(in crate::servers) async fn ask(
        &self,
        on: &mut Route,
        keys: &Keys,
        asking: &Ask<'_>,
        in_flight: &mut InFlight<'_, u64>,
        room: &mut Room,
    ) -> Reply {
        room.sending();
        let keys_of_lock = keys.all();
        let inbox = asking.inbox();
        let is_heard = inbox.is_none_or(|inbox| on.is_listening(inbox));
        if !is_heard && !asking.may_have_entry() {
            // Mostly the name is free, and nobody has to be woken.
            let asking = asking.without_queue();
            let arguments = asking.arguments.all();
            let arguments = texts(&arguments);
            let call = Call {
                is_fresh: asking.is_fresh,
                ..Call::of(&ACQUIRE, &keys_of_lock, &arguments)
            };
            match self.call(on, &call, Some(in_flight)).await {
                Ok(Value::Array(_taken)) => {}
                reply => return reply,
            }
        }
        let arguments = asking.arguments.all();
        let arguments = texts(&arguments);
        let call = Call {
            inbox,
            is_fresh: asking.is_fresh,
            ..Call::of(asking.script(), &keys_of_lock, &arguments)
        };
        self.call(on, &call, Some(in_flight)).await
    }

    /// Sends a call to where its slot is, until somebody has executed it or nobody has for too long.
    async fn call(&self, on: &mut Route, call: &Call<'_>, mut in_flight: Option<&mut InFlight<'_, u64>>) -> Reply {
        let mut moves_to = |generation| {
            if let Some(in_flight) = &mut in_flight {
                in_flight.moves_to(generation);
            }
        };
        let mut patience = Patience::new(self.0.config.connect_timeout());
        loop {
            call.check_delay(on)?;
            let mut reply = self.send(on, call).await;
            let mut unreached = None;
            if let Some(Redirect::Ask(host, port)) = cluster_error(&reply)
                && let Ok(node) = self.0.node(&(host.unwrap_or_else(|| on.host()), port))
            {
                match node.requests.session(patience.over()).await {
                    Ok(session) => {
                        let asked = Route::to(node, session, on.slot);
                        call.check_delay(&asked)?;
                        moves_to(asked.generation());
                        reply = (asked.connection)
                            .run_asking(&asked.session, call.script, call.keys, call.arguments)
                            .await;
                        if cluster_error(&reply).is_none() {
                            *on = asked;
                        }
                    }
                    Err(why) => unreached = Some(why),
                }
            }
            let Some(redirect) = cluster_error(&reply) else {
                return reply;
            };
            match redirect {
                Redirect::Moved(host, port) => {
                    let learned = self.0.learn(on.slot, &(host.unwrap_or_else(|| on.host()), port));
                    learned.map_err(Failure::NotExecuted)?;
                    patience.note_moved();
                }
                // A node that has left the cluster does not say who has the slot.
                Redirect::Later if patience.looks_elsewhere() => {
                    let version = self.0.map.lock().version();
                    tokio::select! {
                        _ = self.0.refresh(version) => {}
                        () = patience.over() => {}
                    }
                }
                _ => {}
            }
            if !patience.pause().await {
                return Err(with_cause(unserved(), unreached, reply));
            }
            match self.route(on.slot, patience.over()).await {
                Ok(route) => *on = route,
                Err(error) if self.0.map.lock().master(on.slot).is_none() => {
                    return Err(with_cause(error, unreached, reply));
                }
                Err(error) => return Err(Failure::NotExecuted(error)),
            }
            moves_to(on.generation());
        }
    }

    async fn send(&self, on: &Route, call: &Call<'_>) -> Reply {
        if let (Some(inbox), Some(node)) = (call.inbox, &on.node) {
            match node.wake_ups.listen(inbox).await {
                Err(Failure::NoReply(why)) => return Err(Failure::NotExecuted(why)),
                listening => listening?,
            }
        }
        tokio::select! {
            biased;
            reply = on.connection.run(&on.session, call.script, call.keys, call.arguments) => reply,
            never = self.watch(on) => match never {},
        }
    }
}

/// The parts of a script request that do not depend on the node.
pub(super) struct Call<'a> {
    pub(super) script: &'static Script,
    pub(super) keys: &'a [&'a str],
    pub(super) arguments: &'a [&'a str],
    /// The channel that has to be subscribed to before.
    pub(super) inbox: Option<&'a str>,
    /// True if it asks for a fresh grant. A master in its delay must not even see it: its writes, and their undo, would
    /// keep a live hold from being put back.
    pub(super) is_fresh: bool,
}

impl<'a> Call<'a> {
    pub(super) fn of(script: &'static Script, keys: &'a [&'a str], arguments: &'a [&'a str]) -> Self {
        Self {
            script,
            keys,
            arguments,
            inbox: None,
            is_fresh: false,
        }
    }

    pub(super) fn check_delay(&self, on: &Route) -> Result<(), Failure> {
        match on.delay_error().filter(|_| self.is_fresh) {
            Some(why) => Err(Failure::NotExecuted(why)),
            None => Ok(()),
        }
    }
}

/// An error without a cause of its own gets one: why the node that is to have the slot was not reached, or else the last reply.
fn with_cause(error: Error, unreached: Option<Error>, reply: Reply) -> Failure {
    Failure::NotExecuted(match (unreached, reply) {
        _ if error.cause().is_some() => error,
        (Some(why), _) => error.with_source(why),
        (None, Err(Failure::Rejected(why))) => error.with_source(why),
        (None, _) => error,
    })
}

/// Why a node did not serve a request, if that is for the cluster's sake.
fn cluster_error(reply: &Reply) -> Option<Redirect> {
    match reply {
        Err(Failure::Rejected(error)) => redirect(error),
        _ => None,
    }
}
