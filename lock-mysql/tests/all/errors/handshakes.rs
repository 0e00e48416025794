//! Handshakes that are aborted: MySQL blocks a host that leaves too many of them.

use super::*;

/// A MySQL blocks a host that leaves too many of them.
async fn aborted_handshakes(observer: &mut Observer) -> u64 {
    // Those under way count when they have ended.
    let clients = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER IN ('app','unauthenticated user')";
    until("alone", async || observer.number(clients).await <= 1).await;
    observer.counter("Aborted_connects").await
}

#[testbed::test]
async fn a_first_contact_over_a_slow_line_leaves_no_aborted_handshake() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let mut aborted = Vec::new();
    // If a busy machine takes seconds to connect, another connection looks whether it is a MySQL, and is aborted.
    while aborted.len() < 3 && aborted.last() != Some(&0) {
        let proxy = Proxy::of(&fixture).await;
        let before = aborted_handshakes(&mut observer).await;
        proxy.delay(Duration::from_millis(100));
        let backend = proxy.patient(&fixture);
        backend.connect().await.unwrap();
        proxy.heal();
        drop(backend);
        aborted.push(aborted_handshakes(&mut observer).await - before);
    }
    assert_eq!(aborted.last(), Some(&0), "{aborted:?}");
}

#[testbed::test]
async fn callers_that_leave_while_it_connects_leave_no_aborted_handshake() {
    let fixture = Fixture::own().await;
    let (proxy, mut observer) = (Proxy::of(&fixture).await, fixture.observer().await);
    let before = aborted_handshakes(&mut observer).await;
    proxy.delay(Duration::from_millis(100));
    let backend = proxy.patient(&fixture);
    for _ in 0..5 {
        let dials = proxy.dials();
        let (request, control) = options("a", secs(10)).start();
        let acquiring = backend.acquire(&request);
        tokio::pin!(acquiring);
        while proxy.dials() == dials {
            let moment = timeout(Duration::from_millis(5), &mut acquiring).await;
            assert!(moment.is_err(), "it connects");
        }
        // The server's greeting is on its way.
        let moment = timeout(Duration::from_millis(50), &mut acquiring).await;
        assert!(moment.is_err(), "it connects");
        control.give_up();
        assert!(acquiring.await.is_err());
    }
    assert!(proxy.dials() >= 5);
    assert_eq!(aborted_handshakes(&mut observer).await, before);
}
