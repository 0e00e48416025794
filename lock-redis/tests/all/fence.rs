//! A resource in a Redis, and holders that come too late.

use lock_core::{Error, ErrorKind, FencingToken, Stale};
use lock_redis::{Fence, Fenced};
use redis::aio::MultiplexedConnection;
use redis::cmd;

use crate::support::{Fixture, connect, release, take};

mod shared;

type Connection = MultiplexedConnection;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a good number")
}

fn fence(connection: &Connection, resource: &str) -> Fence<Connection> {
    Fence::new(connection.clone(), resource).expect("it can have one")
}

fn stale(error: &Error) -> Stale {
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
    assert!(!error.is_retryable());
    *error
        .cause()
        .and_then(|source| source.downcast_ref())
        .expect("it says why")
}

#[testbed::test]
async fn the_update_of_a_holder_that_was_paused_is_refused() {
    let fixture = Fixture::new().await;
    let (connection, backend) = (connect(&fixture.server.url()).await, fixture.backend());
    let stock = format!("{}stock", fixture.prefix);
    let _: () = fixture.raw(&["SET", &stock, "10"]).await;

    // It reads, and then stands still until its lock has expired.
    let paused = take(&backend, "a").await;
    let first = fence(&connection, &stock)
        .enter(paused.token())
        .await
        .expect("nobody was there");
    let read: u32 = first.get().await.expect("it is there");
    fixture.expire("a").await;

    let next = take(&backend, "a").await;
    let second = fence(&connection, &stock)
        .enter(next.token())
        .await
        .expect("its token is newer");
    let left: u32 = second.get().await.expect("it is there");

    let error = first.set(read - 1).await.expect_err("it is too late");
    let expected = stale(&error);
    assert_eq!((expected.token, expected.newest), (paused.token(), Some(next.token())));
    assert!(
        error.to_string().contains(&stock) && error.to_string().contains("is stale"),
        "{error}"
    );
    // It may not even read, nor come back.
    stale(&first.get::<u32>().await.expect_err("it is too late"));
    stale(
        &fence(&connection, &stock)
            .enter(paused.token())
            .await
            .expect_err("it is too late"),
    );

    second.set(left - 3).await.expect("it is the newest");
    assert_eq!(fixture.raw::<u32>(&["GET", &stock]).await, 7);
    assert!(release(&next).await);
}

/// What a client does with the counter, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Enter,
    Read,
    Write,
}

/// Every order in which clients can take these steps, each in its own order. A client is a number from 0.
fn orders(clients: usize, steps: &[Step]) -> Vec<Vec<(usize, Step)>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..clients * steps.len() {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<(usize, Step)>| {
                (0..clients).filter_map(move |client| {
                    let done = order.iter().filter(|(of, _)| *of == client).count();
                    let mut order = order.clone();
                    order.push((client, *steps.get(done)?));
                    Some(order)
                })
            })
            .collect();
    }
    orders
}

#[testbed::test]
async fn no_order_of_steps_loses_an_update() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let counter = format!("{}counter", fixture.prefix);
    let fence = fence(&connection, &counter);
    let orders = orders(3, &[Step::Enter, Step::Read, Step::Write]);
    assert_eq!(orders.len(), 1680);
    let mut all_written = 0;
    for order in orders {
        let _: i64 = fixture.raw(&["DEL", &counter, &format!("{{{counter}}}:entered")]).await;
        let mut clients: [Option<Fenced<Connection>>; 3] = Default::default();
        let mut read = [None; 3];
        let mut accepted = 0;
        for &(client, step) in &order {
            match (step, &clients[client]) {
                (Step::Enter, _) => clients[client] = fence.enter(token(client as u64 + 1)).await.ok(),
                (Step::Read, Some(fenced)) => read[client] = fenced.get::<Option<u32>>().await.ok(),
                (Step::Write, Some(fenced)) => {
                    if let Some(read) = read[client] {
                        accepted += u32::from(fenced.set(read.unwrap_or(0) + 1).await.is_ok());
                    }
                }
                // It was refused, and has given up.
                (Step::Read | Step::Write, None) => {}
            }
        }
        let value: u32 = fixture.raw(&["GET", &counter]).await;
        assert_eq!(value, accepted, "an update was lost: {order:?}");
        all_written += u32::from(accepted == 3);
    }
    assert_eq!(all_written, 1, "only one after the other do all three write");
}

