//! How soon and how often a connection is tried again.

use super::*;

/// With a hold and a place that live by the session, which goes on.
#[testbed::test]
async fn a_client_is_served_soon_after_a_long_outage() {
    let (root, line) = (fresh_root(), Line::to(shared_address().await));
    let (stranger, backend) = (patient(shared_address().await, &root), backend_at(&line.address, &root));
    let (first, _control) = long("a", true);
    let _hold = acquire(&backend, &first).await;
    let (second, _control) = long("b", true);
    let taken = granted(happens("an answer to the acquire", stranger.acquire(&second)).await);
    let (third, _control) = long("b", true);
    let waiting = tokio::spawn({
        let (backend, third) = (backend.clone(), third.clone());
        async move { acquire(&backend, &third).await }
    });
    let client = observer(shared_server().await).await;
    let directory = format!("{root}/b");
    let places = children_until(&client, &directory, |children| children.len() == 2).await;
    in_some_run("it is not served within the connect timeout", async || {
        line.cut();
        // So long that the driver would try again after more than the connect timeout.
        sleep(Duration::from_millis(7500)).await;
        line.heal();
        let (other, _control) = long("c", false);
        match happens("an answer to the acquire", backend.acquire(&other)).await {
            Err(error) if error.is_retryable() => {
                println!("{error:?}");
                happens("an answer to the abandon", async {
                    while backend.abandon(&other).await.is_err() {}
                })
                .await;
                false
            }
            attempt => {
                granted(attempt);
                true
            }
        }
    })
    .await;
    assert_eq!(children_until(&client, &directory, |_| true).await.len(), places.len());
    taken.release(ReleaseOptions::default()).await.unwrap();
    happens("the grant", waiting).await.unwrap();
    assert!(is_live(first.lease()) && is_live(third.lease()));
}

#[testbed::test]
async fn requests_shorten_the_rest_between_attempts_but_not_below_50_ms() {
    let line = Line::to(shared_address().await);
    line.cut();
    let backend = backend_at(&line.address, &fresh_root());
    // Each attempt connects once, and three times more to find out why it failed: it might be a PostgreSQL, or speak TLS.
    let attempts = || line.dials().len() / 4;
    // One that waits.
    let (request, _control) = long("a", true);
    in_some_run("one that waits is no reason to try again", async || {
        let before = attempts();
        let _ = timeout(3 * LIMIT, async { while backend.acquire(&request).await.is_err() {} }).await;
        let while_one_waited = attempts() - before;
        println!("{while_one_waited} attempts in {:?}", 3 * LIMIT);
        while_one_waited >= 12
    })
    .await;
    // Many.
    let asking: Vec<_> = (0..20)
        .map(|number| {
            let backend = backend.clone();
            tokio::spawn(async move {
                loop {
                    let (request, _control) = long(&format!("b{number}"), false);
                    let _ = timeout(Duration::from_millis(5), backend.acquire(&request)).await;
                }
            })
        })
        .collect();
    let (started, before) = (Instant::now(), attempts());
    sleep(LIMIT).await;
    let (took, made) = (started.elapsed(), attempts() - before);
    for asking in asking {
        asking.abort();
    }
    let most = took.as_millis() as usize / 50 + 2;
    assert!(made <= most, "{made} attempts in {took:?}");
    line.heal();
    acquire(&backend, &request).await;
}

#[testbed::test]
async fn a_session_whose_connections_end_at_once_is_not_dialed_without_a_rest() {
    const TIME: Duration = Duration::from_secs(2);
    let line = Line::to(shared_address().await);
    let backend = backend_at(&line.address, &fresh_root());
    let (request, _control) = long("a", true);
    let _hold = acquire(&backend, &request).await;
    let (started, before) = (Instant::now(), line.dials().len());
    while started.elapsed() < TIME {
        if happens("the status", backend.status(&name("a"))).await.is_ok() {
            line.reset();
        }
    }
    // Each comes with one that asks what kind of server there is, and one that the driver begins before it is ended.
    let most = 3 * (started.elapsed().as_millis() as usize / 50 + 2);
    let made = line.dials().len() - before;
    assert!(made <= most, "{made} connections in {:?}", started.elapsed());
}
