//! Pages of the names in a table, in the order of their bytes.

use std::borrow::Cow;

use lock_core::LockName;
use lock_core::backend::{ListFrom, ListPage};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// What is encoded in the note of a list, beside bytes that are no UTF-8. The note is the name of the last row that was read, which another
/// program may have written.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The name after which this page begins. `None`: the list begins.
///
/// # Examples
/// ```
/// # use lock_core::backend::ListFrom;
/// assert_eq!(lock_kit::list::after(&ListFrom::all()), None);
/// ```
pub fn after(from: &ListFrom) -> Option<Cow<'_, [u8]>> {
    from.after().map(|note| percent_decode_str(note).into())
}

/// A byte string behind all names with this prefix, and before all names that come after them. A name is UTF-8, which has no byte `ff`.
///
/// # Examples
/// ```
/// # use lock_kit::list::prefix_end;
/// assert!(prefix_end("a/") > "a/\u{10ffff}".as_bytes().to_vec() && prefix_end("a/") < b"a0".to_vec());
/// ```
pub fn prefix_end(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), &[0xff]].concat()
}

/// The page that these rows make: names, and whether each is used. The server was asked for `at_most` rows. The next page begins
/// after the last one of them, so that names that are free cost a page no more than others.
///
/// # Errors
/// That of a row that cannot be read.
pub fn page<E>(
    rows: impl IntoIterator<Item = Result<(Vec<u8>, bool), E>>,
    from: &ListFrom,
    at_most: usize,
) -> Result<ListPage, E> {
    let (mut names, mut count, mut last) = (Vec::new(), 0, None);
    for row in rows {
        let (name, is_used) = row?;
        // What is no name was written by somebody else.
        if is_used
            && let Ok(text) = str::from_utf8(&name)
            && let Ok(name) = LockName::new(text)
        {
            names.push(name);
        }
        count += 1;
        last = Some(name);
    }
    let last = last.filter(|_| count >= at_most);
    let note = |last: Vec<u8>| percent_encode(&last, ENCODED).to_string();
    Ok(ListPage::new(names, last.map(|last| from.go_on_after(note(last)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paged(rows: &[(&[u8], bool)], at_most: usize) -> (Vec<String>, Option<Vec<u8>>) {
        let rows = rows
            .iter()
            .map(|(name, is_used)| Ok::<_, ()>((name.to_vec(), *is_used)));
        let page = page(rows, &ListFrom::prefix("a"), at_most).unwrap();
        let next = page.next.map(|next| {
            assert_eq!(next.name_prefix(), "a");
            after(&next).unwrap().into_owned()
        });
        (page.names.iter().map(|name| name.as_str().to_owned()).collect(), next)
    }

    #[test]
    fn a_page_has_names_that_are_used_and_goes_on_after_all_that_were_read() {
        let rows: [(&[u8], _); 4] = [(b"a1", true), (b"a2", false), (b"", true), (b"a3", false)];
        let names = vec!["a1".to_owned()];
        assert_eq!(paged(&rows, 4), (names.clone(), Some(b"a3".to_vec())));
        assert_eq!(paged(&rows, 5), (names, None));
        assert_eq!(paged(&[], 1), (Vec::new(), None));
    }

    /// Else the next page would begin at another place: some names would be missing, or the row would come again for ever.
    #[test]
    fn a_page_goes_on_after_the_bytes_of_its_last_row_whatever_they_are() {
        for last in [
            &b"a\xff"[..],
            b"a\x80",
            b"a%ff",
            b"a%",
            b"a\0\n",
            "a\u{fffd} \u{e9}".as_bytes(),
        ] {
            let (names, next) = paged(&[(last, false)], 1);
            assert_eq!((names, next.as_deref()), (Vec::new(), Some(last)));
        }
        let (names, _) = paged(&[(b"a\xff", true), (b"b", true)], 2);
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn a_prefix_ends_behind_its_last_name() {
        assert_eq!(prefix_end("a/"), b"a/\xff");
        assert_eq!(prefix_end(""), b"\xff");
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error() {
        assert_eq!(page([Err("no name")], &ListFrom::all(), 1).unwrap_err(), "no name");
    }
}
