//! The session timeout that the server grants, where it is not the configured one.

use std::time::Duration;

use parking_lot::Mutex;

/// Logs each timeout once.
#[derive(Debug, Default)]
pub(super) struct GrantedTimeout(Mutex<Option<Duration>>);

impl GrantedTimeout {
    /// A session was granted this timeout.
    pub(super) fn note(&self, asked: Duration, granted: Duration) {
        if !self.is_news(granted) {
            return;
        }
        if let Some(finding) = finding(asked, granted) {
            tracing::warn!(target: "polylock", "{finding}");
        }
    }

    fn is_news(&self, granted: Duration) -> bool {
        // Every critical section leaves it whole.
        let mut last = self.0.lock();
        last.replace(granted) != Some(granted)
    }
}

fn finding(asked: Duration, granted: Duration) -> Option<String> {
    let advice = if granted > asked {
        "its minSessionTimeout is longer. A dead client's holds survive that long, and shorter ttls are refused: raise \
         session_timeout, or lower minSessionTimeout"
    } else if granted < asked {
        "its maxSessionTimeout is shorter. Holds survive only shorter outages: lower session_timeout, or raise \
         maxSessionTimeout"
    } else {
        return None;
    };
    Some(format!(
        "ZooKeeper grants a session timeout of {granted:?} instead of session_timeout={asked:?}, since {advice}"
    ))
}

/// Why a session ends that was granted the timeout `before`, and at a reconnect another one.
pub(super) fn change(before: Duration, now: Duration) -> String {
    format!(
        "ZooKeeper now grants this session a timeout of {now:?} instead of {before:?}, so it was ended, and its holds are lost: give all \
         servers of an ensemble the same tickTime, minSessionTimeout and maxSessionTimeout"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Duration = Duration::from_secs(10);

    #[test]
    fn another_timeout_names_both_settings() {
        assert_eq!(finding(ASKED, ASKED), None);
        let longer = finding(ASKED, 2 * ASKED).unwrap();
        assert!(
            longer.contains("20s instead of session_timeout=10s, since its minSessionTimeout"),
            "{longer}"
        );
        let shorter = finding(ASKED, ASKED / 2).unwrap();
        assert!(
            shorter.contains("5s instead of session_timeout=10s, since its maxSessionTimeout"),
            "{shorter}"
        );
    }

    #[test]
    fn each_timeout_is_news_once() {
        let granted = GrantedTimeout::default();
        assert!(granted.is_news(ASKED) && !granted.is_news(ASKED));
        assert!(granted.is_news(2 * ASKED) && !granted.is_news(2 * ASKED));
    }
}