/// What the test above would find of a fence that looks at writes alone.
#[testbed::test]
async fn a_fence_on_writes_alone_loses_updates() {
    const WRITE: &str = "
        local newest = tonumber(redis.call('GET', KEYS[1]) or '0')
        if newest > tonumber(ARGV[1]) then return 0 end
        redis.call('SET', KEYS[1], ARGV[1])
        redis.call('SET', KEYS[2], ARGV[2])
        return 1";
    let fixture = Fixture::new().await;
    let (counter, newest) = (
        format!("{}counter", fixture.prefix),
        format!("{}newest", fixture.prefix),
    );
    let mut lost = Vec::new();
    for order in orders(2, &[Step::Read, Step::Write]) {
        let _: i64 = fixture.raw(&["DEL", &counter, &newest]).await;
        let mut read = [0; 2];
        let mut accepted = 0;
        for &(client, step) in &order {
            if step == Step::Read {
                read[client] = fixture.raw::<Option<u32>>(&["GET", &counter]).await.unwrap_or(0);
            } else {
                let (token, value) = ((client + 1).to_string(), (read[client] + 1).to_string());
                accepted += fixture
                    .raw::<u32>(&["EVAL", WRITE, "2", &newest, &counter, &token, &value])
                    .await;
            }
        }
        if fixture.raw::<u32>(&["GET", &counter]).await != accepted {
            lost.push(order);
        }
    }
    // Both have read before the older one writes, and the newer one writes last.
    let (older, newer) = (0, 1);
    let ends = [(older, Step::Write), (newer, Step::Write)];
    let reads = [[older, newer], [newer, older]].map(|both| both.map(|client| (client, Step::Read)));
    assert_eq!(lost, reads.map(|reads| [reads, ends].concat()));
}

#[testbed::test]
async fn entering_again_is_no_harm_and_newer_tokens_win() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    // Of different lengths, and beyond what Lua's numbers can tell apart.
    let tokens = [
        9,
        10,
        9_007_199_254_740_993,
        9_007_199_254_740_994,
        i64::MAX.unsigned_abs(),
    ];
    let fence = fence(&connection, &format!("{}a", fixture.prefix));
    for pair in tokens.windows(2) {
        let older = fence.enter(token(pair[0])).await.expect("it is the newest");
        fence.enter(token(pair[0])).await.expect("it is still the newest");
        older.set("x").await.expect("it is the newest");
        fence.enter(token(pair[1])).await.expect("it is newer");
        let error = older.set("y").await.expect_err("it is not the newest any more");
        assert_eq!(stale(&error).newest, Some(token(pair[1])));
        stale(&fence.enter(token(pair[0])).await.expect_err("it is older"));
    }
}

#[testbed::test]
async fn any_command_and_any_bytes() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let cart = format!("{{{}7}}:cart", fixture.prefix);
    let fenced = fence(&connection, &cart)
        .enter(token(1))
        .await
        .expect("nobody was there");
    let bytes: &[u8] = b"\0\xff\r\n";
    let added: u32 = fenced
        .query(cmd("HSET").arg(&cart).arg("item").arg(bytes))
        .await
        .expect("it may");
    assert_eq!(added, 1);
    let all: Vec<(String, Vec<u8>)> = fenced.query(cmd("HGETALL").arg(&cart)).await.expect("it may");
    assert_eq!(all, [("item".to_owned(), bytes.to_vec())]);
    let nothing: Option<String> = fenced.query(cmd("HGET").arg(&cart).arg("none")).await.expect("it may");
    assert_eq!(nothing, None);
    // Errors of the command are told as such.
    let error = fenced.get::<String>().await.expect_err("it is a hash");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let scan = cmd("HSCAN").arg(&cart).cursor_arg(0).clone();
    let error = fenced
        .query::<redis::Value>(&scan)
        .await
        .expect_err("it would go on unfenced");
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    // Not one command of a stale holder is executed.
    let entered: String = fixture
        .raw(&["GET", &format!("{{{}7}}:entered:{cart}", fixture.prefix)])
        .await;
    assert_eq!(entered, "1");
    fence(&connection, &cart).enter(token(2)).await.expect("it is newer");
    stale(
        &fenced
            .query::<u32>(cmd("HDEL").arg(&cart).arg("item"))
            .await
            .expect_err("it is too late"),
    );
    assert!(fixture.raw::<bool>(&["HEXISTS", &cart, "item"]).await);
}

