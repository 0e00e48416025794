//! Distinguishes a slow MySQL from a server that is no MySQL.
//!
//! A MySQL speaks first. Another server waits for us to speak, and the driver waits with it until its timeout. Or it
//! sends something that the driver takes for the beginning of a long packet. So if a connect takes long, a second
//! connection reads what the server sends.
//!
//! A MySQL counts that one as an aborted handshake, and blocks a host after `max_connect_errors` of them. So only a connect
//! that takes much longer than one on a slow line is followed by a second connection.

use std::future::pending;
use std::time::Duration;

use lock_kit::identify::first_answer;
use tokio::time::sleep;

/// The longest silence of the server on the second connection.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_millis(500);

/// The time of a connect after which the second connection is made, if the connect may take longer.
const SLOW_CONNECT: Duration = Duration::from_secs(3);

/// Returns only if the server is certainly no MySQL, with its first answer. `limit` is the time for the whole connect.
///
/// # Cancel safety
/// May be dropped at any point.
pub(crate) async fn detect_non_mysql(host: &str, port: u16, limit: Duration) -> Vec<u8> {
    let (wait, silence) = schedule(limit);
    sleep(wait).await;
    match non_mysql_answer(host, port, silence).await {
        Some(answer) => answer,
        None => pending().await,
    }
}

/// After how long the second connection is made, and how long the server may be silent on it. Two silences fit into the rest of
/// the limit, and as much again for a busy machine.
fn schedule(limit: Duration) -> (Duration, Duration) {
    let silence = SILENCE_LIMIT.min(limit / 5);
    (SLOW_CONNECT.min(limit.saturating_sub(4 * silence)), silence)
}

/// The server's first answer, if it is certainly no MySQL.
///
/// # Cancel safety
/// May be dropped at any point.
pub(crate) async fn non_mysql_answer(host: &str, port: u16, silence: Duration) -> Option<Vec<u8>> {
    // A MySQL that hangs stays silent at a text, too; most others answer.
    let answer = first_answer(host, port, silence, silence).await.ok()?;
    is_no_mysql_greeting(&answer).then_some(answer)
}

/// True if these first bytes of a server are not those of MySQL: a packet of some hundred bytes, number 0, of protocol
/// version 10 or an error. Too few bytes decide nothing.
fn is_no_mysql_greeting(first: &[u8]) -> bool {
    match *first {
        [low, high, top, number, kind, ..] => {
            let length = u32::from_le_bytes([low, high, top, 0]);
            length > 4096 || number > 2 || !matches!(kind, 9 | 10 | 0xff)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_and_a_refusal_are_mysqls() {
        assert!(!is_no_mysql_greeting(b"\x5b\x00\x00\x00\x0a5.5.5-10.11"));
        assert!(!is_no_mysql_greeting(
            b"\x45\x00\x00\x00\xff\x10\x04Too many connections"
        ));
        // PostgreSQL was asked for TLS, and has none.
        assert!(is_no_mysql_greeting(b"\0\0\0\x08\x04\xd2\x16\x2fN"));
        assert!(!is_no_mysql_greeting(b""));
        assert!(!is_no_mysql_greeting(b"\x5b\x00"));
    }

    #[test]
    fn two_silences_fit_into_any_limit() {
        for millis in [10, 200, 1_000, 2_000, 5_000, 60_000] {
            let limit = Duration::from_millis(millis);
            let (wait, silence) = schedule(limit);
            assert!(wait + 2 * silence < limit, "{limit:?}");
            assert!(wait >= limit / 5 || wait == SLOW_CONNECT, "{limit:?}");
        }
        assert_eq!(schedule(Duration::from_secs(2)).0, Duration::from_millis(400));
        assert_eq!(schedule(Duration::from_secs(5)).0, SLOW_CONNECT);
    }

    #[test]
    fn others_speak_otherwise() {
        assert!(is_no_mysql_greeting(b"+PONG\r\n"));
        assert!(is_no_mysql_greeting(b"-NOAUTH Authentication required.\r\n"));
        assert!(is_no_mysql_greeting(b"HTTP/1.1 400 Bad Request\r\n"));
        assert!(is_no_mysql_greeting(b"SSH-2.0-OpenSSH"));
    }
}
