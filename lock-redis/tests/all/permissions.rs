//! Who may lock: the smallest ACL user, credentials, databases, Unix sockets. And nothing secret is shown.

use std::sync::Arc;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock, Hold, ListFrom, Mode, Permits, ReleaseOptions};
use lock_core::{ErrorKind, Locker, Result};
use lock_redis::{RedisBackend, RedisConfig};

use crate::replicas::{is_late, master_with};
use crate::restart_delay::age_mark;
use crate::support::{
    AT_MOST, Fixture, LONG, TTL, eventually, name, refused, release, request, request_in, shown, take, with_config,
};

const PASSWORD: &str = "a b@:/%\"'";

/// Makes the user anew, with these rules.
async fn user(fixture: &Fixture, name: &str, rules: &[String]) {
    let password = format!(">{PASSWORD}");
    let mut command = vec!["ACL", "SETUSER", name, "reset", "on", &password];
    command.extend(rules.iter().map(String::as_str));
    let _: () = fixture.raw(&command).await;
}

fn backend_of(fixture: &Fixture, name: &str) -> RedisBackend {
    let config = fixture.config().with_user(name).with_password(PASSWORD);
    with_config(config.with_connect_timeout(LONG))
}

/// Everything that two clients do.
async fn everything(fixture: &Fixture, clients: &[RedisBackend; 2], lock: &str) -> Result<()> {
    let [first, second] = clients;
    first.connect().await?;
    let waiting = |of: &RedisBackend| {
        let (request, control) = RequestOptions::new(name(lock), Terms::new(TTL)).start();
        let backend = of.clone();
        let acquiring = tokio::spawn({
            let request = request.clone();
            async move { backend.acquire(&request).await }
        });
        (request, control, acquiring)
    };
    let (request, _control) = request(lock, TTL);
    let hold = hold(first.acquire(&request).await?);
    hold.renew(2 * TTL).await?;
    first.status(request.name()).await?;
    first.list(&ListFrom::all(), 1).await?;

    // One that waits and goes, and one that waits and gets it.
    for goes in [true, false] {
        let (request, _control, acquiring) = waiting(second);
        let queue = || async { fixture.keys().await.into_iter().find(|key| key.contains(":queue")) };
        eventually("it waits", async || queue().await.is_some() || acquiring.is_finished()).await;
        if acquiring.is_finished() {
            acquiring.await.expect("no panic")?;
            panic!("it is held, and yet it was answered");
        }
        if goes {
            second.abandon(&request).await?;
            acquiring.abort();
            continue;
        }
        hold.release(ReleaseOptions::default()).await?;
        let hold = self::hold(acquiring.await.expect("no panic")?);
        hold.release(ReleaseOptions::default()).await?;
    }
    first.abandon(&request).await?;
    shared(clients, lock).await
}

/// What they do in the other modes.
async fn shared([first, second]: &[RedisBackend; 2], lock: &str) -> Result<()> {
    let (writer, _control) = request(lock, TTL);
    let reader = hold(first.acquire(&writer).await?);
    reader.downgrade(TTL).await?;
    let one = hold(second.acquire(&request_in(Mode::Upgradable, lock).0).await?);
    let permit = Mode::Permits(Permits::new(1, 2)?);
    assert!(matches!(
        second.acquire(&request_in(permit, lock).0).await?,
        Attempt::Busy(_)
    ));
    first.status(writer.name()).await?;
    for hold in [reader, one] {
        hold.release(ReleaseOptions::default()).await?;
    }
    let permit = hold(second.acquire(&request_in(permit, lock).0).await?);
    permit.release(ReleaseOptions::default()).await?;
    Ok(())
}

fn hold(attempt: Attempt) -> Arc<dyn Hold> {
    match attempt {
        Attempt::Granted(hold, _) => hold,
        other => panic!("it was to be granted: {other:?}"),
    }
}

/// Each kind of key.
const NAMES: [&str; 4] = ["a", "a{b}c", "a}b", "{a}"];