#[testbed::test]
async fn a_fence_that_was_deleted_trusts_nobody() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let key = format!("{}a", fixture.prefix);
    let fenced = fence(&connection, &key)
        .enter(token(5))
        .await
        .expect("nobody was there");
    let ttl: i64 = fixture.raw(&["PTTL", &format!("{{{key}}}:entered")]).await;
    assert_eq!(ttl, -1, "it never forgets by itself");
    let _: i64 = fixture.raw(&["DEL", &format!("{{{key}}}:entered")]).await;
    let error = fenced.set("x").await.expect_err("others may have come and gone");
    assert_eq!(stale(&error).newest, None);
    assert!(error.to_string().contains("enter again, and read again"), "{error}");
    let again = fence(&connection, &key)
        .enter(token(5))
        .await
        .expect("it may be the newest");
    again.set("x").await.expect("it is the newest");

    let _: () = fixture.raw(&["SET", &format!("{{{key}}}:entered"), "something"]).await;
    let error = fence(&connection, &key)
        .enter(token(6))
        .await
        .expect_err("that is no token");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
}

#[testbed::test]
async fn it_needs_few_permissions_and_names_those_it_lacks() {
    let fixture = Fixture::new().await;
    let (key, app) = (
        format!("{}a", fixture.prefix),
        format!("app-{}", fixture.prefix.trim_end_matches(':')),
    );
    let own = [format!("~{key}"), format!("~{{{key}}}:entered")];
    let mut rules = vec![
        "ACL", "SETUSER", &app, "reset", "on", ">pw", "+eval", "+evalsha", "+get", "+set",
    ];
    rules.extend(own.iter().map(String::as_str));
    let _: () = fixture.raw(&rules).await;
    let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
    let connection = connect(&format!("redis://{app}:pw@{}", fixture.server.address())).await;
    let fenced = fence(&connection, &key).enter(token(1)).await.expect("it may");
    fenced.set("x").await.expect("it may");
    assert_eq!(fenced.get::<String>().await.expect("it may"), "x");
    let error = fenced.query::<u32>(cmd("DEL").arg(&key)).await.expect_err("it may not");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error.to_string().contains("fencing needs +eval, +evalsha, +get, +set"),
        "{error}"
    );
    let error = fence(&connection, "another")
        .enter(token(1))
        .await
        .expect_err("it may not");
    assert_eq!(error.kind(), ErrorKind::Denied);
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

#[testbed::test]
async fn a_command_is_as_long_as_a_script_can_take_and_no_longer() {
    let fixture = Fixture::new().await;
    let stock = format!("{}stock", fixture.prefix);
    let fenced = fence(&connect(&fixture.server.url()).await, &stock);
    let fenced = fenced.enter(token(7)).await.expect("nobody was there");
    // With the name of the command and its key.
    let push = |parts: usize| cmd("RPUSH").arg(&stock).arg(vec!["one"; parts - 2]).to_owned();
    let error = fenced.query::<u64>(&push(7999)).await.expect_err("it is too long");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains("7998"), "{error}");
    assert_eq!(fenced.query::<u64>(&push(7998)).await.expect("it is not"), 7996);
}
