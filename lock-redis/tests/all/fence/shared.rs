//! Readers and writers of one resource.

use lock_core::ErrorKind;
use lock_kit::fence::{Entered, Role};
use lock_redis::Fence;
use redis::cmd;

use super::{fence, stale, token};
use crate::support::{Fixture, connect};

#[testbed::test]
async fn readers_are_together_and_older_writers_rejected() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let page = fence(&connection, &format!("{}page", fixture.prefix));
    let writer = page.enter(token(1)).await.expect("nobody was there");
    writer.set("one").await.expect("it is the newest");

    let newer = page.enter_shared(token(3)).await.expect("it is the newest");
    let older = page.enter_shared(token(2)).await.expect("no newer writer has entered");
    for reader in [&newer, &older, &newer] {
        assert_eq!(reader.get::<String>().await.expect("they read together"), "one");
    }
    let error = writer.set("late").await.expect_err("readers have entered");
    assert_eq!(stale(&error).newest, Some(token(3)));
    stale(&writer.get::<String>().await.expect_err("readers have entered"));
    stale(&page.enter(token(2)).await.expect_err("a newer reader has entered"));

    let next = page.enter(token(4)).await.expect("it is the newest");
    next.set("two").await.expect("it is the newest");
    for reader in [&newer, &older] {
        let error = reader.get::<String>().await.expect_err("a newer writer has entered");
        assert_eq!(stale(&error).newest, Some(token(4)));
    }
    let error = page
        .enter_shared(token(3))
        .await
        .expect_err("a newer writer has entered");
    assert_eq!(stale(&error).newest, Some(token(4)));
}

#[testbed::test]
async fn a_reader_runs_any_command_that_reads_and_none_that_writes() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let cart = format!("{}cart", fixture.prefix);
    let _: u32 = fixture.raw(&["HSET", &cart, "apple", "3"]).await;
    let fence = fence(&connection, &cart);
    let reader = fence.enter_shared(token(1)).await.expect("nobody was there");
    let all: Vec<(String, u32)> = reader.query(cmd("HGETALL").arg(&cart)).await.expect("it reads");
    assert_eq!(all, [("apple".to_owned(), 3)]);

    let mut write = cmd("HINCRBY");
    write.arg(&cart).arg("apple").arg(1);
    let error = reader.query::<u32>(&write).await.expect_err("it writes");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(
        error.to_string().contains("enter with the token of an exclusive hold"),
        "{error}"
    );
    assert_eq!(
        reader.set(1).await.expect_err("it writes").kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(fixture.raw::<u32>(&["HGET", &cart, "apple"]).await, 3);
    let error = reader.get::<String>().await.expect_err("it is a hash");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    // As long as a writer's.
    let error = reader
        .query::<Vec<Option<u32>>>(cmd("HMGET").arg(&cart).arg(vec!["apple"; 7996]))
        .await;
    assert_eq!(error.expect("it is not too long").len(), 7996);

    // The holder of a write lock reads, too.
    let writer = fence.enter(token(2)).await.expect("it is the newest");
    assert_eq!(writer.query::<u32>(&write).await.expect("it writes"), 4);
}

#[testbed::test]
async fn one_token_reads_and_writes_after_a_downgrade() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let fence = fence(&connection, &format!("{}page", fixture.prefix));
    let writer = fence.enter(token(5)).await.expect("nobody was there");
    let reader = fence.enter_shared(token(5)).await.expect("the same holder");
    writer.set("x").await.expect("no newer one has entered");
    assert_eq!(reader.get::<String>().await.expect("no newer one has entered"), "x");
    fence.enter(token(5)).await.expect("the same holder");
    reader.get::<String>().await.expect("it is still there");
    // Another reader ends what the downgraded holder may still have under way.
    fence.enter_shared(token(6)).await.expect("it is newer");
    stale(&writer.set("late").await.expect_err("a newer reader has entered"));
    reader.get::<String>().await.expect("no writer has entered");
}

#[testbed::test]
async fn a_fence_that_has_forgotten_a_reader_trusts_it_no_more() {
    let fixture = Fixture::new().await;
    let connection = connect(&fixture.server.url()).await;
    let key = format!("{}a", fixture.prefix);
    let fence = fence(&connection, &key);
    let reader = fence.enter_shared(token(5)).await.expect("nobody was there");
    let entered = format!("{{{key}}}:entered");
    for forgotten in ["", "3", "0 4", "3 4"] {
        let _: i64 = fixture.raw(&["DEL", &entered]).await;
        if !forgotten.is_empty() {
            let _: () = fixture.raw(&["SET", &entered, forgotten]).await;
        }
        let error = reader.get::<Option<String>>().await.expect_err("others may have come");
        assert_eq!(stale(&error).newest, None, "{forgotten}");
        assert!(error.to_string().contains("enter again, and read again"), "{error}");
    }
    fence.enter_shared(token(5)).await.expect("no newer one has entered");
    reader.get::<Option<String>>().await.expect("it has entered again");

    for garbage in ["something", "1 2 3", "1 ", " 1", "-1 2"] {
        let _: () = fixture.raw(&["SET", &entered, garbage]).await;
        for error in [fence.enter(token(9)).await, fence.enter_shared(token(9)).await] {
            let error = error.expect_err("that is no fence");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{garbage}: {error:?}");
        }
        reader.get::<Option<String>>().await.expect_err("that is no fence");
    }
}

