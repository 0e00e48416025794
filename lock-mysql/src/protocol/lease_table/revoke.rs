//! The statements of a forced release.

use std::time::Duration;

use lock_core::backend::{HolderId, Revoke};
use lock_core::{FencingToken, LockName};

use super::LeaseStatements;
use super::sharing::IS_SHARED;
use crate::error::SqlError;
use crate::names::name_literal;
use crate::protocol::{StatementResult, column};

/// A hold that was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RevokedHold {
    /// The time for which it would have lasted.
    pub(crate) lease_left: Duration,
    /// The connection to [wake](super::wake); 0 for none.
    pub(crate) sleeper: u64,
}

impl LeaseStatements {
    /// A transaction that ends the hold with this token, whoever has it: at once, or when its lease ends; [`revoked`] reads the
    /// answer. It locks the name's row first, finds the holder, and then does as if that one had asked for its end.
    pub(crate) fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Vec<String> {
        let (literal, leases, holders) = (name_literal(name), &self.leases, &self.holders);
        let nobody = HolderId::random();
        let [lock, now] = self.lock_row(name);
        let mut all = vec![
            lock,
            now,
            format!(
                "SELECT MAX(`token`),MAX(`holder` IS NOT NULL) INTO @token,@held FROM `{leases}` WHERE `name`={literal}"
            ),
            format!(
                "SELECT MAX(`holder`),MAX(LEAST(`expires`,@now+`term`)) INTO @sharer,@ends FROM `{holders}` \
                 WHERE `name`={literal} AND `token`={token} AND `expires`>@now AND {IS_SHARED}"
            ),
            // The row's token is that of the grant; those up to the last one were reserved with it.
            format!(
                "SET @alone=COALESCE(@held AND NOT {IS_SHARED} AND @expires>@now AND @token<={token} AND @last>={token},0)"
            ),
            format!("SET @left=IF(@alone,LEAST(@expires-@now,@term),COALESCE(@ends-@now,-1))"),
            format!("SET @who=COALESCE(IF(@alone,@holder,@sharer),'{nobody}')"),
        ];
        match how {
            Revoke::AtLeaseEnd => {
                all.push(format!(
                    "UPDATE `{holders}` SET `holder`='{nobody}' \
                     WHERE `name`={literal} AND `holder`=@who AND `token`={token} AND {IS_SHARED}"
                ));
                all.push(format!(
                    "UPDATE `{leases}` SET `holder`='{nobody}' WHERE `name`={literal} AND @alone AND @holder<>''"
                ));
                all.push("SELECT CAST(@left AS SIGNED),CAST(0 AS UNSIGNED)".to_owned());
            }
            _ => {
                // Of nobody, so that what is not found changes nothing.
                let own = format!("'{nobody}'");
                let end = self.end(name, nobody).into_iter().skip(2);
                all.extend(end.map(|sql| sql.replace(&own, "@who")));
                all.push("SELECT CAST(@left AS SIGNED),CAST(LAST_INSERT_ID() AS UNSIGNED)".to_owned());
            }
        }
        all
    }
}

/// The hold that was revoked, if there was one.
pub(crate) fn revoked(result: &StatementResult) -> Result<Option<RevokedHold>, SqlError> {
    const WHAT: &str = "rest of a hold";
    let row = result.rows.first().ok_or(SqlError::UnexpectedAnswer(WHAT))?;
    let left: i64 = column(row, 0, WHAT)?;
    let answer: u64 = column(row, 1, WHAT)?;
    Ok(u64::try_from(left).ok().map(|left| RevokedHold {
        lease_left: Duration::from_micros(left),
        sleeper: answer & !super::sharing::ENDED,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::rows::{Value, row};

    #[test]
    fn a_revocation_says_what_was_left_and_whom_to_wake() {
        let read = |left, answer| {
            let result = StatementResult {
                rows: vec![row(&[Value::Signed(left), Value::Unsigned(answer)])],
                ..StatementResult::default()
            };
            revoked(&result).unwrap()
        };
        let hold = |millis, sleeper| RevokedHold {
            lease_left: Duration::from_millis(millis),
            sleeper,
        };
        assert_eq!(read(1_500_000, 1 << 63 | 9), Some(hold(1500, 9)));
        assert_eq!(read(0, 0), Some(hold(0, 0)));
        assert_eq!(read(-1, 0), None);
        assert!(revoked(&StatementResult::default()).is_err());
    }

    fn revoke(how: Revoke) -> Vec<String> {
        let name = LockName::new("a").unwrap();
        LeaseStatements::new("t").revoke(&name, FencingToken::new(9).unwrap(), how)
    }

    #[test]
    fn a_revocation_locks_the_row_first_and_tells_what_was_left() {
        for how in [Revoke::Now, Revoke::AtLeaseEnd] {
            let statements = revoke(how);
            assert!(
                statements[0].ends_with("FROM `t_leases` WHERE `name`=x'61' FOR UPDATE"),
                "{statements:?}"
            );
            let last = statements.last().expect("it has statements");
            assert!(last.starts_with("SELECT CAST(@left AS SIGNED),"), "{last}");
            // Nothing is changed by the token alone: it may be of a hold that has ended.
            let changes = statements.iter().filter(|sql| sql.starts_with("UPDATE"));
            for change in changes {
                assert!(change.contains("@who") || change.contains("@alone"), "{change}");
            }
        }
    }

    /// Then nobody renews it, and nobody overlaps it.
    #[test]
    fn a_hold_that_is_revoked_at_the_end_of_its_lease_stays_until_then() {
        let changes = |how| -> Vec<_> {
            revoke(how)
                .into_iter()
                .filter(|sql| sql.starts_with("UPDATE"))
                .collect()
        };
        for change in changes(Revoke::AtLeaseEnd) {
            assert!(
                change.contains(" SET `holder`='") && !change.contains("`expires`="),
                "{change}"
            );
        }
        for change in changes(Revoke::Now) {
            assert!(change.contains("`expires`="), "{change}");
        }
        assert!(changes(Revoke::AtLeaseEnd).len() == 2 && changes(Revoke::Now).len() == 2);
    }
}
