//! Passwords from outside the configuration, which change while a lock is held.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use lock_core::backend::{DistributedLock, HolderId, Renewal};
use lock_core::{CredentialSource, Credentials, ErrorKind};
use lock_redis::RedisConfig;
use testbed::Redis;
use testbed::happens;

use crate::support::{
    AT_MOST, Fixture, TTL, eventually, in_the_end, in_the_end_granted, refused, release, request, take, with_config,
};

/// A file of this test's own. If the test is killed, it stays in cargo's folder.
struct PasswordFile(PathBuf);

impl PasswordFile {
    fn new(password: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = Self(folder.join(format!("polylock-{}", HolderId::random())));
        file.write(password);
        file
    }

    fn write(&self, password: &str) {
        std::fs::write(&self.0, password).expect("a temporary file");
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A user of this test's own, with the least permissions.
async fn user(fixture: &Fixture, password: &str) -> String {
    let user = format!("app-{}", fixture.prefix.trim_end_matches(':'));
    let password = format!(">{password}");
    let rules = fixture.config().acl_rules();
    let mut command = vec!["ACL", "SETUSER", &user, "reset", "on", &password];
    command.extend(rules.iter().map(String::as_str));
    let _: () = fixture.raw(&command).await;
    user
}

/// As the crate's page says: a second password at the server, then here, and then the first one goes.
#[testbed::test]
async fn a_hold_outlives_the_password_of_its_connection() {
    let fixture = Fixture::new().await;
    let user = user(&fixture, "old").await;
    let file = PasswordFile::new("old\n");
    let source = CredentialSource::file(&file.0);
    let backend = with_config(fixture.config().with_user(&user).with_credentials(source));
    let hold = take(&backend, "a").await;

    let _: () = fixture.raw(&["ACL", "SETUSER", &user, ">new"]).await;
    file.write("new\n");
    let _: () = fixture.raw(&["ACL", "SETUSER", &user, "<old"]).await;
    // Connections outlive the password by which they were made.
    assert!(matches!(hold.renew(TTL).await, Ok(Renewal::Renewed(_))));
    let ended: u32 = fixture.raw(&["CLIENT", "KILL", "USER", &user]).await;
    assert_eq!(ended, 1);

    let renewal = in_the_end(async || hold.renew(2 * TTL).await).await;
    assert!(matches!(renewal, Renewal::Renewed(_)));
    assert!(fixture.rest("a").await > TTL, "it was renewed beyond what it had");
    assert!(release(&hold).await);

    // A file that is gone for a while is named, and read as soon as it is there.
    std::fs::remove_file(&file.0).expect("it is ours");
    let _: u32 = fixture.raw(&["CLIENT", "KILL", "USER", &user]).await;
    let (request, _control) = request("a", TTL);
    let mut error = None;
    eventually("a dial misses the file", async || {
        // `None`: the connection had not noticed its end yet.
        error = backend.acquire(&request).await.err();
        error
            .as_ref()
            .is_some_and(|error| error.kind() == ErrorKind::Misconfigured)
    })
    .await;
    let said = error.expect("the last one").to_string();
    assert!(
        said.contains("cannot be read") && said.contains(file.0.to_str().expect("UTF-8")),
        "{said}"
    );
    file.write("new");
    eventually("it is read again", async || backend.connect().await.is_ok()).await;
    drop(in_the_end_granted(&backend, &request).await);
}

/// What the test above would see of a backend that asks for its password once.
#[testbed::test]
async fn a_password_that_is_asked_for_once_does_not_survive_its_change() {
    let fixture = Fixture::new().await;
    let user = user(&fixture, "old").await;
    let source = CredentialSource::ask(|| async { Ok(Credentials::new("old")) });
    let backend = with_config(fixture.config().with_user(&user).with_credentials(source));
    let hold = take(&backend, "a").await;
    let _: () = fixture.raw(&["ACL", "SETUSER", &user, ">new", "<old"]).await;
    let _: u32 = fixture.raw(&["CLIENT", "KILL", "USER", &user]).await;
    eventually("the old password is refused", async || match hold.renew(TTL).await {
        Err(error) => error.kind() == ErrorKind::Denied,
        Ok(renewal) => panic!("answered over a connection that has ended: {renewal:?}"),
    })
    .await;
}

#[testbed::test]
async fn a_password_file_that_is_missing_is_said_at_once() {
    let fixture = Fixture::new().await;
    let url = fixture.server.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    let config = RedisConfig::from_url(&format!("{url}{separator}password_file=/no/such/file")).expect("a good URL");
    let backend = with_config(config.with_connect_timeout(10 * AT_MOST));
    let refusing = refused(&backend, "a");
    let error = happens("at once", refusing).await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Misconfigured, false));
    assert!(
        error
            .to_string()
            .contains("the password file /no/such/file cannot be read"),
        "{error}"
    );
}

