//! Dead links in the documentation that rustdoc has built. It warns of those in the docs of an item, but not of one that leads
//! nowhere from another crate, where the docs are re-exported or inherited.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Result;

/// Beginnings of links in the docs of traits of tokio and tracing, which types inherit.
const INHERITED: [&str; 6] = [
    "AsyncWrite",
    "crate::Span",
    "crate::callsite",
    "dispatcher#",
    "super::",
    "crate::Dispatch",
];

/// Makes the folder of each crate. rustdoc links to another crate only if its folder is there, and the crates are documented in any
/// order.
pub(crate) fn prepare(root: &Path, crates: &[&str]) -> Result<()> {
    for name in crates {
        let folder = root.join(name.replace('-', "_"));
        fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    }
    Ok(())
}

/// One line for each link that leads nowhere, with a page of these crates that has it.
pub(crate) fn dead(root: &Path, crates: &[&str]) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for name in crates {
        read(&root.join(name.replace('-', "_")), &mut pages)?;
    }
    if pages.is_empty() {
        return Err(format!("{} has no documentation", root.display()));
    }
    let mut dead = BTreeMap::new();
    for (path, page) in &pages {
        for link in page
            .links
            .iter()
            .filter(|link| !leads_somewhere(root, &pages, path, link))
        {
            dead.entry(link.as_str()).or_insert(path);
        }
    }
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    Ok(dead
        .iter()
        .map(|(link, path)| format!("{}: {link}", shown(path)))
        .collect())
}

#[derive(Debug)]
struct Page {
    links: BTreeSet<String>,
    ids: BTreeSet<String>,
    /// Where a page leads that stands for one that was moved.
    moved_to: Option<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let values = |attribute: &str| -> BTreeSet<String> {
            let start = format!(" {attribute}=\"");
            let rest = text.split(&start).skip(1);
            rest.filter_map(|rest| Some(rest.split_once('"')?.0.replace("&amp;", "&")))
                .collect()
        };
        Self {
            links: values("href"),
            ids: values("id"),
            moved_to: text
                .split_once("content=\"0;URL=")
                .and_then(|(_, rest)| Some(rest.split_once('"')?.0.into())),
        }
    }
}

fn read(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    let failed = |error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            read(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "html") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            pages.insert(path, Page::parse(&text));
        }
    }
    Ok(())
}

fn leads_somewhere(root: &Path, pages: &BTreeMap<PathBuf, Page>, from: &Path, link: &str) -> bool {
    let begins = |starts: &[&str]| starts.iter().any(|start| link.starts_with(start));
    if link.contains("://") || begins(&["javascript:", "mailto:", "data:"]) || begins(&INHERITED) {
        return true;
    }
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => from.to_owned(),
        file => resolve(from.parent().unwrap_or(root), file),
    };
    let moved = pages.get(&target).and_then(|page| page.moved_to.as_ref());
    let target = match moved {
        Some(moved) => resolve(target.parent().unwrap_or(root), moved),
        None => target,
    };
    match pages.get(&target) {
        Some(page) => fragment.is_empty() || page.ids.contains(fragment),
        None => target.exists(),
    }
}

fn resolve(folder: &Path, link: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write(
            "a/index.html",
            r##"<h1 id="top"><a href="#top"><a href="#gone"><a href="struct.B.html#method.x"><a href="struct.B.html#y">
            <a href="../b/index.html"><a href="crate"><a href="https://example.com/x"><a href="../static.files/x.css">"##,
        );
        write("a/struct.B.html", r#"<section id="method.x">"#);
        write(
            "b/index.html",
            r#"<a href="../a/index.html#top"><a href="../c/index.html">"#,
        );
        write("static.files/x.css", "");
        write(
            "a/old/struct.B.html",
            r#"<meta http-equiv="refresh" content="0;URL=../../a/struct.B.html">"#,
        );
        write(
            "a/z.html",
            r#"<a href="old/struct.B.html#method.x"><a href="old/struct.B.html#z">"#,
        );
        assert_eq!(
            dead(root.path(), &["a", "b"]).expect("it is read"),
            [
                "a/index.html: #gone",
                "b/index.html: ../c/index.html",
                "a/index.html: crate",
                "a/z.html: old/struct.B.html#z",
                "a/index.html: struct.B.html#y",
            ]
        );
    }

    #[test]
    fn no_documentation_is_an_error() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(dead(root.path(), &[]).is_err());
        assert!(dead(root.path(), &["a"]).is_err());
    }
}
