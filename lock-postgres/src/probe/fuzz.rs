use lock_core::Guarantee;

use super::*;
use crate::{Checks, Pooler};

/// A row of the probe: its columns, with `|` between them, and `~` for one that is `NULL`.
#[test]
fn probes() {
    let words = &[
        "polylock|",
        "|",
        "~",
        "t",
        "f",
        "on",
        "off",
        "local",
        "remote_apply",
        "remote_write",
        "read committed",
        "repeatable read",
        "150018",
        "120000",
        "119999",
        "4294967296",
        "-1",
        "0",
        "1s",
        "\u{e9}",
        "ANY 1 (a)",
    ];
    let seeds = &[
        "polylock|f|150018|read committed|on||on|on|off|1s",
        "polylock|f|150018|read committed|on||on|on|off|0",
        "polylock|f|150018|read committed|on|a|on|on|off|0|t_leases and t_holders",
        "polylock|f|150018|read committed|on||on|on|on",
        "polylock|f|120000|repeatable read|remote_apply|ANY 1 (a)|on|on",
        "polylock|t|150018|read committed|off||off|off|on",
        "polylock|f|119999",
        "polylock|f|4294967296",
        "polylock|f|150018",
        "polylock|~|150018|~|~|~|~|~",
        "f|150018",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let column = |column| (column != "~").then(|| str::to_owned(column));
        let rows: TextRows = vec![Vec::new(), text.split('|').map(column).collect()];
        let value = |number: usize| rows[1].get(number).cloned().flatten().unwrap_or_default();
        let probe = match Probe::read(&rows) {
            Ok(probe) => probe,
            Err(error) => {
                let error = error.into_lock_error();
                assert_eq!(error.kind(), ErrorKind::Unexpected, "{text:?}");
                assert!(error.to_string().contains("please report it"), "{error}");
                return;
            }
        };
        let is_kept = value(10).is_empty()
            && value(6) == "on"
            && value(7) == "on"
            && ["on", "remote_apply", "remote_write", "local"].contains(&value(4).as_str());
        let keeps = |checks| leases_keep(Guarantee::ServerCrash, Some(&probe), checks).is_yes();
        assert_eq!((keeps(Checks::Warn), keeps(Checks::Off)), (is_kept, false), "{text:?}");
        let failover = leases_keep(Guarantee::Failover, Some(&probe), Checks::Warn);
        assert!(!failover.is_yes(), "{text:?}");
        let config = PostgresConfig::new("db", 5432).with_database("shop");
        for checks in [Checks::Warn, Checks::Refuse, Checks::Off] {
            for pooler in [Pooler::None, Pooler::Transaction] {
                let config = config.clone().with_checks(checks).with_pooler(pooler);
                let is_right = value(1) != "t"
                    && value(8) != "on"
                    && value(2).parse::<u32>().is_ok_and(|version| version >= 120_000)
                    && (pooler == Pooler::None || value(3) == "read committed" && value(9) != "0")
                    && (checks != Checks::Refuse || is_kept);
                let checked = probe.check(&config, "db:5432");
                let checked = checked.and_then(|()| probe.judge(checks, "db:5432", None));
                assert_eq!(checked.is_ok(), is_right, "{text:?}");
                let Err(error) = checked else { continue };
                let said = error.to_string();
                assert!(said.contains("the PostgreSQL server at db:5432 "), "{said}");
                // One that may become the right server is worth another try; all else must be changed.
                let writes_later = said.contains("is a standby") || said.contains("takes no writes");
                let kinds = [ErrorKind::Misconfigured, ErrorKind::Unavailable];
                assert_eq!(error.kind(), kinds[usize::from(writes_later)], "{said}");
            }
        }
    });
}
