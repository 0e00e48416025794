//! Valid configurations, and the errors for invalid ones.

use std::time::Duration;

use lock_core::ErrorKind;

use super::*;
use crate::ZooKeeperBackend;

#[test]
fn reads_every_part_of_a_url() {
    let url = "zookeeper://me:p%40ss@zk1,zk2:2182,[::1]:2183/my/locks/?session_timeout=12s&connect_timeout=300ms&\
               heartbeat=write&sessions=3&acl=creator";
    let config = ZooKeeperConfig::from_url(url).unwrap();
    assert_eq!(config.servers(), ["zk1:2181", "zk2:2182", "[::1]:2183"]);
    assert_eq!(config.root(), "/my/locks");
    assert_eq!(config.session_timeout(), Duration::from_secs(12));
    assert_eq!(config.connect_timeout(), Duration::from_millis(300));
    assert_eq!(config.heartbeat(), HeartbeatKind::Write);
    assert_eq!(config.sessions(), 3);
    assert_eq!(
        config.user.as_deref().zip(config.password.as_deref()),
        Some(("me", "p@ss"))
    );
    assert!(!config.has_open_acl());
}

#[test]
fn has_defaults() {
    for url in [
        "zookeeper://zk?acl=open",
        "zookeeper://zk/?acl=open",
        "zookeeper://zk/?&acl=open",
    ] {
        let config = ZooKeeperConfig::from_url(url).unwrap();
        assert_eq!(config, ZooKeeperConfig::new(["zk"]).with_open_acl());
        assert_eq!(config.servers(), ["zk:2181"]);
        assert_eq!(config.root(), "/polylock");
    }
}

