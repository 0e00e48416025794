//! What DESIGN.md says about the workspace.

const MANIFEST: &str = include_str!("../../Cargo.toml");
const DESIGN: &str = include_str!("../../DESIGN.md");

#[test]
fn every_dependency_has_its_reason() {
    let (_, reasons) = DESIGN.split_once("## Dependencies").expect("the heading");
    let told: Vec<&str> = reasons
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .flat_map(|row| row.split('|').next().unwrap_or_default().split(','))
        .map(str::trim)
        .collect();
    let (_, dependencies) = MANIFEST.split_once("[workspace.dependencies]").expect("the table");
    let dependencies = dependencies.lines().take_while(|line| !line.starts_with('['));
    // Ours are found by path.
    let foreign = dependencies.filter(|line| !line.contains("path = "));
    let foreign: Vec<&str> = foreign.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(foreign.contains(&"tokio"), "{foreign:?}");
    let untold: Vec<_> = foreign.iter().filter(|name| !told.contains(name)).collect();
    assert!(untold.is_empty(), "not in DESIGN.md: {untold:?}");
}

/// Each crate's own reasons stand beside it.
#[test]
fn the_page_stays_short() {
    let lines = DESIGN.lines().count();
    assert!(lines <= 200, "{lines} lines");
}
