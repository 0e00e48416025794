use super::*;

/// A label is a mark of ours or none, whoever wrote it, and is written as it was read.
#[test]
fn marks() {
    let words = &[
        "quorum of ",
        " nodes, delay ",
        " ms, list ",
        "3",
        "5",
        "0",
        "60000",
        "0000000a",
        "ffffffff",
        ",",
        "18446744073709551615",
        "-1",
        "+",
        "\u{e9}",
    ];
    let seeds = &[
        "quorum of 3 nodes, delay 60000 ms, list 0000000a,0000000b,ffffffff",
        "quorum of 18446744073709551615 nodes, delay 0 ms, list ",
        "quorum of 3 nodes, delay 18446744073709551615 ms, list ",
        "quorum of 3 nodes, delay 0 ms, list b,a",
        "quorum of 0 nodes, delay 0 ms, list a",
        "host:7",
        "quorum of +3 nodes, delay 0 ms, list ,,a",
    ];
    testbed_fuzz::fuzz!(words, seeds, |label| {
        let Some(mark) = Mark::parse(label) else { return };
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark.clone()), "{label:?}");
        let own = [10, 11, u32::MAX];
        let (all, first) = ((0..3).collect(), [0].into());
        for delay in [None, Some(Duration::from_secs(60))] {
            let us = Mark::new(3, delay, &own);
            let alike = us.beside(&us, &own, &all, &all, &BTreeSet::new());
            assert!(alike.is_ok_and(|limit| limit.is_none()));
            for answered in [&all, &first] {
                // Nobody goes on with the same lock beside a process that may have a majority of its own.
                let beside = us.beside(&mark, &own, &first, answered, &BTreeSet::new()).is_ok();
                assert!(!beside || mark.nodes <= 4, "{label:?}");
            }
        }
    });
}