#[test]
fn says_what_is_wrong_and_what_is_right() {
    for (url, hint) in [
        ("redis://zk", "zookeeper://"),
        ("zookeeper://", "host:port"),
        ("zookeeper://zk:0", "host:port"),
        ("zookeeper://zk:99999", "host:port"),
        ("zookeeper://zk,,zk2", "host:port"),
        ("zookeeper://[::1", "host:port"),
        ("zookeeper://me@zk", "user:password"),
        ("zookeeper://:x@zk", "user is empty"),
        ("zookeeper://me:pw@zk?password_env=P", "given in two ways"),
        (
            "zookeeper://me@zk?previous_password=x&password_env=P",
            "given in two ways",
        ),
        ("zookeeper://me@zk?password_file=", "has no value"),
        ("zookeeper://me@zk?password_file=p&password_env=P", "says twice"),
        ("zookeeper://@zk?password_file=p", "user is empty"),
        ("zookeeper://zk/a//b", "/like/this"),
        ("zookeeper://zk/zookeeper/a", "belongs to the server"),
        ("zookeeper://zk/a/../b", "/like/this"),
        ("zookeeper://zk/a%00b", "/like/this"),
        ("zookeeper://zk/%ff", "UTF-8"),
        (
            "zookeeper://zk?ttl=3s",
            "session_timeout, connect_timeout, heartbeat, previous_password, password_file, password_env, auth, acl, sessions, tls, ca, cert, key",
        ),
        ("zookeeper://zk?session_timeout=3", "write 3s or 500ms"),
        ("zookeeper://zk?session_timeout=1ms", "100ms to 1h"),
        ("zookeeper://zk?connect_timeout=0s", "connect_timeout is zero"),
        ("zookeeper://zk?acl=world", "must be creator or open"),
        ("zookeeper://me:pw@zk?auth=x509", "neither digest nor sasl"),
        ("zookeeper://zk?heartbeat=ping", "must be sync or write"),
        ("zookeeper://zk?sessions=all", "sessions in the URL is no number"),
        ("zookeeper://zk?sessions=65", "sessions is 65: it may be 1 to 64"),
    ] {
        let error = ZooKeeperBackend::from_url(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
}

#[test]
fn a_backend_refuses_what_was_built_wrongly() {
    let config = || ZooKeeperConfig::new(["zk"]).with_open_acl();
    for (config, hint) in [
        (ZooKeeperConfig::new([] as [&str; 0]), "no ZooKeeper server"),
        (ZooKeeperConfig::new(["zk", "zk2:x"]), "server 2"),
        (config().with_root("locks"), "root path is not valid"),
        (config().with_root("/zookeeper"), "belongs to the server"),
        (
            config().with_session_timeout(Duration::from_millis(99)),
            "session_timeout is 99ms",
        ),
        (
            config().with_session_timeout(Duration::from_secs(3601)),
            "session_timeout is 3601s",
        ),
        (config().with_connect_timeout(Duration::ZERO), "connect_timeout is zero"),
        (config().with_sessions(0), "sessions is 0"),
        (config().with_user("a:b").with_password("c"), "colon"),
        (config().with_user("").with_password("c"), "user is empty"),
        (config().with_user("a"), "no password"),
        (
            config().with_open_acl().with_previous_password("c"),
            "previous password",
        ),
        (config().with_password("c"), "no user"),
    ] {
        let error = ZooKeeperBackend::new(config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{hint}");
        assert!(error.to_string().contains(hint), "{hint}: {error}");
    }
}

#[test]
fn the_password_is_never_shown() {
    let config = ZooKeeperConfig::from_url("zookeeper://me:s3cret@zk?previous_password=old-s3cret").unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains("\"me\"") && !shown.contains("s3cret"), "{shown}");
    let wrong = ZooKeeperConfig::new(["me:s3cret@zk"]).with_user("me:s3cret");
    assert!(!format!("{wrong:?}").contains("s3cret"), "{wrong:?}");
    for url in [
        "zookeeper://me:s3cret%ff@zk",
        "zookeeper://me:s3cret@zk:x",
        "zookeeper://s3cret@zk",
        "zookeeper://me:123?s3cret@zk",
        "zookeeper://me:123?session_timeout=s3cret@zk",
        "zookeeper://me:123?s3cret",
        "zookeeper://me:123?session_timeout=s3cret",
        "zookeeper://me:123?heartbeat=s3cret@zk",
        "zookeeper://me:123?heartbeat=s3cret",
        "zookeeper://me:123?sessions=s3cret@zk",
        "zookeeper://me:123/s3cret@zk",
        "zookeeper://me:123#s3cret@zk",
        "zookeeper://me:1@2/s3cret@zk",
        "zookeeper://me:s3cret",
        "zookeeper://me:s3cret@@zk:x",
        "zookeeper://me:1/s3cret/../x",
        "zookeeper://me:1/s3cret/%ff",
        "zookeeper://me:12@zk,s3cret]",
        "s3cret",
    ] {
        let error = ZooKeeperBackend::from_url(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{url}: {error:?}");
    }
}

#[test]
fn a_password_that_has_to_be_encoded_is_hinted_at() {
    let all = "/?#@%:";
    let encoded = ZooKeeperConfig::from_url("zookeeper://me:%2F%3F%23%40%25:@zk").unwrap();
    assert_eq!(
        encoded.user.as_deref().zip(encoded.password.as_deref()),
        Some(("me", all))
    );
    let built = ZooKeeperConfig::new(["zk"]).with_user("me").with_password(all);
    assert_eq!(encoded, built);
    for character in ["/", "?", "#"] {
        let error = ZooKeeperBackend::from_url(&format!("zookeeper://me:12{character}3@zk")).unwrap_err();
        for code in ["%2F", "%3F", "%23", "%40"] {
            assert!(error.to_string().contains(code), "{character}: {error}");
        }
    }
    // The last one ends it.
    let config = ZooKeeperConfig::from_url("zookeeper://me:12@3@zk").unwrap();
    assert_eq!(
        config.user.as_deref().zip(config.password.as_deref()),
        Some(("me", "12@3"))
    );
}

/// Nodes that anybody may delete protect nothing from anybody: that has to be asked for.
#[test]
fn an_open_acl_must_be_asked_for() {
    let refused = ZooKeeperBackend::from_url("zookeeper://zk").unwrap_err();
    let built = ZooKeeperBackend::new(ZooKeeperConfig::new(["zk"])).unwrap_err();
    for error in [refused, built] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        let message = error.to_string();
        assert!(
            message.contains("zookeeper://user:password@host") && message.contains("acl=open"),
            "{message}"
        );
    }
    let open = ZooKeeperConfig::from_url("zookeeper://zk?acl=open").unwrap();
    assert!(open.has_open_acl());
    // A user may share nodes as well.
    assert!(
        ZooKeeperConfig::from_url("zookeeper://me:pw@zk?acl=open")
            .unwrap()
            .has_open_acl()
    );
    assert!(
        !ZooKeeperConfig::from_url("zookeeper://me:pw@zk")
            .unwrap()
            .has_open_acl()
    );
}

#[test]
#[cfg(not(feature = "tls"))]
fn tls_is_not_silently_left_out() {
    for url in [
        "zookeeper+tls://me:pw@zk",
        "zookeeper://me:pw@zk?tls=true",
        "zookeeper://me:pw@zk?ca=f",
    ] {
        let error = ZooKeeperBackend::from_url(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("--features zookeeper-tls"), "{error}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn tls_in_a_url() {
    use lock_tls::Tls;
    let config = |url: &str| ZooKeeperConfig::from_url(url).unwrap();
    assert_eq!(config("zookeeper://me:pw@zk").tls(), None);
    for url in [
        "zookeeper+tls://me:pw@zk",
        "zookeeper://me:pw@zk?tls=true",
        "ZooKeeper+TLS://me:pw@zk",
    ] {
        assert_eq!(config(url).tls(), Some(&Tls::new()), "{url}");
    }
    let full = config("zookeeper+tls://me:pw@zk?ca=/c%20a.pem&cert=c.pem&key=k.pem");
    let tls = Tls::new().with_ca("/c a.pem").with_certificate("c.pem", "k.pem");
    assert_eq!(full.tls(), Some(&tls));
    // A client certificate is an identity, a server's is not.
    assert!(!config("zookeeper+tls://zk?cert=c&key=k").has_open_acl());
    for (url, hint) in [
        ("zookeeper+tls://zk", "acl=open"),
        ("zookeeper+tls://zk?ca=c", "acl=open"),
        ("zookeeper://me:pw@zk?ca=c.pem", "add tls=true"),
        ("zookeeper+tls://me:pw@zk?cert=c", "set both"),
        ("zookeeper+tls://me:pw@zk..x", "host"),
        ("zookeeper+tls://me:pw@[fe80::1%eth0]", "host"),
    ] {
        let error = ZooKeeperBackend::from_url(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
}

#[test]
#[cfg(feature = "sasl")]
fn sasl_needs_a_user() {
    let error = ZooKeeperBackend::from_url("zookeeper://zk?auth=sasl&acl=open").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("auth=sasl needs a user"), "{error}");
    let digest = ZooKeeperConfig::from_url("zookeeper://me:pw@zk?auth=digest").unwrap();
    assert_eq!(digest, ZooKeeperConfig::new(["zk"]).with_user("me").with_password("pw"));
    assert_ne!(digest, digest.clone().with_sasl());
}

#[test]
#[cfg(not(feature = "sasl"))]
fn sasl_needs_its_feature() {
    let error = ZooKeeperBackend::from_url("zookeeper://me:pw@zk?auth=sasl").unwrap_err();
    assert!(error.to_string().contains("--features zookeeper-sasl"), "{error}");
}
