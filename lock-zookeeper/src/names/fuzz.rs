use std::str::from_utf8;

use super::*;

#[test]
fn names() {
    let words = &[
        "%",
        "%2F",
        "%2f",
        "%25",
        "/",
        ".",
        "..",
        "%token-offset",
        "%heartbeat",
        "\u{e9}",
        "\u{1f512}",
        "\u{e000}",
        "\0",
        "%C3",
        "%A9",
    ];
    let seeds = &[
        "orders/42",
        ".",
        "..",
        "%2F",
        "%C3%A9",
        "\u{e9}",
        "a\0b\n",
        "%token-offset",
        "%+1",
        "zookeeper",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        // No two names have one component, since each is read back from its own.
        if let Ok(name) = LockName::new(text) {
            let component = component(&name);
            assert_eq!(name_of(&component), Some(name.clone()), "{component:?}");
            assert!(
                component.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'),
                "{component:?}"
            );
            assert!(
                !component.starts_with('.') && component.len() <= 3 * text.len(),
                "{component:?}"
            );
            let directory = directory("/locks", &name);
            assert!(
                directory != token_offset("/locks") && directory != heartbeat("/locks"),
                "{directory:?}"
            );
        }
        // What stands in the tree, whoever made it.
        if let Some(name) = name_of(text) {
            assert_eq!(component(&name), text);
            assert!(from_utf8(text.as_bytes()).is_ok_and(|text| text.is_ascii()), "{text:?}");
        }
    });
}
