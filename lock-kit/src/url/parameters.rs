//! Errors for parameters of a URL.

use lock_core::Error;

use super::{ENCODE, misconfigured};

/// Two names that differ more than this are not taken for a slip of the pen: 1.0 would be the same name.
const ALIKE: f64 = 0.7;

/// The error for a parameter that the URL of a backend may not have. It names the parameter, unless that may be a part of a
/// password, and the most similar one that is `known`. `query` is all that stands behind the `?`.
///
/// # Examples
/// ```
/// # use lock_kit::url::unknown_parameter;
/// let error = unknown_parameter("Redis", "replica", "replica=1", &["prefix", "replicas"]);
/// let message = "the URL of Redis has an unknown parameter `replica`, did you mean `replicas`? Allowed are prefix, replicas; ";
/// assert!(error.to_string().starts_with(message));
/// ```
pub fn unknown_parameter(server: &str, name: &str, query: &str, known: &[&str]) -> Error {
    let named = match may_be_shown(name, query) {
        false => String::new(),
        true => match nearest(name, known) {
            None => format!(" `{name}`"),
            Some(near) => format!(" `{name}`, did you mean `{near}`"),
        },
    };
    let end = if named.contains(',') { "? Allowed" } else { ": allowed" };
    let known = known.join(", ");
    let message = format!("the URL of {server} has an unknown parameter{named}{end} are {known}; {ENCODE}");
    misconfigured(message)
}

/// A password with a `?` or `&` that is not encoded is cut into what look like parameters. It then ends before an `@`, or
/// belongs to a parameter that takes a secret.
fn may_be_shown(name: &str, query: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-');
    // These two have none.
    let query = query
        .to_ascii_lowercase()
        .replace("password_file=", "")
        .replace("password_env=", "");
    let is_secret = ["@", "%40", "pass", "auth", "secret"]
        .iter()
        .any(|sign| query.contains(sign));
    (2..=40).contains(&name.len()) && name.bytes().all(is_word) && !is_secret
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let alike = |known: &&'a str| (strsim::normalized_damerau_levenshtein(name, known), *known);
    let best = known.iter().map(alike).max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= ALIKE).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["prefix", "connect_timeout", "ca"];

    fn refused(name: &str, query: &str) -> String {
        unknown_parameter("Redis", name, query, &KNOWN).to_string()
    }

    #[test]
    fn the_nearest_known_one_is_named() {
        for (name, near) in [
            ("conect_timeout", "connect_timeout"),
            ("connect-timeout", "connect_timeout"),
            ("prefiks", "prefix"),
        ] {
            let said = refused(name, &format!("{name}=1"));
            assert!(
                said.contains(&format!("`{name}`, did you mean `{near}`? Allowed are prefix,")),
                "{said}"
            );
        }
        let said = refused("prefiks", "password_file=/run/pw&prefiks=a");
        assert!(said.contains("`prefiks`"), "{said}");
        let said = refused("colour", "colour=red");
        assert!(
            said.contains("unknown parameter `colour`: allowed are") && !said.contains("mean"),
            "{said}"
        );
    }

    #[test]
    fn what_may_be_a_part_of_a_password_is_not_shown() {
        for (name, query) in [
            ("cret", "cret&x=y@host/db"),
            ("cret", "sentinel_password=ab&cret"),
            ("cret", "Pass=ab&cret"),
            ("cr3t", "cr3t=1"),
            ("Cret", "Cret"),
            ("c", "c=1"),
        ] {
            let said = refused(name, query);
            assert!(said.contains("an unknown parameter: allowed are prefix"), "{said}");
        }
    }
}
