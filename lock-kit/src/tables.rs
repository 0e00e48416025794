//! Tables in an SQL database: their names, the statements that make them, and the texts in them.

use lock_core::{Error, ErrorKind, Result};

/// The most letters of the name with which the names of all tables of a backend begin. The endings need the rest: PostgreSQL cuts
/// a name after 63 bytes, and MySQL allows 64.
pub const LONGEST_PREFIX: usize = 48;

/// The longest label that a table keeps, in bytes.
pub const LABEL_BYTES: usize = 255;

/// A table, and the statement that makes it if it is missing.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name, as the statements of the backend have it.
    pub name: String,
    /// The statement, without a `;`.
    pub create: String,
}

/// The statements that make these tables, each with its `;` on a line of its own.
pub fn script(tables: &[Table]) -> String {
    tables.iter().map(|table| format!("{};\n", table.create)).collect()
}

/// Returns whether a name needs no escape between quotation marks: it has 1 to `longest` letters, digits, `_` or `$`.
///
/// # Examples
/// ```
/// # use lock_kit::tables::is_identifier;
/// assert!(is_identifier("Shop_locks$2", 48) && !is_identifier("shop`locks", 48));
/// ```
pub fn is_identifier(name: &str, longest: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_$".contains(&byte);
    (1..=longest).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// Checks a name from a configuration, which is that of a table or a schema, as `what` says. The error does not show the name: it
/// may be a part of a password.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if it is no [identifier](is_identifier).
pub fn check_configured(what: &str, name: &str, longest: usize) -> Result<()> {
    check(&format!("the {what}'s name"), name, longest)
}

/// Checks a name from the source code of an application. The error shows it.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] if it is no [identifier](is_identifier).
pub fn check_identifier(name: &str, longest: usize) -> Result<()> {
    check(&format!("the name {name:?}"), name, longest)
}

fn check(called: &str, name: &str, longest: usize) -> Result<()> {
    match is_identifier(name, longest) {
        true => Ok(()),
        false => {
            let message = format!("{called} is not allowed: use 1 to {longest} letters, digits, _ or $");
            Err(Error::new(ErrorKind::Misconfigured, message))
        }
    }
}

/// The part of a label that a table keeps: its first 255 bytes, cut between two characters.
pub fn label_bytes(label: &str) -> &[u8] {
    let mut lengths = (0..=LABEL_BYTES.min(label.len())).rev();
    let end = lengths.find(|end| label.is_char_boundary(*end)).unwrap_or(0);
    &label.as_bytes()[..end]
}

/// Bytes in hexadecimal digits, for a literal in which nothing needs an escape.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_ends_no_quotes() {
        for good in ["t", "Shop_locks$2", "0"] {
            assert!(is_identifier(good, 12), "{good}");
        }
        for bad in ["", "a`b", "a\"b", "a.b", "a b", "ö", "a\0", "thirteen_long"] {
            assert!(!is_identifier(bad, 12), "{bad:?}");
        }
    }

    #[test]
    fn a_name_that_may_be_a_part_of_a_password_is_not_shown() {
        check_configured("schema", "locks", 5).unwrap();
        let hidden = check_configured("schema", "s3cret", 5).unwrap_err();
        let said = "the schema's name is not allowed: use 1 to 5 letters, digits, _ or $";
        assert_eq!((hidden.kind(), &*hidden.to_string()), (ErrorKind::Misconfigured, said));
        check_identifier("stock", 5).unwrap();
        let shown = check_identifier("a`b", 5).unwrap_err();
        assert_eq!(shown.kind(), ErrorKind::Misconfigured);
        assert!(
            shown.to_string().starts_with("the name \"a`b\" is not allowed: "),
            "{shown}"
        );
    }

    #[test]
    fn each_statement_of_a_script_has_a_line() {
        let table = |name: &str| Table {
            name: name.to_owned(),
            create: format!("CREATE {name}"),
        };
        assert_eq!(script(&[table("a"), table("b")]), "CREATE a;\nCREATE b;\n");
    }

    #[test]
    fn a_long_label_is_cut_between_two_characters() {
        assert_eq!(label_bytes(""), b"");
        let (fits, long) = ("a".repeat(LABEL_BYTES), format!("{}ö", "a".repeat(LABEL_BYTES - 1)));
        assert_eq!(label_bytes(&fits).len(), LABEL_BYTES);
        assert_eq!(label_bytes(&format!("{fits}b")).len(), LABEL_BYTES);
        assert_eq!(label_bytes(&long).len(), LABEL_BYTES - 1);
    }

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hexadecimal(b"a\0'\xff"), "610027ff");
        assert_eq!(hexadecimal(b""), "");
    }
}
