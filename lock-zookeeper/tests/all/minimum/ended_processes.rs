//! Kept nodes of processes that have ended.

use super::*;

/// Nobody asks for the names again. Each is free when its time is over, and the next process deletes what was left of it.
#[testbed::test]
async fn kept_nodes_of_an_ended_process_go() {
    const NAMES: usize = 40;
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let names: Vec<_> = (0..NAMES).map(|number| format!("job-{number}")).collect();
    let mut held = Vec::new();
    for lock in &names {
        let terms = Terms::new(VERY_LONG).minimum(VERY_LONG);
        let (request, control) = RequestOptions::new(name(lock), terms).start();
        held.push((granted(happens("an answer", one.acquire(&request)).await), control));
    }
    let released = Instant::now();
    let how = ReleaseOptions::default().keep_for(MINIMUM);
    let releasing = held.iter().map(|(hold, _)| hold.release(how));
    futures_util::future::try_join_all(releasing).await.unwrap();
    // As if its process had ended: nobody deletes the nodes.
    drop(held);
    drop(one);
    let two = backend(server, &root);
    for lock in &names {
        let status = eventually("its minimum is over", async || {
            let status = two.status(&name(lock)).await.unwrap();
            (!status.is_held()).then_some(status)
        });
        assert_eq!(status.await.waiting, Some(0));
        assert!(released.elapsed() >= MINIMUM, "free after {:?}", released.elapsed());
    }
    let (_held, _request, _control) = hold_at_least(&two, MINIMUM).await;
    for lock in &names {
        children_until(&client, &format!("{root}/{lock}"), <[String]>::is_empty).await;
    }
}

/// A status says so before it is over, and a sweep leaves it alone.
#[testbed::test]
async fn a_kept_node_of_an_ended_process_stays_until_it_is_over() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    for lock in ["over", "kept"] {
        let (held, _request, _control) = hold(&one, lock).await;
        held.release(ReleaseOptions::default()).await.unwrap();
    }
    let kept = |lock| format!("{root}/{lock}/_c_5a1f0000-0000-0000-0000-000000000000-keep-lock-0000000000");
    create_in_directory(&client, &kept("over"), b"\xFFkeep=0", CreateMode::Persistent).await;
    create_in_directory(&client, &kept("kept"), b"\xFFkeep=600000", CreateMode::Persistent).await;
    assert!(two.status(&name("kept")).await.unwrap().is_held());
    let (_held, _request, _control) = hold_at_least(&two, VERY_LONG).await;
    children_until(&client, &format!("{root}/over"), <[String]>::is_empty).await;
    assert!(client.check_stat(&kept("kept")).await.unwrap().is_some());
}
