use super::*;
use crate::backend::Capabilities;

/// What is read is written so that it is read again as the same. A verdict is there for all of them.
#[test]
fn guarantees() {
    let words = &[
        "permits:",
        "ttl:",
        "fifo",
        "failover",
        "server-crash",
        "minimum-hold",
        "1s",
        "500ms",
        "1m30s",
        "2years",
        "4294967295",
        "-1",
        "18446744073709551615s",
        "ns",
        "\u{e9}",
        " ",
    ];
    let seeds = &[
        "permits:5",
        "ttl:1m30s",
        "ttl:1h 7ms",
        "ttl:18446744073709551615s",
        "ttl:18446744073709551615s1000ms",
        "ttl:0s",
        "ttl:4294967295 2years",
        "ttl:9999999999years9999999999years",
        "fifo",
        "fifo:1",
        "permits:",
        "permits:-1",
        "ttl:",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let Ok(guarantee) = text.parse::<Guarantee>() else {
            return;
        };
        let written = guarantee.to_string();
        assert_eq!(
            written.parse::<Guarantee>().ok(),
            Some(guarantee),
            "{text:?} is written as {written:?}"
        );
        assert!(written.starts_with(guarantee.id()), "{written:?}");
        let _verdict = Capabilities::default().verdict(guarantee);
    });
}
