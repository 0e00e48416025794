use super::*;

fn refusal(url: &str) -> Error {
    let error = connect_lazy(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
    error
}

#[test]
fn an_unknown_scheme_names_those_there_are_and_no_secret() {
    for url in ["", "localhost", "etcd://user:secret@host", "secret"] {
        let error = refusal(url).to_string();
        assert!(error.contains("zookeeper://") && !error.contains("secret"), "{error}");
    }
    refusal("memory://name");
    refusal("memory:name?ttl=1");
}

#[test]
#[cfg(not(feature = "redis"))]
fn a_missing_feature_says_how_to_enable_it() {
    assert!(refusal("redis://host").to_string().contains("--features redis"));
}

#[test]
#[cfg(not(feature = "mysql"))]
fn so_does_that_of_mysql() {
    assert!(refusal("mysql://host").to_string().contains("--features mysql"));
}

#[test]
#[cfg(not(feature = "postgres"))]
fn and_that_of_postgresql() {
    assert!(refusal("postgres://host").to_string().contains("--features postgres"));
}

#[test]
#[cfg(not(feature = "zookeeper"))]
fn and_that_of_zookeeper() {
    assert!(refusal("zookeeper://host").to_string().contains("--features zookeeper"));
}

#[test]
#[cfg(all(feature = "redis", not(feature = "tls")))]
fn tls_to_redis_needs_a_feature() {
    for url in ["rediss://host", "redis://host?tls=true"] {
        assert!(refusal(url).to_string().contains("--features tls"));
    }
}

#[test]
#[cfg(all(feature = "redis", feature = "tls"))]
fn tls_to_redis_is_taken_with_its_feature() {
    for url in ["rediss://host", "Valkeys://host", "redis://host?tls=true&ca=ca.pem"] {
        connect_lazy(url).unwrap();
    }
}

#[test]
#[cfg(all(feature = "zookeeper", not(feature = "zookeeper-tls")))]
fn tls_to_zookeeper_needs_a_feature_of_its_own() {
    for url in ["zookeeper+tls://me:pw@host", "zookeeper://me:pw@host?tls=true"] {
        assert!(refusal(url).to_string().contains("--features zookeeper-tls"));
    }
}

#[test]
#[cfg(feature = "zookeeper-tls")]
fn tls_to_zookeeper_is_taken_with_its_feature() {
    for url in [
        "ZooKeeper+TLS://me:pw@host",
        "zookeeper://me:pw@host?tls=true&ca=ca.pem",
    ] {
        connect_lazy(url).unwrap();
    }
}

#[test]
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
fn with_a_feature_its_urls_are_taken_and_unknown_parameters_are_not() {
    for url in [
        "redis://localhost",
        "Redis://localhost",
        "REDIS+UNIX:///run/redis.sock",
        "Redis+Sentinel://localhost,localhost:26380/mymaster",
        "mysql://user:pw@localhost/db",
        "MySQL://user:pw@localhost/db",
        "MARIADB://localhost/db",
        "postgres://user:pw@localhost,other:5433/db",
        "PostgreSQL://user:pw@localhost/db",
        "zookeeper://user:pw@localhost/path",
        "ZooKeeper://user:pw@localhost/path",
    ] {
        connect_lazy(url).unwrap();
        let refused = refusal(&format!("{url}?colour=red")).to_string();
        assert!(refused.contains("`colour`") && !refused.contains("red,"), "{refused}");
        // This one may be a part of a password: it is not shown, and a hint says how to write one.
        let refused = refusal(&format!("{url}?previous_pass=a&colour=red")).to_string();
        assert!(!refused.contains("colour") && refused.contains('%'), "{refused}");
    }
}

#[test]
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
fn a_password_that_is_not_encoded_is_not_repeated_and_says_how_to_encode_it() {
    for scheme in ["redis", "MYSQL", "postgres", "zookeeper"] {
        for password in [
            "zq/cret", "zq#cret", "zq?cret", "12/cret", "12#cret", "12?cret", "/cret", "zq//cret",
        ] {
            let error = refusal(&format!("{scheme}://app:{password}@host/db"));
            let shown = format!("{error} {error:?}");
            assert!(
                !shown.contains("cret") && !shown.contains("zq"),
                "{scheme} {password}: {shown}"
            );
            for code in ["%2F", "%3F", "%23"] {
                assert!(shown.contains(code), "{scheme} {password}: {shown}");
            }
        }
    }
}

#[test]
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
fn a_duration_without_a_unit_says_how_to_write_one() {
    for url in [
        "redis://host/",
        "mysql://host/db",
        "postgres://host/db",
        "zookeeper://user:pw@host/",
    ] {
        for value in ["3", "3%20sekunden"] {
            let error = refusal(&format!("{url}?connect_timeout={value}")).to_string();
            assert!(
                error.contains("write 3s or 500ms") && !error.contains("sekunden"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
#[cfg(feature = "quorum")]
async fn a_quorum_is_of_the_servers_that_its_url_lists() {
    let [one, other] = [
        "quorum:memory:q1|memory:q2|memory:q3",
        "Quorum:?patience=1s|memory:q3|memory:q1|memory:q2",
    ];
    let (one, other) = (connect(one).await.unwrap(), connect(other).await.unwrap());
    let _guard = one.lock("a").acquire().await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    let twice = connect("quorum:memory:q4|memory:q4|memory:q5").await.unwrap_err();
    assert!(
        twice.to_string().contains("nodes 1 and 2 are the same server"),
        "{twice}"
    );
}

#[test]
#[cfg(feature = "quorum")]
fn a_node_that_may_forget_has_the_delay_of_its_quorum() {
    let delay = Some(std::time::Duration::from_secs(30));
    assert_eq!(node_url("redis://a", delay), "redis://a?restart_delay=30000ms");
    assert_eq!(
        node_url("rediss+sentinel://a,b/m?replicas=1", delay),
        "rediss+sentinel://a,b/m?replicas=1&restart_delay=30000ms"
    );
    assert_eq!(node_url("redis://a", None), "redis://a");
    for own in [
        "redis://a?restart_delay=0s",
        "mysql://a/b?strategy=lease",
        "zookeeper://a",
        "memory:a",
    ] {
        assert_eq!(node_url(own, delay), own);
    }
}

#[test]
#[cfg(feature = "quorum")]
fn a_quorum_names_the_node_whose_url_cannot_be_used() {
    for url in [
        "quorum:memory:|etcd://user:secret@a",
        "quorum:memory:|quorum:memory:|memory:",
    ] {
        let refused = refusal(url).to_string();
        assert!(refused.contains("node 2") && !refused.contains("secret"), "{refused}");
    }
}

#[tokio::test]
async fn a_named_memory_is_shared_and_an_unnamed_one_is_not() {
    let first = connect("memory:shared").await.unwrap();
    let second = connect("Memory:shared").await.unwrap();
    let private = connect("memory:").await.unwrap();
    let _guard = first.lock("a").acquire().await.unwrap();
    assert!(second.lock("a").try_acquire().await.unwrap().is_none());
    assert!(private.lock("a").try_acquire().await.unwrap().is_some());
}

#[test]
#[cfg(feature = "quorum")]
fn a_quorum_s_restart_delay_is_left_out_only_where_a_node_has_its_own() {
    let minute = Some(std::time::Duration::from_secs(60));
    for (url, expected) in [
        ("redis://a", "redis://a?restart_delay=60000ms"),
        ("redis://a?prefix=p", "redis://a?prefix=p&restart_delay=60000ms"),
        (
            "redis://a?prefix=restart_delay=",
            "redis://a?prefix=restart_delay=&restart_delay=60000ms",
        ),
        (
            "redis://:restart_delay=1s@a",
            "redis://:restart_delay=1s@a?restart_delay=60000ms",
        ),
        ("redis://a#x", "redis://a?restart_delay=60000ms#x"),
        ("redis://a?x=1&restart_delay=90s", "redis://a?x=1&restart_delay=90s"),
        ("mysql://a/b?strategy=lease", "mysql://a/b?strategy=lease"),
    ] {
        assert_eq!(node_url(url, minute), expected);
    }
}