#[testbed::test]
async fn the_function_names_user_and_password_and_its_error_arrives() {
    let fixture = Fixture::new().await;
    let user = user(&fixture, "s3cret").await;
    let answer = Arc::new(Mutex::new(Ok(Credentials::new("wr0ng").with_user(&user))));
    let source = CredentialSource::ask({
        let answer = answer.clone();
        move || std::future::ready(answer.lock().expect("no panics").clone())
    });
    let backend = with_config(fixture.config().with_credentials(source));
    let error = refused(&backend, "a").await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!format!("{error:?} {backend:?}").contains("wr0ng"), "{error:?}");
    let locked = lock_core::Error::new(ErrorKind::Denied, "the secret store is locked");
    *answer.lock().expect("no panics") = Err(locked);
    let said = refused(&backend, "a").await.to_string();
    assert!(said.contains("the secret store is locked"), "{said}");
    *answer.lock().expect("no panics") = Ok(Credentials::new("s3cret").with_user(&user));
    assert!(release(&take(&backend, "a").await).await);
}

/// The Sentinels' own password changes, and a failover is noticed all the same.
#[testbed::test]
async fn the_sentinels_are_asked_with_the_password_of_the_moment() {
    let watched = Redis::new().start_watched(0).await.expect("it starts");
    let tell = async |rules: &[&str]| {
        let command = [&["ACL", "SETUSER", "watch"], rules].concat();
        for sentinel in 0..3 {
            watched.ask(sentinel, &command).await.expect("good rules");
        }
    };
    let may = [
        "+sentinel|get-master-addr-by-name",
        "+sentinel|master",
        "+subscribe",
        "&+switch-master",
    ];
    tell(&[&["reset", "on", ">old"], &may[..]].concat()).await;
    let password = Arc::new(Mutex::new("old"));
    let source = CredentialSource::ask({
        let password = password.clone();
        move || {
            let password = *password.lock().expect("no panics");
            async move { Ok(Credentials::new(password)) }
        }
    });
    let config = RedisConfig::from_url(&watched.url()).expect("a good URL");
    let config = config.with_sentinel_user("watch").with_sentinel_credentials(source);
    let backend = with_config(config);
    let hold = take(&backend, "a").await;
    let connected = async |what: &str| {
        for sentinel in 0..3 {
            eventually(what, async || {
                let clients = watched.ask(sentinel, &["CLIENT", "LIST"]).await;
                clients.expect("an answer").contains("user=watch")
            })
            .await;
        }
    };
    connected("it is connected").await;

    tell(&[">new"]).await;
    *password.lock().expect("no panics") = "new";
    tell(&["<old"]).await;
    for sentinel in 0..3 {
        let ended = watched.ask(sentinel, &["CLIENT", "KILL", "USER", "watch"]).await;
        assert_eq!(ended.expect("an answer"), "1");
    }
    connected("it is connected again").await;
    assert!(release(&hold).await);
}
