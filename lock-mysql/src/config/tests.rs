use lock_core::{CredentialSource, Credentials, Error, ErrorKind};

use super::*;
use crate::{LeaseTableBackend, RowLockBackend};

fn refusal(url: &str) -> String {
    let error = MySqlConfig::from_url(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(!error.is_retryable());
    let shown = chain(&error);
    assert!(!shown.contains("s3cret"), "{shown}");
    error.to_string()
}

/// All that an error shows, with its causes.
fn chain(error: &Error) -> String {
    format!("{error} {error:?}")
}

#[test]
fn everything_a_url_can_say() {
    let config = MySqlConfig::from_url(
        "mysql://app:s3cret%2F@[::1]:3307/shop?table=t_1&connect_timeout=2s&response_timeout=500ms&max_connections=9&strategy=lease&retention=2d&single_writer=true&max_read_only=7s&checks=refuse&ssl-mode=DISABLED",
    )
    .unwrap();
    assert_eq!(config.address(), "::1:3307");
    assert_eq!((&*config.table, config.max_connections), ("t_1", 9));
    assert_eq!(config.strategy(), Strategy::Lease);
    assert_eq!(config.retention, Duration::from_secs(2 * 24 * 3600));
    assert_eq!(config.max_read_only, Duration::from_secs(7));
    assert_eq!((config.checks, config.single_writer), (Checks::Refuse, true));
    assert_eq!(config.connect_timeout, Duration::from_secs(2));
    assert_eq!(config.response_timeout, Duration::from_millis(500));
    assert_eq!(config.options.get_database(), Some("shop"));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn by_hand_is_the_same_as_by_url() {
    let by_hand = MySqlConfig::new("db", 3307)
        .with_user("app")
        .with_password("s3cret")
        .with_database("shop")
        .with_table("t_1")
        .with_connect_timeout(Duration::from_secs(2))
        .with_response_timeout(Duration::from_millis(500))
        .with_max_connections(9)
        .with_single_writer(true)
        .with_strategy(Strategy::Lease)
        .with_retention(Duration::from_secs(60));
    by_hand.check().unwrap();
    let by_url = MySqlConfig::from_url(
        "mysql://app:s3cret@db:3307/shop?table=t_1&connect_timeout=2s&response_timeout=500ms&max_connections=9&strategy=lease&retention=1min&single_writer=true",
    )
    .unwrap();
    assert_eq!(format!("{by_hand:?}"), format!("{by_url:?}"));
    // The driver's own Debug shows everything.
    assert_eq!(format!("{:?}", by_hand.options), format!("{:?}", by_url.options));
    assert!(!format!("{by_hand:?}").contains("s3cret"));
}

#[test]
fn what_is_left_out_by_hand_has_a_default() {
    let config = MySqlConfig::new("db", 3306).with_database("shop");
    config.check().unwrap();
    assert_eq!(config.options.get_username(), "root");
    assert_eq!(config.table, MySqlConfig::DEFAULT_TABLE);
    assert_eq!(config.connect_timeout, MySqlConfig::DEFAULT_CONNECT_TIMEOUT);
    assert_eq!(config.response_timeout, MySqlConfig::DEFAULT_RESPONSE_TIMEOUT);
    assert_eq!(config.max_connections, MySqlConfig::DEFAULT_MAX_CONNECTIONS);
}

#[test]
fn a_backend_refuses_what_no_builder_method_could() {
    let good = || MySqlConfig::new("db", 3306).with_database("shop");
    let (zero, long) = (Duration::ZERO, Duration::from_secs(3601));
    for (config, what) in [
        (MySqlConfig::new("", 3306).with_database("shop"), "host"),
        (MySqlConfig::new("db", 3306), "with_database"),
        (MySqlConfig::from_options(MySqlConnectOptions::new()), "with_database"),
        (good().with_database(""), "with_database"),
        (good().with_database("shop\0"), "a NUL"),
        (good().with_password("s3cret\0"), "a NUL"),
        (MySqlConfig::new("db\0", 3306).with_database("shop"), "a NUL"),
        (good().with_table(""), "1 to 48 letters"),
        (good().with_table("a-b"), "1 to 48 letters"),
        (good().with_connect_timeout(zero), "connect_timeout"),
        (good().with_connect_timeout(long), "1ms to 1h"),
        (good().with_response_timeout(zero), "response_timeout"),
        (good().with_max_connections(0), "max_connections"),
        (good().with_max_connections(100_001), "from 1 to 100000"),
    ] {
        let error = RowLockBackend::new(config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(what), "{error}");
    }
    RowLockBackend::new(good()).unwrap();
    let socket = MySqlConnectOptions::new().host("").socket("/s").database("shop");
    RowLockBackend::new(MySqlConfig::from_options(socket)).unwrap();
}

#[test]
fn a_backend_from_a_url() {
    let backend = RowLockBackend::from_url("mysql://app:s3cret@db:3307/shop").unwrap();
    let shown = format!("{backend:?}");
    assert!(shown.contains("db:3307") && !shown.contains("s3cret"), "{shown}");
    let error = RowLockBackend::from_url("mysql://app:s3cret@db:3307").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

#[test]
fn what_a_url_leaves_out_has_a_default() {
    let config = MySqlConfig::from_url("mariadb://localhost/shop").unwrap();
    assert_eq!(config.address(), "localhost:3306");
    assert_eq!((&*config.table, config.max_connections), ("polylock", 64));
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
}

#[test]
fn a_refusal_says_what_to_write() {
    for no_url in [
        "redis://:s3cret@localhost/1",
        "s3cret",
        "s3cret:x@h/d",
        "mysql:u:s3cret@h/d",
        "mysql://u:s3cret@h:x",
    ] {
        assert!(refusal(no_url).contains("mysql://"), "{no_url}");
    }
    assert!(refusal("mysql://u:s3cret@localhost").contains("database"));
    let unknown = refusal("mysql://u:s3cret@localhost/d?tabel=x");
    assert!(unknown.contains("table, connect_timeout"), "{unknown}");
    assert!(refusal("mysql://u:s3cret@localhost/d?connect_timeout=5").contains("write 3s or 500ms"));
    assert!(refusal("mysql://u:s3cret@localhost/d?connect_timeout=0s").contains("1ms to 1h"));
    assert!(refusal("mysql://u:s3cret@localhost/d?max_connections=0").contains("from 1"));
    assert!(refusal("mysql://u:s3cret@localhost/d?max_connections=many").contains("a number"));
    assert!(refusal("mysql://u:s3cret@localhost/d?single_writer=1").contains("must be true or false"));
    assert!(refusal("mysql://u:s3cret@localhost/d?table=a.b").contains("1 to 48 letters"));
    assert!(refusal("mysql://u:s3cret@localhost/d?ssl-mode=maybe").contains("VERIFY_CA"));
    assert!(refusal("mysql://u:s3cret%ff@localhost/d").contains("UTF-8"));
    for nul in [
        "mysql://u:s3cret%00@localhost/d",
        "mysql://u%00:s3cret@localhost/d",
        "mysql://u:s3cret@localhost/d%00",
        "mysql://u:s3cret@localhost/d?socket=/s%00",
    ] {
        assert!(refusal(nul).contains("a NUL"), "{nul}");
    }
}

#[test]
fn a_password_that_is_not_encoded_is_never_shown() {
    for url in [
        "mysql://u:12?s3cret@h:3306/d",
        "mysql://u:12?s3cret=x@h/d",
        "mysql://u:12?table=s3cret@h/d",
        "mysql://u:12?socket=/s3cret@h/d",
        "mysql://u:12/s3cret@h:3306/d",
        "mysql://u:12/d?table=s3cret@h/d",
        "mysql://u:12#s3cret@h:3306/d",
        "mysql://u:x@12#s3cret@h/d",
        "mysql://u:x@12/d#s3cret",
    ] {
        let hint = refusal(url);
        assert!(hint.contains("%23") && hint.contains("%3F"), "{url}: {hint}");
    }
    for url in [
        "mysql://u:12?s3cret",
        "mysql://u:12/d?s3cret=1",
        "mysql://u:12/d?x=s3cret",
        "mysql://u:12/d?table=s3cret%20",
        "mysql://u:12/d?connect_timeout=5s3cret",
        "mysql://u:12/d?connect_timeout=s3cret",
        "mysql://u:12/d?max_connections=s3cret",
        "mysql://u:12/d?ssl-mode=s3cret",
        "mysql://u:12/d?single_writer=s3cret",
        "mysql://u:s3cret@h@/",
        "mysql://u:s3cret[@h:x/d",
        "mysql://u:s3cret%@h:99999/d",
        "mysql://u:s3cret",
        "mysql://s3cret://h/d",
    ] {
        refusal(url);
    }
    let encoded = MySqlConfig::from_url("mysql://u:12%3Fs3cret%23%2F%40@h/d").unwrap();
    assert_eq!(encoded.address(), "h:3306");
}

#[test]
fn no_url_panics() {
    let seed = "mysql://app:secret@[::1]:3306/shop?table=t&connect_timeout=2s&ssl-mode=DISABLED&socket=%2Fs";
    let pieces = [
        ":",
        "/",
        "?",
        "#",
        "[",
        "]",
        "@",
        "%",
        "%ff",
        "=",
        "&",
        "\\",
        " ",
        "\0",
        "é",
        "99999999999999999999",
    ];
    for at in (0..=seed.len()).filter(|at| seed.is_char_boundary(*at)) {
        for piece in pieces {
            let (before, after) = seed.split_at(at);
            drop(MySqlConfig::from_url(&format!("{before}{piece}{after}")));
            drop(MySqlConfig::from_url(&format!("{before}{piece}")));
        }
    }
}

#[test]
fn a_backend_takes_its_own_strategy_alone() {
    let config = || MySqlConfig::new("db", 3306).with_database("shop");
    let lease = || config().with_strategy(Strategy::Lease);
    assert!(RowLockBackend::new(config()).is_ok() && LeaseTableBackend::new(lease()).is_ok());
    for error in [
        RowLockBackend::new(lease()).unwrap_err(),
        LeaseTableBackend::new(config()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("strategy=lease"), "{error}");
    }
    let shown = |config| format!("{:?}", crate::backend(config).unwrap());
    assert!(shown(config()).starts_with("RowLock") && shown(lease()).starts_with("LeaseTable"));
    assert!(refusal("mysql://u:s3cret@db/d?retention=59s").contains("retention must be"));
    assert!(refusal("mysql://u:s3cret@db/d?strategy=Lease").contains("must be row or lease"));
}

#[test]
fn tls_in_a_url_means_a_verified_server() {
    let mode = |url: &str| MySqlConfig::from_url(url).unwrap().options.get_ssl_mode();
    for url in ["mysql://h/d", "mysql://h/d?ssl-mode=PREFERRED"] {
        assert!(matches!(mode(url), MySqlSslMode::Preferred), "{url}");
    }
    for url in ["mysql://h/d?tls=false", "mysql://h/d?ssl-mode=DISABLED"] {
        assert!(matches!(mode(url), MySqlSslMode::Disabled), "{url}");
    }
    for parameters in [
        "tls=true",
        "ssl-mode=REQUIRED",
        "ssl-mode=VERIFY_CA",
        "ssl-mode=VERIFY_IDENTITY",
    ] {
        let url = format!("mysql://h/d?{parameters}");
        assert!(matches!(mode(&url), MySqlSslMode::VerifyIdentity), "{url}");
    }
    let tls = Tls::new().with_ca("c a.pem").with_certificate("c.pem", "k.pem");
    for parameters in [
        "tls=true&ca=c%20a.pem&cert=c.pem&key=k.pem",
        "ssl-ca=c%20a.pem&ssl-cert=c.pem&ssl-key=k.pem&ssl-mode=REQUIRED",
    ] {
        let config = MySqlConfig::from_url(&format!("mysql://h/d?{parameters}")).unwrap();
        assert_eq!(config.tls.as_ref(), Some(&tls), "{parameters}");
    }
    for (parameters, hint) in [
        ("ca=c.pem", "add tls=true"),
        ("ssl-ca=c.pem", "add tls=true"),
        ("tls=true&cert=c.pem", "set both"),
        ("tls=true&ssl-mode=DISABLED", "choose one"),
        ("tls=true&socket=%2Fs", "Unix socket"),
    ] {
        let error = MySqlConfig::from_url(&format!("mysql://h/d?{parameters}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{parameters}");
        assert!(error.to_string().contains(hint), "{parameters}: {error}");
    }
    let unverified = MySqlConnectOptions::new()
        .database("d")
        .ssl_mode(MySqlSslMode::VerifyCa);
    assert!(MySqlConfig::from_options(unverified).check().is_err());
}

#[tokio::test]
async fn a_nul_from_a_source_is_refused() {
    let source = CredentialSource::ask(async || Ok(Credentials::new("s3cret\0")));
    let config = MySqlConfig::new("db", 3306)
        .with_database("shop")
        .with_credentials(source);
    let error = config.options_now(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        chain(&error).contains("a NUL") && !chain(&error).contains("s3cret"),
        "{error:?}"
    );
}
