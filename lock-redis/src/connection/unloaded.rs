//! Scripts that the server refused to load when the connection was made, as it does without the permission for `SCRIPT LOAD`.

use std::collections::HashSet;

use parking_lot::Mutex;
/// By their hashes. The first call of each goes out with its text: to ask by the hash would cost a round trip more, which a
/// renewal over a slow line may not have.
#[derive(Debug, Default)]
pub(super) struct Unloaded(Option<Mutex<HashSet<String>>>);

impl Unloaded {
    pub(super) fn new(hashes: impl IntoIterator<Item = String>) -> Self {
        let hashes: HashSet<String> = hashes.into_iter().collect();
        Self((!hashes.is_empty()).then(|| Mutex::new(hashes)))
    }

    /// Returns whether the server may lack this script. It has the script after the call that is sent now.
    pub(super) fn take(&self, hash: &str) -> bool {
        let Some(hashes) = &self.0 else { return false };
        // Every critical section leaves it whole.
        hashes.lock().remove(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_sent_with_its_text_once() {
        let unloaded = Unloaded::new(["a", "b"].map(String::from));
        assert_eq!(
            ["a", "b", "a", "c", "b"].map(|hash| unloaded.take(hash)),
            [true, true, false, false, false]
        );
        assert!(!Unloaded::default().take("a"));
    }
}
