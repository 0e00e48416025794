use futures_util::FutureExt;

use super::*;

/// The payloads of notifications, which anybody may send. In them, `\u{1}` and `\u{2}` stand for the ids of two waiters.
#[test]
fn calls() {
    let words = &[
        "\u{1}",
        "\u{2}",
        ":1",
        ":2",
        ":",
        "-",
        "{",
        "}",
        "urn:uuid:",
        "00000000000000000000000000000000",
        "\u{e9}",
    ];
    let seeds = &[
        "\u{1}:1",
        "\u{1}:2",
        "\u{2}",
        "\u{1}\u{2}:1",
        "urn:uuid:\u{1}:1",
        "{\u{1}}:1",
        ":1",
        "\u{2}:9223372036854775808",
        "00000000000000000000000000000000:1",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let (waits, waiters) = (Waits::default(), [(); 2].map(|()| HolderId::random()));
        let woken = waiters.map(|holder| waits.refused(holder, Duration::ZERO));
        let ids = waiters.map(|holder| holder.to_string());
        let payload = text.replace('\u{1}', &ids[0]).replace('\u{2}', &ids[1]);
        waits.called(&payload);
        for (id, woken) in ids.iter().zip(&woken) {
            let is = |notify: &Notify| notify.notified().now_or_never().is_some();
            let (turn, stand_by) = (is(&woken.turn), is(&woken.stand_by));
            assert!(!(turn && stand_by), "{text:?}");
            // Whoever wakes is named, and whoever is called as this crate calls it wakes.
            assert!(!(turn || stand_by) || payload.contains(id.as_str()), "{text:?}");
            assert!(turn || (payload != *id && payload != format!("{id}:1")), "{text:?}");
            assert!(stand_by || payload != format!("{id}:2"), "{text:?}");
        }
    });
}
