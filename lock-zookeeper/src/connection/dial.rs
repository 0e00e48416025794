//! An attempt at a connection, which waits for no silent server while another one serves.
//!
//! The driver tries the servers in a random order. For a silent one it waits as long as for an answer over a live connection.

use std::time::Duration;

use lock_core::ErrorKind;
use tokio::time::sleep;
use zookeeper_client::SessionInfo;

use super::driver::{Connection, DialError};
use crate::config::ZooKeeperConfig;
use crate::probe::{Diagnosis, diagnose};

/// The time without a connection before we probe the servers.
pub(super) const PROBE_AFTER: Duration = Duration::from_millis(300);
/// The time that a probe has once another server has answered its own.
const GRACE: Duration = Duration::from_millis(300);

/// Tries each server once: for a new session, or to go on with an earlier one. If that takes longer than [`PROBE_AFTER`], the servers are
/// probed, and what was found goes to `report`. From then on only the servers that serve are tried, if there are any: a silent one delays the
/// others by little.
///
/// Never two attempts side by side: each server would take the session from the other one. A server that was given up may still read the
/// request later. Then a new session carries nothing, and expires. An earlier session moves to that server, so its newer connection ends
/// and it connects once more.
pub(super) async fn dial(
    config: &ZooKeeperConfig,
    session: Option<&SessionInfo>,
    report: impl FnOnce(&Diagnosis),
) -> Result<Connection, DialError> {
    let mut dialing = Box::pin(Connection::dial(config, config.servers(), session));
    let diagnosis = tokio::select! {
        biased;
        dialed = &mut dialing => return dialed,
        diagnosis = async { sleep(PROBE_AFTER).await; diagnose(config, Some(GRACE)).await } => diagnosis,
    };
    report(&diagnosis);
    match diagnosis.why {
        // A session that there is may outlast what is wrong now.
        Some(why) if session.is_none() && why.kind() != ErrorKind::Unavailable => Err(DialError::Setup(why)),
        Some(_) if !diagnosis.serving.is_empty() => {
            drop(dialing);
            Connection::dial(config, &diagnosis.serving, session).await
        }
        _ => dialing.await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use testbed::in_some_run;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    use super::*;

    /// What the servers of a test have seen.
    struct Seen {
        /// The one that serves was probed.
        probed: AtomicBool,
        /// The silent one was waited for: its probe sent more after the first command.
        waited: AtomicBool,
        /// After the probe, the one that serves was asked for a session.
        asked: mpsc::UnboundedSender<()>,
    }

    /// Serves each connection by `answer`. Returns the address.
    async fn serve<Answer>(seen: &Arc<Seen>, answer: fn(TcpStream, Arc<Seen>) -> Answer) -> String
    where
        Answer: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let (listener, seen) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), seen.clone());
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, seen.clone()));
            }
        });
        address
    }

    /// Answers probes, and gives nobody a session.
    async fn serving(mut stream: TcpStream, seen: Arc<Seen>) -> std::io::Result<()> {
        let mut request = [0; 4];
        stream.read_exact(&mut request).await?;
        if &request == b"srvr" {
            seen.probed.store(true, Ordering::SeqCst);
            return stream.write_all(b"Zookeeper version: 3.8.0\nMode: follower\n").await;
        }
        if seen.probed.load(Ordering::SeqCst) {
            let _ = seen.asked.send(());
        }
        stream.read_to_end(&mut Vec::new()).await.map(|_| ())
    }

    async fn silent(mut stream: TcpStream, seen: Arc<Seen>) -> std::io::Result<()> {
        let mut request = [0; 4];
        stream.read_exact(&mut request).await?;
        if &request == b"srvr" && stream.read(&mut request).await? > 0 {
            seen.waited.store(true, Ordering::SeqCst);
        }
        stream.read_to_end(&mut Vec::new()).await.map(|_| ())
    }

    #[tokio::test]
    async fn a_silent_server_is_not_waited_for_when_another_one_serves() {
        in_some_run("its probe was waited for", async || {
            let (asked, mut requests) = mpsc::unbounded_channel();
            let (probed, waited) = (AtomicBool::new(false), AtomicBool::new(false));
            let seen = Arc::new(Seen { probed, waited, asked });
            let servers = [serve(&seen, silent).await, serve(&seen, serving).await];
            let config = ZooKeeperConfig::new(servers).with_open_acl();
            tokio::select! {
                // Nobody was asked a second time, since the machine stood still.
                _ = dial(&config, None, |_| ()) => return false,
                asked = requests.recv() => asked.expect("the servers have the other end"),
            }
            !seen.waited.load(Ordering::SeqCst)
        })
        .await;
    }
}
