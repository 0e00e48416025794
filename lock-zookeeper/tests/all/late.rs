//! Requests that the server gets after the end of their connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lock_core::HoldState;
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};

use crate::support::*;

/// A way to the server on which what its first connection sends can be kept back and delivered after the end of that
/// connection, as a kernel does that goes on retransmitting.
#[derive(Clone, Default)]
struct LateWay {
    keeping: Arc<AtomicBool>,
    kept: Arc<Mutex<Option<Kept>>>,
}

/// The connection to the server, and what it has not got yet.
type Kept = (TcpStream, Vec<u8>);

impl LateWay {
    fn open(&self, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = self.clone();
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (client, way) = (client.unwrap(), way.clone());
                let Ok(upstream) = TcpStream::connect(server) else {
                    continue;
                };
                let (mut down, mut up) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut up, &mut down));
                std::thread::spawn(move || way.carry(client, upstream, number == 0));
            }
        });
        address
    }

    fn carry(&self, mut client: TcpStream, mut server: TcpStream, first: bool) {
        let mut buffer = [0; 4096];
        let mut kept = Vec::new();
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            if first && self.keeping.load(Ordering::SeqCst) {
                kept.extend_from_slice(&buffer[..length]);
            } else if server.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
        match kept.is_empty() {
            true => drop(server.shutdown(Shutdown::Both)),
            false => *self.kept.lock().unwrap() = Some((server, kept)),
        }
    }

    /// Delivers what was kept back, and waits until the server has ended that connection.
    fn deliver(&self) {
        if let Some((mut server, kept)) = self.kept.lock().unwrap().take() {
            // Fails where the server has ended it already.
            let _ = server.write_all(&kept);
            let _ = server.shutdown(Shutdown::Write);
            while let Ok(1..) = server.read(&mut [0; 4096]) {}
        }
    }
}

/// The server gets a create long after its session has gone on over another connection: had it an effect, the node
/// would belong to a session that lives, and to nobody.
#[testbed::test]
async fn a_create_that_arrives_late_has_no_effect() {
    in_some_run("the session ended", a_late_create_without_effect).await;
}

/// Whether the session outlived it.
async fn a_late_create_without_effect() -> bool {
    let server = own_server().await;
    let way = LateWay::default();
    let address = way.open(server.address().parse().unwrap());
    let config = config(&address.to_string(), "/test");
    // The driver gives a connection up after about half of it.
    let backend = backend_with(config.with_session_timeout(3 * SESSION));
    let (first, _control) = long("a");
    let _hold = granted(happens("an answer to the acquire", backend.acquire(&first)).await);
    way.keeping.store(true, Ordering::SeqCst);
    let (request, _control) = long("b");
    let acquiring = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    // The driver gives the connection up.
    eventually("the answer is kept", async || way.kept.lock().unwrap().is_some()).await;
    let hold = match happens("the grant", acquiring).await.unwrap() {
        Err(error) if error.is_retryable() => {
            granted(happens("an answer to the acquire", backend.acquire(&request)).await)
        }
        attempt => granted(attempt),
    };
    let client = observer(&server).await;
    let own = client.list_children("/test/b").await.unwrap();
    assert_eq!(own.len(), 1);
    let late = way.clone();
    tokio::task::spawn_blocking(move || late.deliver()).await.unwrap();
    assert_eq!(client.list_children("/test/b").await.unwrap(), own);
    assert_eq!(
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap(),
        ReleaseOutcome::Released
    );
    assert!(children_of(&client, "/test/b").await.is_empty());
    !matches!(first.lease().state(), HoldState::Lost(_))
}
