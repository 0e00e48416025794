//! Where a URL may have a password, and whether somebody shows it.

/// What targets write for a password, or for a part of one.
pub const SECRET: &str = "sesame";

/// The schemes whose authority may have a password.
const SCHEMES: [&str; 7] = [
    "redis",
    "valkey",
    "mysql",
    "mariadb",
    "postgres",
    "zookeeper",
    "quorum:",
];
/// The parameters that are passwords.
const PARAMETERS: [&str; 3] = ["pass", "sentinel_password", "previous_password"];

/// Asserts that `shown` does not have the [`SECRET`], if this URL has it nowhere but in passwords: wherever a password stands that
/// was not percent-encoded, it may go on to the last `@`.
///
/// # Panics
/// If it has.
pub fn assert_hidden(url: &str, shown: &str) {
    let is_hidden = !shown.contains(SECRET);
    assert!(is_hidden || !is_in_passwords(url), "{url:?} is shown as {shown}");
}

/// Whether the secret stands in the URL, and nowhere but in passwords.
fn is_in_passwords(url: &str) -> bool {
    // A parser may make it of something else, elsewhere in the URL.
    let found = url.matches(SECRET).count();
    if found == 0 || normalized(url).matches(SECRET).count() != found {
        return false;
    }
    let mut start = 0;
    // The nodes of a quorum.
    url.split('|').all(|node| {
        let range = start..start + node.len();
        start = range.end + 1;
        let here = &url[range];
        here.match_indices(SECRET).all(|(at, _)| is_password(here, at))
    })
}

fn is_password(url: &str, at: usize) -> bool {
    let (before, behind) = (&url[..at], &url[at + SECRET.len()..]);
    is_of_user(before, behind) || is_of_parameter(before, behind)
}

/// Behind `scheme://user:`, and before an `@`.
fn is_of_user(before: &str, behind: &str) -> bool {
    let Some((scheme, user)) = before.split_once("://") else {
        return false;
    };
    let scheme = scheme.to_ascii_lowercase();
    let has_password = SCHEMES.iter().any(|known| scheme.starts_with(known)) && !scheme.contains("unix");
    let begins = user
        .split_once(':')
        .is_some_and(|(user, _)| !user.contains(['/', '?', '#', '@', ',', '[']));
    has_password && begins && behind.contains('@')
}

/// Behind `?pass=` or the like, or in the password of the URL behind `?listen=`.
fn is_of_parameter(before: &str, behind: &str) -> bool {
    let Some((server, query)) = before.split_once('?') else {
        return false;
    };
    let last = query.rsplit('&').next().unwrap_or_default();
    let is_secret = match last.split_once('=') {
        Some(("listen", url)) => {
            let rest = behind.split(['&', '#']).next().unwrap_or_default();
            is_of_user(&normalized(url), &normalized(rest))
        }
        Some((name, _)) => PARAMETERS.contains(&name),
        None => false,
    };
    !server.contains('#') && !query.contains('#') && is_secret
}

/// As parsers may read it: percent-decoded, in small letters, without the characters that URLs may not have.
fn normalized(url: &str) -> String {
    let mut text = String::new();
    let mut rest = url;
    while let Some(first) = rest.chars().next() {
        let digits = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &rest[3..];
            }
            None => {
                text.extend(Some(first).filter(|c| !"\t\n\r".contains(*c)));
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    text.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_where_servers_look_for_them() {
        for url in [
            "redis://app:sesame@h",
            "REDISS+sentinel://:x?sesame/@h/m",
            "quorum:redis://a|mysql://u:sesame@h/d",
            "redis+unix:///s?db=1&pass=12sesame",
            "zookeeper://h?previous_password=sesame",
            "postgresql://app:sesame@h/d",
            "postgres://h/d?pooler=transaction&listen=postgres%3A%2F%2Fapp:sesame%40h/d&table=t",
        ] {
            assert!(is_in_passwords(url), "{url}");
        }
        for url in [
            "redis://sesame@h",
            "redis://sesame",
            "redis://h?prefix=sesame",
            "redis://u:sesame@h?prefix=sesame",
            "redis://u:sesame@h?prefix=s%65same",
            "redis://u:sesame@SESAME",
            "redis+unix:///u:sesame@h",
            "ftp://u:sesame@h",
            "postgres://h/d?listen=postgres://sesame%40h",
            "postgres://h/d?listen=postgres://u:sesame&table=@",
            "redis://h",
        ] {
            assert!(!is_in_passwords(url), "{url}");
        }
    }

    #[test]
    #[should_panic(expected = "is shown as")]
    fn a_password_that_is_shown_is_a_defect() {
        assert_hidden("redis://app:sesame@h", "no server at app:sesame@h");
    }
}
