use super::*;

/// No answer of a server makes the error panic, and none is repeated in it.
#[test]
fn answers() {
    let words = &[
        "Zookeeper version: 3.8",
        "This ZooKeeper",
        "srvr is not executed",
        "Mode: ",
        "follower",
        "\n",
        "-ERR ",
        "-NOAUTH",
        "+PONG",
        "HTTP/1.1 ",
        "<html>",
        "\u{15}\u{3}\u{3}",
        "\u{16}\u{3}\u{1}",
        "\u{5b}\0\0\0\u{a}",
        "sesame",
    ];
    let seeds = &[
        "Zookeeper version: 3.8.0\nMode: follower\n",
        "-NOAUTH sesame\r\n",
        "HTTP/1.1 400 Bad Request",
        "\u{5b}\0\0\0\u{a}5.5.5-10.11",
        "\u{16}\u{3}\u{1}",
        "Mode: ",
        "\0\0\0\u{8}S",
        "",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let answer = text.as_bytes();
        let error = wrong_server("Redis", &"cache:6379", answer);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(!format!("{error} {error:?}").contains("sesame"), "{text:?}: {error:?}");
        if is_tls(answer) {
            assert_eq!(recognize(answer), Some("a server that wants TLS"), "{text:?}");
        }
        // What was recognized is not taken for the beginning of something else when more arrives.
        let longer = [answer, b"\nMode: standalone\n"].concat();
        assert!(
            recognize(answer).is_none() || recognize(&longer) == recognize(answer),
            "{text:?}"
        );
        assert!(
            has_mode(&longer) && (!has_mode(answer) || answer.contains(&b'\n')),
            "{text:?}"
        );
        assert!(
            !may_be_zookeeper(&longer) || may_be_zookeeper(answer) || answer.is_empty(),
            "{text:?}"
        );
    });
}
