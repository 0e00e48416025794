//! `polylock status`: who holds a lock, as the server sees it.

use std::io::{self, Write};
use std::time::SystemTime;

use polylock::backend::{HolderStatus, LockStatus, WaiterStatus};
use polylock::{Locker, Mode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cli::{ServerArgs, StatusArgs};
use crate::exit::{Code, Failure};
use crate::server::{self, SHUTDOWN};

/// Prints the status of each lock. Returns the code to exit with: 1 if the only lock is free.
///
/// # Errors
/// If the server cannot be asked.
pub(crate) async fn status(arguments: &StatusArgs, server: &ServerArgs) -> Result<Code, Failure> {
    let locks = server::config(server)?.connect_lazy()?;
    server::connect(&locks, server.connect_timeout).await?;
    let shown = show(&locks, arguments).await;
    // Without this, marks of a quorum's client would stay at its nodes for half a minute.
    let _ = timeout(SHUTDOWN, locks.shutdown()).await;
    shown
}

async fn show(locks: &Locker, arguments: &StatusArgs) -> Result<Code, Failure> {
    loop {
        let mut all = Vec::new();
        for name in &arguments.lock {
            all.push((name.as_str(), locks.status(name).await?));
        }
        print(&all, arguments.json)?;
        match (arguments.watch, all.as_slice()) {
            (Some(pause), _) => sleep(pause).await,
            (None, [(_, only)]) if !only.is_held() => return Ok(Code::ONE),
            (None, _) => return Ok(Code::SUCCESS),
        }
    }
}

fn print(all: &[(&str, LockStatus)], json: bool) -> Result<(), Failure> {
    let lines = all.iter().map(|(name, status)| match json {
        true => as_json(name, status).to_string() + "\n",
        false => as_text(name, status),
    });
    let mut output = io::stdout().lock();
    let printed = output
        .write_all(lines.collect::<String>().as_bytes())
        .and_then(|()| output.flush());
    printed.map_err(|error| Failure::os("cannot write to standard output", &error))
}

/// One line for each holder. What the server does not know is left out.
fn as_text(name: &str, status: &LockStatus) -> String {
    let name = shown(name);
    let waiting = status
        .waiting
        .map(|waiting| format!("  waiting {waiting}"))
        .unwrap_or_default();
    if !status.is_held() {
        return format!("{name}  free{waiting}\n");
    }
    let line = |holder: &HolderStatus| {
        let mut parts = vec![name.clone(), holder.mode.map_or_else(|| "held".to_owned(), mode_text)];
        parts.extend(holder.label.as_deref().map(shown));
        parts.extend(holder.token.map(|token| format!("token {token}")));
        parts.extend(
            holder
                .since
                .map(|since| format!("since {}", humantime::format_rfc3339_seconds(since))),
        );
        parts.extend(
            holder
                .expires_in
                .map(|rest| format!("expires in {:.1}s", rest.as_secs_f64())),
        );
        parts.join("  ") + &waiting + "\n"
    };
    status.holders.iter().map(line).collect()
}

/// The text in one line.
pub(crate) fn shown(text: &str) -> String {
    match text.chars().any(char::is_control) {
        true => format!("{text:?}"),
        false => text.to_owned(),
    }
}

/// The same fields always. `null`: the server does not know it.
fn as_json(name: &str, status: &LockStatus) -> Value {
    let holder = |holder: &HolderStatus| {
        json!({
            "label": holder.label.as_deref(),
            "mode": holder.mode.map(mode_name),
            "permits": holder.mode.and_then(permits),
            "token": holder.token.map(|token| token.to_string()),
            "since": holder.since.map(time),
            "expires_in_ms": holder.expires_in.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)),
            "id": holder.id.as_deref(),
        })
    };
    let waiter = |waiter: &WaiterStatus| {
        json!({
            "label": waiter.label.as_deref(),
            "mode": waiter.mode.map(mode_name),
            "permits": waiter.mode.and_then(permits),
            "since": waiter.since.map(time),
        })
    };
    json!({
        "name": name,
        "held": status.is_held(),
        "holders": status.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiting": status.waiting,
        "waiters": status.waiters.as_ref().map(|waiters| waiters.iter().map(waiter).collect::<Vec<_>>()),
    })
}

/// As RFC 3339 has it, to the microsecond.
fn time(moment: SystemTime) -> String {
    humantime::format_rfc3339_micros(moment).to_string()
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Upgradable => "upgradable",
        Mode::Permits(_) => "permits",
        _ => "unknown",
    }
}

fn mode_text(mode: Mode) -> String {
    match mode {
        Mode::Permits(permits) => format!("permits {}/{}", permits.take(), permits.of()),
        mode => mode_name(mode).to_owned(),
    }
}

fn permits(mode: Mode) -> Option<Value> {
    match mode {
        Mode::Permits(permits) => Some(json!({"take": permits.take(), "of": permits.of()})),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polylock::{FencingToken, Permits};

    use super::*;

    fn holder() -> HolderStatus {
        let token = FencingToken::new(1_795_458_000_123_456).unwrap();
        HolderStatus::new()
            .with_label("host7:811")
            .with_token(token)
            .with_expires_in(Duration::from_millis(21_400))
            .with_mode(Mode::Exclusive)
            .with_since(SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_458_000_123_456))
            .with_id("9f")
    }

    #[test]
    fn the_text_leaves_out_what_is_unknown() {
        let held = LockStatus::held(holder()).with_waiting(2);
        assert_eq!(
            as_text("orders/42", &held),
            "orders/42  exclusive  host7:811  token 1795458000123456  since 2026-11-23T18:20:00Z  expires in 21.4s  waiting 2\n"
        );
        assert_eq!(
            as_text("a\nb", &LockStatus::held(HolderStatus::new())),
            "\"a\\nb\"  held\n"
        );
        assert_eq!(as_text("a", &LockStatus::free()), "a  free\n");
    }

    #[test]
    fn the_json_always_has_the_same_fields() {
        let two = Mode::Permits(Permits::new(2, 5).unwrap());
        let status = LockStatus::held_by([holder(), HolderStatus::new().with_mode(two)]);
        let expected = json!({
            "name": "a", "held": true, "waiting": null, "waiters": null,
            "holders": [
                {"label": "host7:811", "mode": "exclusive", "permits": null, "token": "1795458000123456",
                 "since": "2026-11-23T18:20:00.123456Z", "expires_in_ms": 21400, "id": "9f"},
                {"label": null, "mode": "permits", "permits": {"take": 2, "of": 5}, "token": null,
                 "since": null, "expires_in_ms": null, "id": null},
            ],
        });
        assert_eq!(as_json("a", &status), expected);
        let waiter = WaiterStatus::new().with_mode(two).with_label("b");
        let waited = as_json("a", &LockStatus::free().with_waiters([waiter]));
        let waiters = json!([{"label": "b", "mode": "permits", "permits": {"take": 2, "of": 5}, "since": null}]);
        assert_eq!((&waited["waiting"], &waited["waiters"]), (&json!(1), &waiters));
    }
}
