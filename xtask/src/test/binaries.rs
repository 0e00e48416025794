//! The test binaries of the workspace.

use super::run;
use crate::Result;

/// Their names; two crates may have one of the same name. `cargo test` does not run those with `test = false`, and they are not
/// among them.
pub(crate) fn names() -> Result<Vec<String>> {
    let mut metadata = run::cargo();
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = metadata.output().map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let names = of(&metadata);
    match names.is_empty() {
        true => Err("cargo metadata names no test binary".into()),
        false => Ok(names),
    }
}

fn of(metadata: &serde_json::Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test" && target["test"] == true);
    let mut names: Vec<String> = tests.filter_map(|test| Some(test["name"].as_str()?.into())).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn those_that_cargo_test_runs() {
        let target = |name: &str, kind: &str, test: bool| json!({ "name": name, "kind": [kind], "test": test });
        let metadata = json!({ "packages": [
            { "targets": [target("lock_core", "lib", true), target("core", "test", true), target("races", "test", false)] },
            { "targets": [target("postgres", "test", true), target("leader", "example", false)] },
            { "targets": [target("postgres", "test", true)] },
        ] });
        assert_eq!(super::of(&metadata), ["core", "postgres"]);
    }
}