/// The stored value, as it stays over versions.
fn stored(entered: Entered) -> String {
    match entered {
        Entered { writer: 0, reader: 0 } => String::new(),
        Entered { writer, reader } if reader < writer => writer.to_string(),
        Entered { writer, reader } => format!("{writer} {reader}"),
    }
}

/// Runs a script: whether it was accepted, or the token in its rejection.
async fn run(fixture: &Fixture, script: &str, keys: &[&str], arguments: &[&str]) -> Result<(), String> {
    let count = keys.len().to_string();
    let command = [&["EVAL", script, &count], keys, arguments].concat();
    let reply = fixture.try_raw::<redis::Value>(&command).await;
    reply.map(drop).map_err(|error| {
        let code = error.code().unwrap_or_default();
        format!("{code} {}", error.detail().unwrap_or_default())
    })
}

/// Tokens of different lengths, and beyond what Lua's numbers can tell apart.
const TOKENS: [u64; 4] = [9, 10, 9_007_199_254_740_993, 9_007_199_254_740_994];

#[testbed::test]
async fn the_scripts_decide_by_the_rule() {
    let fixture = Fixture::new().await;
    let (key, resource) = (format!("{}a:entered", fixture.prefix), format!("{}a", fixture.prefix));
    let mut tried = 0;
    let numbers = || [0].into_iter().chain(TOKENS);
    for before in numbers().flat_map(|writer| numbers().map(move |reader| Entered { writer, reader })) {
        if 0 < before.reader && before.reader < before.writer {
            continue; // it is never stored
        }
        for number in TOKENS {
            let (text, token) = (number.to_string(), token(number));
            let expected = [
                before.enter(Role::Writer, token),
                before.enter(Role::Reader, token),
                before.check(Role::Writer, token).map(|()| before),
                before.check(Role::Reader, token).map(|()| before),
            ];
            let scripts = [Fence::ENTER, Fence::ENTER_SHARED, Fence::RUN, Fence::RUN_SHARED];
            for (at, script) in scripts.into_iter().enumerate() {
                let _: i64 = fixture.raw(&["DEL", &key]).await;
                if before != Entered::default() {
                    let _: () = fixture.raw(&["SET", &key, &stored(before)]).await;
                }
                let outcome = match at {
                    0 | 1 => run(&fixture, script, &[&key], &[&text]).await,
                    _ => run(&fixture, script, &[&key, &resource], &[&text, "GET", &resource]).await,
                };
                let newest = before.writer.max(before.reader);
                let (after, expected) = match expected[at] {
                    Ok(after) => (after, Ok(())),
                    Err(_) => (before, Err(format!("STALE {newest}"))),
                };
                assert_eq!(outcome, expected, "{before:?}, {number}, script {at}");
                let left: Option<String> = fixture.raw(&["GET", &key]).await;
                assert_eq!(
                    left.unwrap_or_default(),
                    stored(after),
                    "{before:?}, {number}, script {at}"
                );
                tried += 1;
            }
        }
    }
    assert_eq!(tried, (5 + 4 + 3 + 2 + 1 + 4) * 4 * 4);
}

/// The two scripts as they were before there were readers.
const OLD_ENTER: &str = "
local newest, token = redis.call('GET', KEYS[1]) or '0', ARGV[1]
if not string.match(newest, '^%d+$') then
  return redis.error_reply('WRONGTYPE the key ' .. KEYS[1] .. ' holds something else than a token')
end
if #newest > #token or (#newest == #token and newest > token) then
  return redis.error_reply('STALE ' .. newest)
end
return redis.call('SET', KEYS[1], token)";
const OLD_RUN: &str = "
local newest = redis.call('GET', KEYS[1]) or '0'
if newest ~= ARGV[1] then return redis.error_reply('STALE ' .. newest) end
return redis.call(unpack(ARGV, 2))";

#[testbed::test]
async fn an_older_version_is_rejected_while_readers_have_entered() {
    let fixture = Fixture::new().await;
    let (key, resource) = (format!("{}a:entered", fixture.prefix), format!("{}a", fixture.prefix));
    let enter = async |script: &str, token: &str| run(&fixture, script, &[&key], &[token]).await;
    let write = async |script: &str, token: &str| {
        run(&fixture, script, &[&key, &resource], &[token, "SET", &resource, token]).await
    };
    // Writers of both versions reject each other as those of one.
    enter(OLD_ENTER, "1").await.expect("nobody was there");
    write(Fence::RUN, "1").await.expect("it is the newest");
    enter(Fence::ENTER, "2").await.expect("it is newer");
    assert_eq!(write(OLD_RUN, "1").await, Err("STALE 2".into()));
    write(OLD_RUN, "2").await.expect("it is the newest");

    // While readers have entered, the older version neither enters nor writes.
    enter(Fence::ENTER_SHARED, "3").await.expect("it is newer");
    let error = write(OLD_RUN, "2").await.expect_err("a newer reader has entered");
    assert!(error.starts_with("STALE"), "{error}");
    let error = enter(OLD_ENTER, "4").await.expect_err("it does not know readers");
    assert!(error.starts_with("WRONGTYPE"), "{error}");

    // The next writer that knows readers makes way for it.
    enter(Fence::ENTER, "5").await.expect("it is newer");
    enter(OLD_ENTER, "6").await.expect("it is newer");
    write(OLD_RUN, "6").await.expect("it is the newest");
    assert_eq!(
        write(Fence::RUN_SHARED, "3").await,
        Err("STALE 6".into()),
        "a newer writer has entered"
    );
}
