use lock_core::ErrorKind;

use super::error::is_conflict_number;
use super::*;

#[test]
fn the_version_is_compared_and_counted_up() {
    let lock = OptimisticLock::new("t").unwrap().with_columns("k", "v").unwrap();
    let mut new = NewValues::default();
    new.set("a", 1);
    new.set("b", "x");
    assert_eq!(
        lock.compare_and_set(&new).unwrap(),
        "UPDATE `t` SET `a`=?,`b`=?,`v`=`v`+1 WHERE `k`=? AND `v`=?"
    );
}

#[test]
fn all_columns_are_read_or_those_that_are_named() {
    let lock = OptimisticLock::new("t").unwrap().with_columns("k", "v").unwrap();
    assert_eq!(lock.select(), "SELECT * FROM `t` WHERE `k`=?");
    let lock = lock.with_read_columns(["a", "b"]).unwrap();
    assert_eq!(lock.select(), "SELECT `a`,`b`,`v` FROM `t` WHERE `k`=?");
    let error = lock.with_read_columns(["a", "b`"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

#[test]
fn a_version_must_be_able_to_grow() {
    for (type_name, is_unsigned, largest) in [
        ("BOOLEAN", false, 127),
        ("BOOLEAN", true, 255),
        ("TINYINT", false, 127),
        ("SMALLINT UNSIGNED", true, 65_535),
        ("MEDIUMINT", false, (1 << 23) - 1),
        ("INT UNSIGNED", true, (1 << 32) - 1),
        ("BIGINT", false, i128::from(i64::MAX)),
        ("BIGINT UNSIGNED", true, i128::from(u64::MAX)),
    ] {
        check_version("v", -1, type_name, is_unsigned).unwrap();
        check_version("v", largest - 1, type_name, is_unsigned).unwrap();
        check_version("v", largest, type_name, is_unsigned).unwrap_err();
    }
    check_version("v", 1, "YEAR", true).unwrap_err();
}

#[test]
fn conflicts_of_clusters_are_conflicts() {
    for number in [1205, 1213, 1020, 3101] {
        assert!(is_conflict_number(number));
    }
    assert!(!is_conflict_number(1062));
}

#[test]
fn identifiers_that_need_an_escape_are_refused() {
    let lock = OptimisticLock::new("t").unwrap();
    for bad in ["", "a`b", "a b", "ö"] {
        assert_eq!(OptimisticLock::new(bad).unwrap_err().kind(), ErrorKind::Misconfigured);
        for (key, version) in [(bad, "v"), ("k", bad)] {
            let error = lock.clone().with_columns(key, version).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
        }
    }
    for bad in ["a`b", "", "Version"] {
        let mut new = NewValues::default();
        new.set(bad, 1);
        lock.compare_and_set(&new).unwrap_err();
    }
}