#[testbed::test]
async fn the_documented_permissions_are_enough_and_all_needed() {
    let fixture = Fixture::new().await;
    let rules = fixture.config().acl_rules();
    let app = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    user(&fixture, &app, &rules).await;
    let clients = [backend_of(&fixture, &app), backend_of(&fixture, &app)];
    for name in NAMES {
        everything(&fixture, &clients, name).await.expect("it may");
    }

    for (at, missing) in rules.iter().enumerate() {
        // Without these, observers of an election ask now and then: see `following`.
        if missing.starts_with("+client|") {
            continue;
        }
        // Of its own, for what may not be released stays.
        let app = format!("{app}-{at}");
        let rest: Vec<String> = rules.iter().filter(|rule| *rule != missing).cloned().collect();
        user(&fixture, &app, &rest).await;
        let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
        let clients = [backend_of(&fixture, &app), backend_of(&fixture, &app)];
        let mut refusal = None;
        for name in NAMES {
            refusal = everything(&fixture, &clients, &format!("{name}{at}"))
                .await
                .err()
                .or(refusal);
            clear(&fixture).await;
        }
        let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
        let error = refusal.unwrap_or_else(|| panic!("nobody needs {missing}"));
        assert_eq!(error.kind(), ErrorKind::Denied, "without {missing}: {error:?}");
        assert!(!error.is_retryable());
        assert!(error.to_string().contains("acl_rules"), "without {missing}: {error}");
    }
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

async fn clear(fixture: &Fixture) {
    for key in fixture.keys().await {
        let _: i64 = fixture.raw(&["DEL", &key]).await;
    }
}

#[testbed::test]
async fn a_revoked_permission_is_reported() {
    let fixture = Fixture::new().await;
    let app = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    user(&fixture, &app, &fixture.config().acl_rules()).await;
    let backend = backend_of(&fixture, &app);
    let hold = take(&backend, "a").await;
    // The first goes out with the script's text, since this user may not load scripts.
    drop(hold.renew(TTL).await.expect("it may"));
    let _: () = fixture.raw(&["ACL", "SETUSER", &app, "-evalsha"]).await;
    let error = hold.renew(TTL).await.expect_err("it may not any more");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error
            .to_string()
            .contains("does not permit this user the command evalsha"),
        "{error}"
    );
    let _: () = fixture.raw(&["ACL", "SETUSER", &app, "+evalsha"]).await;
    assert!(release(&hold).await, "the connection is still good");
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

#[testbed::test]
async fn a_user_reaches_no_other_prefix() {
    let fixture = Fixture::new().await;
    let app = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    let mut rules = fixture.config().acl_rules();
    rules.push("&another:*".into());
    user(&fixture, &app, &rules).await;
    let config = fixture.config().with_user(&app).with_password(PASSWORD);
    let backend = with_config(config.with_prefix("another:"));
    let (request, _control) = request("a", TTL);
    let error = backend.acquire(&request).await.expect_err("it is not its prefix");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error
            .to_string()
            .contains("does not permit this user a key that is needed"),
        "{error}"
    );
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

#[testbed::test]
async fn a_database_of_its_own() {
    let fixture = Fixture::new().await;
    let app = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    let config = fixture
        .config()
        .with_database(3)
        .with_user(&app)
        .with_password(PASSWORD);
    user(&fixture, &app, &config.acl_rules()).await;
    let third = with_config(config);
    let (here, there) = (take(&fixture.backend(), "a").await, take(&third, "a").await);
    let keyspace: String = fixture.raw(&["INFO", "keyspace"]).await;
    assert!(
        keyspace.contains("db0:keys") && keyspace.contains("db3:keys"),
        "{keyspace}"
    );
    assert!(release(&here).await);
    assert!(
        third.status(&name("a")).await.expect("an answer").is_held(),
        "databases have nothing in common"
    );
    assert!(release(&there).await);
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

#[testbed::test]
async fn over_a_unix_socket() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("redis.sock");
    let path = socket.to_str().expect("it is text");
    let fixture = Fixture::of(testbed::Redis::new().setting("unixsocket", [path])).await;
    if testbed::skip_external([&fixture.server]) {
        return;
    }
    user(
        &fixture,
        "app",
        &["allkeys".into(), "allchannels".into(), "+@all".into()],
    )
    .await;
    let plain = RedisConfig::unix(&socket).with_prefix(&fixture.prefix);
    let encoded: String = PASSWORD.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let urls = ["redis+unix", "valkey+unix", "unix"].map(|scheme| {
        let url = format!(
            "{scheme}://{path}?db=3&user=app&pass={encoded}&prefix={}",
            fixture.prefix
        );
        RedisConfig::from_url(&url).expect("a good URL")
    });
    let plain = take(&with_config(plain), "a").await;
    assert!(fixture.exists("a").await);
    for config in urls {
        let backend = with_config(config);
        let hold = take(&backend, "a").await;
        let sockets: String = fixture.raw(&["CLIENT", "LIST"]).await;
        let ours = sockets
            .lines()
            .find(|line| line.contains("user=app"))
            .expect("it is connected");
        assert!(ours.contains("redis.sock:0") && ours.contains("db=3"), "{ours}");
        assert!(release(&hold).await);
        assert!(!format!("{backend:?} {hold:?}").contains(PASSWORD));
        drop((hold, backend));
    }
    assert!(release(&plain).await);
}

#[testbed::test]
async fn a_wrong_password_is_reported_without_it() {
    let fixture = Fixture::new().await;
    let app = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    user(&fixture, &app, &fixture.config().acl_rules()).await;
    let config = fixture
        .config()
        .with_user(&app)
        .with_password("sesame")
        .with_connect_timeout(LONG);
    let backend = with_config(config.clone());
    let error = backend.connect().await.expect_err("it is wrong");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error.to_string().contains("refuses the user name or the password"),
        "{error}"
    );
    let shown = format!("{config:?} {backend:?} {}", shown(&error));
    assert!(!shown.contains("sesame"), "{shown}");
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

/// Each script that grants looks whether the server was promoted.
#[testbed::test]
async fn a_user_with_a_restart_delay_may_do_what_is_documented() {
    let fixture = Fixture::new().await;
    let app = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    let config = fixture.config().with_restart_delay(TTL);
    user(&fixture, &app, &config.acl_rules()).await;
    let config = config.with_user(&app).with_password(PASSWORD);
    with_config(config.clone()).connect().await.expect("it may");
    // As if the delay were over.
    age_mark(&fixture).await;
    let lock = Locker::new(with_config(config)).lock("a").ttl(TTL);
    let guard = lock.acquire_within(AT_MOST).await.expect("a grant after the delay");
    guard.release().await.expect("an answer");
    let _: i64 = fixture.raw(&["ACL", "DELUSER", &app]).await;
}

/// Replicas acknowledge over a second connection, whatever the name's key looks like.
#[testbed::test]
async fn a_user_with_replicas_may_do_what_is_documented() {
    let (_servers, fixture) = master_with(1).await;
    let config = fixture.config().with_replicas(1);
    let rules = config.acl_rules();
    let clients = async |rules: &[String]| {
        user(&fixture, "app", rules).await;
        let config = || config.clone().with_user("app").with_password(PASSWORD);
        [with_config(config()), with_config(config())]
    };
    let all = clients(&rules).await;
    for name in NAMES {
        while let Err(error) = everything(&fixture, &all, name).await {
            assert!(is_late(&error), "{name}: {error:?}");
            clear(&fixture).await;
        }
    }
    for (missing, command) in [("+wait", "the command wait"), ("+info", "the command info")] {
        let rest: Vec<String> = rules.iter().filter(|rule| *rule != missing).cloned().collect();
        let error = refused(&clients(&rest).await[0], "a").await;
        assert_eq!(error.kind(), ErrorKind::Denied, "without {missing}: {error:?}");
        assert!(
            !error.is_not_executed() || missing == "+info",
            "it was granted: {error:?}"
        );
        let said = error.to_string();
        assert!(
            said.contains(command) && said.contains("acl_rules"),
            "without {missing}: {said}"
        );
        clear(&fixture).await;
    }
}
