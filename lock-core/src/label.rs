//! The label of a process, unless the user sets one.

use crate::options::limits::MAX_LABEL_BYTES;
use crate::sync::Arc;

/// `host:pid`, so that an error or a status names a process that people can find.
pub(crate) fn default_label() -> Arc<str> {
    let host = gethostname::gethostname();
    host_and_process(&host.to_string_lossy(), std::process::id()).into()
}

fn host_and_process(host: &str, process: u32) -> String {
    let process = format!(":{process}");
    let end = (0..=MAX_LABEL_BYTES - process.len())
        .rfind(|end| host.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}{process}", &host[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_host_and_the_process_and_is_never_too_long() {
        assert_eq!(host_and_process("web-3", 4711), "web-3:4711");
        let label = host_and_process(&"é".repeat(200), u32::MAX);
        assert!(
            label.len() <= MAX_LABEL_BYTES && label.ends_with(":4294967295"),
            "{label}"
        );
        assert!(default_label().ends_with(&format!(":{}", std::process::id())));
    }
}
