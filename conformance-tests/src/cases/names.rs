//! Any text of 1 to 512 bytes is a name of its own.

use lock_core::ErrorKind;

use super::support::side_by_side;
use crate::context::Cx;
use crate::verdict::{OrFail, Stop, Verdict, ensure};

/// Holds all of them at once, in one client, acquired in this order, and finds each of them busy in another.
async fn ensure_distinct<S: AsRef<str>>(cx: &Cx, names: &[S]) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let mut guards = Vec::new();
    for name in names {
        let name = name.as_ref();
        let ask = cx.ask(name).await.trying();
        let tried = cx.soon("try a name of its own", client.acquire(&ask)).await?;
        match tried.or_fail(&format!("try {name:?}"))? {
            Some(guard) => guards.push(guard),
            None => return Err(Stop::assertion(format!("{name:?} is busy: another name holds it"))),
        }
    }
    // What might harm another name is sent in this order as well.
    side_by_side(
        names
            .iter()
            .map(async |name| cx.ensure_busy(&other, &cx.ask(name.as_ref()).await).await),
    )
    .await?;
    side_by_side(guards.into_iter().map(|guard| guard.released())).await?;
    side_by_side(names.iter().map(async |name| {
        let name = name.as_ref();
        ensure!(!cx.is_held(name).await?, "{name:?} is held after its release");
        Ok(())
    }))
    .await
}

/// No character is special to any server.
pub(crate) async fn hostile_names_are_names(cx: &Cx) -> Verdict {
    let names = [
        "/",
        "//",
        ".",
        "..",
        "../a",
        "a/b",
        "a//b",
        "/a",
        "a/",
        "\0",
        "a\0b",
        "a\0c",
        "a",
        "\n",
        "a\r\nb",
        "\u{7f}",
        "\u{fffd}",
        "\u{feff}a",
        "\u{202e}a",
        "*",
        "a*",
        "?",
        "[a]",
        "{a}",
        "{a}b",
        "a{b}",
        "%",
        "%2F",
        "a%2Fb",
        "%00",
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\'",
        "'; DROP TABLE locks; --",
        "a b",
        " ",
        "\t",
        ":",
        "a:b",
        "::",
        "#",
        "$",
        "$1",
        "${a}",
        "😀",
        "日本語",
        "zookeeper",
        "lock-0000000000",
        "_c_x-lock-0000000001",
        "null",
        "NULL",
        "0",
        "-1",
        "true",
    ];
    ensure_distinct(cx, &names).await
}

/// Names that a careless comparison takes for equal are not.
pub(crate) async fn near_equal_names_are_distinct(cx: &Cx) -> Verdict {
    let names = [
        "job",
        "Job",
        "JOB",
        "jöb",
        "jo\u{308}b",
        "job ",
        " job",
        "job\0",
        "job\n",
        "jоb",
        "job\u{200b}",
        "ｊｏｂ",
        "j.b",
        "job1",
        "job01",
        "job1.0",
        "straße",
        "strasse",
        "STRASSE",
        "İ",
        "i",
        "ı",
        "I",
        "ﬁ",
        "fi",
        "Å",
        "\u{212b}",
    ];
    ensure_distinct(cx, &names).await
}

/// 512 bytes are a name, whatever the characters, to the last byte.
pub(crate) async fn the_longest_names_are_distinct(cx: &Cx) -> Verdict {
    let (ascii, wide) = ("x".repeat(511), "é".repeat(255));
    let names = [
        format!("{ascii}y"),
        format!("{ascii}z"),
        ascii,
        format!("{wide}éé").chars().take(256).collect(),
        format!("{wide}yz"),
        format!("{wide}zy"),
        "/".repeat(512),
        "\0".repeat(512),
        "😀".repeat(128),
    ];
    for name in &names {
        ensure!((511..=512).contains(&name.len()), "a test name of {} bytes", name.len());
    }
    ensure_distinct(cx, &names).await
}

/// Nor does a name meet what a server may keep beside another one.
pub(crate) async fn auxiliary_names_are_distinct(cx: &Cx) -> Verdict {
    let mut names = cx.auxiliary_names("job");
    // The auxiliary names' own ones too: of each, the one that is made in the same way, and the next one. All of them would double the
    // time, and be made in no other way.
    for (at, name) in cx.auxiliary_names("job").into_iter().enumerate() {
        let own = cx.auxiliary_names(&name);
        names.extend(own.into_iter().cycle().skip(at).take(2));
    }
    for suffix in ["", "fence", "token", "queue", "wait", "inbox", "lock", "0000000000"] {
        for separator in [":", "/", ".", "_", "\0", "}:"] {
            names.push(format!("job{separator}{suffix}"));
            names.push(format!("{suffix}{separator}job"));
        }
    }
    names.retain(|name| (1..=512).contains(&name.len()));
    names.sort();
    names.dedup();
    for some in names.chunks(30) {
        let mut some: Vec<_> = some.iter().map(String::as_str).filter(|name| *name != "job").collect();
        some.push("job");
        ensure_distinct(cx, &some).await?;
        // And in the other order, for one may only hurt the other.
        some.reverse();
        ensure_distinct(cx, &some).await?;
    }
    Ok(())
}

/// An empty name is refused.
pub(crate) async fn an_empty_name_is_refused(cx: &Cx) -> Verdict {
    ensure_refused(cx, "").await
}

/// And so is one of 513 bytes.
pub(crate) async fn a_name_of_513_bytes_is_refused(cx: &Cx) -> Verdict {
    ensure_refused(cx, &"x".repeat(513)).await?;
    ensure_refused(cx, &format!("{}y", "é".repeat(256))).await
}

async fn ensure_refused(cx: &Cx, name: &str) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask(name).await;
    for ask in [ask.clone(), ask.trying()] {
        let Err(error) = cx.soon("the refusal", client.acquire(&ask)).await? else {
            return Err(Stop::assertion(format!("a name of {} bytes was accepted", name.len())));
        };
        ensure!(
            error.kind() == ErrorKind::InvalidName,
            "refused as {:?}: {error}",
            error.kind()
        );
        ensure!(!error.is_retryable(), "no retry will mend it, yet {error} is retryable");
    }
    Ok(())
}
