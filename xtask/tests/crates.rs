//! What the manifests of the published crates say.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let output = Command::new(env!("CARGO")).current_dir(root).args(arguments).output();
    let output = output.expect("cargo runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn metadata() -> Value {
    let metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--offline"]);
    serde_json::from_str(&metadata).expect("JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("a list")
}

/// Of this workspace, unless they are private.
fn published(metadata: &Value) -> impl Iterator<Item = &Value> {
    let is_ours = |package: &&Value| package["source"].is_null() && package["publish"].is_null();
    packages(metadata).iter().filter(is_ours)
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

/// Major and minor.
fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().expect("a number"));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// A `rust-version` that is lower than that of a dependency promises what cannot be.
#[test]
fn no_crate_promises_an_older_rust_than_its_dependencies_need() {
    let metadata = metadata();
    let key = |package: &Value| format!("{} v{}", text(package, "name"), text(package, "version"));
    let needs: BTreeMap<String, (u32, u32)> = packages(&metadata)
        .iter()
        .filter_map(|package| Some((key(package), number(package["rust_version"].as_str()?))))
        .collect();
    for package in published(&metadata) {
        let name = text(package, "name");
        let own = number(package["rust_version"].as_str().expect("each says it"));
        let mut tree = vec![
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ];
        tree.extend(["--package", name]);
        match name {
            // sqlx alone needs a later one: see docs/compatibility.md.
            "polylock" => tree.extend([
                "--features",
                "redis,zookeeper,quorum,tls,zookeeper-tls,zookeeper-sasl,serde,metrics,blocking",
            ]),
            _ => tree.push("--all-features"),
        }
        let tree = cargo(&tree);
        let mut compared = 0;
        for line in tree.lines().skip(1) {
            let of: Vec<&str> = line.split(' ').take(2).collect();
            if let Some(needed) = needs.get(&of.join(" ")) {
                compared += 1;
                assert!(
                    *needed <= own,
                    "{name} promises Rust {own:?}, but {line} needs {needed:?}"
                );
            }
        }
        assert!(compared > 5, "{name}: {tree}");
    }
}

/// What docs.rs shows, and what the registry asks for.
#[test]
fn published_crates_have_what_a_registry_wants() {
    let metadata = metadata();
    let mut count = 0;
    for package in published(&metadata) {
        let name = text(package, "name");
        for field in ["description", "license", "repository", "readme", "documentation"] {
            assert!(!text(package, field).is_empty(), "{name} has no {field}");
        }
        count += 1;
    }
    assert_eq!(count, 11);
}
