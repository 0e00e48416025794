//! The checks of a server that is to keep leases, by each connection for acquires.

use lock_core::{Error, ErrorKind, Guarantee, Result, Verdict};
use lock_kit::guarantees::settings_not_checked;
use parking_lot::Mutex;
use sqlx::mysql::MySqlRow;

use super::{durability, leases_keep, proxy};
use crate::config::{Checks, MySqlConfig};
use crate::connection::Session;
use crate::error::{RequestError, SqlError};
use crate::protocol::column;

/// Selects, in the second column, whether `SYSDATE` runs during a statement. The first column takes about a
/// millisecond. It is no `SLEEP`, since that might last for as long as the clock is set back meanwhile.
const PASSING_TIME: &str = "SELECT CAST(BENCHMARK(10000,RAND()) AS SIGNED),CAST(SYSDATE(6)<>NOW(6) AS SIGNED)";

/// What the server said that was checked last.
#[derive(Debug, Default)]
pub(crate) struct LeaseServer {
    /// Whether leases survive a crash, by its settings.
    survives_crash: Mutex<Option<Verdict>>,
    /// The settings that were warned of last.
    findings: Mutex<Vec<String>>,
}

impl LeaseServer {
    pub(crate) fn keeps(&self, guarantee: Guarantee) -> Verdict {
        leases_keep(guarantee, self.survives_crash.lock().as_ref())
    }

    /// Checks the server of this session in one round trip.
    ///
    /// If a proxy gives each statement another connection of the server, clocks differ by their time zones, and no connection
    /// can be found to end what it executes. With another meaning of `SYSDATE`, a statement that has waited for its row would
    /// cut a hold that began meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the session is not as it was set up, if `SYSDATE` is not the present, or if settings by which
    /// a crash loses leases are [refused](Checks::Refuse).
    pub(crate) async fn check(&self, session: &Session, config: &MySqlConfig) -> Result<()> {
        let checked = self.checked(session, config).await;
        checked.map_err(RequestError::into_lock_error)
    }

    async fn checked(&self, session: &Session, config: &MySqlConfig) -> Result<(), RequestError> {
        let set_up = proxy::asks_for_set_up(session.identity());
        let mut sql = format!("{PASSING_TIME},{set_up}");
        if config.checks != Checks::Off {
            sql = format!("{sql};{}", durability::VARIABLES);
        }
        let answer = session.run(sql, None, config.response_timeout).await?;
        let row = answer.row(0).ok_or(SqlError::UnexpectedAnswer("clock"))?;
        proxy::check_set_up(row, 2)?;
        let passes: i64 = column(row, 1, "clock")?;
        if passes == 0 {
            let message = "the MySQL server's option sysdate-is-now would end leases too early: start it without";
            return Err(Error::new(ErrorKind::Misconfigured, message).into());
        }
        let verdict = match answer.results.get(1) {
            _ if config.checks == Checks::Off => settings_not_checked(),
            Some(variables) => self.judged(config, &variables.rows)?,
            None => return Err(SqlError::UnexpectedAnswer("variables").into()),
        };
        *self.survives_crash.lock() = Some(verdict);
        Ok(())
    }

    /// Warns of the settings by which leases are lost if it has not warned of them yet, or refuses them.
    fn judged(&self, config: &MySqlConfig, rows: &[MySqlRow]) -> Result<Verdict, RequestError> {
        let (verdict, findings) = durability::judge(rows)?;
        let mut last = self.findings.lock();
        if *last != findings || config.checks == Checks::Refuse {
            config.checks.apply("MySQL server", &config.address(), &findings)?;
        }
        *last = findings;
        Ok(verdict)
    }
}
