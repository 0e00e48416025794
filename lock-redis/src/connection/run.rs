//! Scripts, as they are run on a connection.

use std::borrow::Cow;

use lock_core::Result;
use redis::{RedisResult, ServerErrorKind, Value};

use super::Reply;
use super::session::Session;
use super::state::Shared;
use crate::error::{Failure, is_promoted, is_read_only, is_reply};
use crate::protocol::{Script, ScriptForm};

impl Shared {
    /// Runs a script, and loads it if the server does not know it.
    pub(super) async fn run(&self, on: &Session, script: &Script, keys: &[&str], args: &[&str]) -> Reply {
        let mut reply = self.run_once(on, script, keys, args, false).await;
        if is_unknown(&reply) {
            reply = self.run_once(on, script, keys, args, true).await;
        }
        self.note(on, &reply);
        reply
    }

    /// The same, but a script that the server does not know is not executed, unless its text is sent, too. The caller has to
    /// [note](Self::note) the reply.
    pub(super) async fn run_once(
        &self,
        on: &Session,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        with_text: bool,
    ) -> Reply {
        let (form, args) = &self.form(on, script, args);
        let command = match with_text || on.take_unloaded(form.hash()) {
            true => form.run_with_text(keys, args),
            false => form.run(keys, args),
        };
        self.read(on.send(&command).await)
    }

    /// A script as it is run on this session, and its arguments.
    pub(super) fn form<'a>(
        &self,
        on: &'a Session,
        script: &'a Script,
        args: &'a [&'a str],
    ) -> (&'a ScriptForm, Cow<'a, [&'a str]>) {
        match (on.data(), script.checked()) {
            (Some(data), Some(checked)) => (checked.form(self.wakes), [args, &[data]].concat().into()),
            _ => (script.form(self.wakes), args.into()),
        }
    }

    /// The reply to a request, as soon as it is there.
    pub(super) async fn reply(&self, on: &Session, sending: impl Future<Output = Result<RedisResult<Value>>>) -> Reply {
        let reply = self.read(sending.await);
        self.note(on, &reply);
        reply
    }

    fn read(&self, reply: Result<RedisResult<Value>>) -> Reply {
        reply
            .map_err(Failure::NoReply)?
            .map_err(|error| match is_reply(&error) {
                true => Failure::Rejected(error),
                false => Failure::NoReply(self.lock_error(error)),
            })
    }

    /// Ends the use of a connection over which a request failed, unless the server only refused it.
    pub(super) fn note(&self, on: &Session, reply: &Reply) {
        match reply {
            // Another connection may lead to the primary, or knows since when this server is it.
            Err(Failure::Rejected(error)) if is_read_only(error) || is_promoted(error) => {
                self.end(on, &self.lock_error(error.clone()));
            }
            Err(Failure::NoReply(why)) => self.end(on, why),
            _ => {}
        }
    }
}

/// Whether the server does not know the script.
pub(super) fn is_unknown(reply: &Reply) -> bool {
    matches!(reply, Err(Failure::Rejected(error)) if error.kind() == ServerErrorKind::NoScript.into())
}
