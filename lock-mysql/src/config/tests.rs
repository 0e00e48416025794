use super::*;

fn refusal(url: &str) -> String {
    let error = MySqlConfig::from_url(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(!error.is_retryable());
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    error.to_string()
}

#[test]
fn everything_a_url_can_say() {
    let config = MySqlConfig::from_url(
        "mysql://app:s3cret%2F@[::1]:3307/shop?table=t_1&connect_timeout=2s&response_timeout=500ms&max_connections=9&ssl-mode=DISABLED",
    )
    .unwrap();
    assert_eq!(config.address(), "::1:3307");
    assert_eq!((config.table(), config.max_connections()), ("t_1", 9));
    assert_eq!(config.connect_timeout(), Duration::from_secs(2));
    assert_eq!(config.response_timeout(), Duration::from_millis(500));
    assert_eq!(config.options().get_database(), Some("shop"));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn what_a_url_leaves_out_has_a_default() {
    let config = MySqlConfig::from_url("mariadb://localhost/shop").unwrap();
    assert_eq!(config.address(), "localhost:3306");
    assert_eq!((config.table(), config.max_connections()), ("polylock", 64));
    assert_eq!(config.connect_timeout(), Duration::from_secs(5));
}

#[test]
fn a_refusal_says_what_to_write() {
    assert!(refusal("redis://:s3cret@localhost/1").contains("mysql://"));
    assert!(refusal("s3cret").contains("mysql://"));
    assert!(refusal("mysql://u:s3cret@localhost").contains("database"));
    let unknown = refusal("mysql://u:s3cret@localhost/d?tabel=x");
    assert!(
        unknown.contains("\"tabel\"") && unknown.contains("table, connect_timeout"),
        "{unknown}"
    );
    assert!(refusal("mysql://u:s3cret@localhost/d?connect_timeout=5").contains("5s"));
    assert!(refusal("mysql://u:s3cret@localhost/d?connect_timeout=0s").contains("1ms to 1h"));
    assert!(refusal("mysql://u:s3cret@localhost/d?max_connections=0").contains("from 1"));
    assert!(refusal("mysql://u:s3cret@localhost/d?max_connections=many").contains("a number"));
    assert!(refusal("mysql://u:s3cret@localhost/d?table=a.b").contains("1 to 48 letters"));
    assert!(refusal("mysql://u:s3cret@localhost/d?ssl-mode=maybe").contains("driver"));
}
