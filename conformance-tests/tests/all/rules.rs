//! The rules that a failed case cites stand in the docs of `lock-core`.

use std::fs;
use std::path::{Path, PathBuf};

use conformance_tests::cases;

#[test]
fn each_case_cites_the_contract() {
    let docs = docs();
    let mut missing: Vec<_> = cases::all()
        .iter()
        .filter(|case| case.rule().is_empty() || !docs.contains(case.rule()))
        .map(|case| (case.topic, case.rule()))
        .collect();
    missing.dedup();
    assert!(missing.is_empty(), "not in the docs of lock-core: {missing:#?}");
}

/// As people read them: without the marks of comments, code and links, and in one line.
fn docs() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    find(&root.join("lock-core/src"), &mut files);
    let mut docs = String::new();
    for file in files {
        for line in fs::read_to_string(&file).expect("a source file").lines() {
            docs += line.trim_start().trim_start_matches(['/', '!', '-']).trim_start();
            docs += " ";
        }
    }
    plain(&docs)
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => find(&path, files),
            false => files.push(path),
        }
    }
}

/// `[text](target)` is `text`.
fn plain(docs: &str) -> String {
    let mut plain = String::with_capacity(docs.len());
    let mut rest = docs;
    while let Some((before, after)) = rest.split_once("](") {
        plain += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain += rest;
    plain.retain(|character| !matches!(character, '`' | '[' | ']' | '*'));
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}
