//! The pauses of a case that waits for what nobody announces.

use std::time::Duration;

use tokio::time::sleep;

/// The first pause. Most things happen soon.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The longest one.
const AT_MOST: Duration = Duration::from_millis(100);

/// The pauses between two looks at the server. Each is longer than the one before: many cases that look are a load by themselves.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(LOOK_AGAIN)
    }

    /// Lets the next one pass.
    pub(crate) async fn pass(&mut self) {
        sleep(self.0).await;
        self.0 = next(self.0);
    }
}

fn next(pause: Duration) -> Duration {
    (pause * 3 / 2).min(AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        assert_eq!(next(LOOK_AGAIN), Duration::from_millis(15));
        assert_eq!(next(Duration::from_millis(90)), AT_MOST);
        assert_eq!(next(AT_MOST), AT_MOST);
    }
}
