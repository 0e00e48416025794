//! What was seen, as it is kept beside the sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The results of all libraries, by their names.
#[derive(Debug)]
pub(crate) struct Results(pub(crate) BTreeMap<String, OfLibrary>);

/// The results of one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfLibrary {
    pub(crate) version: String,
    pub(crate) server: String,
    pub(crate) date: String,
    /// By the names of the cases.
    pub(crate) cases: BTreeMap<String, OfCase>,
}

/// The runs of a case: one, or three if the first failed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfCase {
    pub(crate) passed: u32,
    pub(crate) runs: u32,
    /// What the last run that failed said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

impl OfCase {
    pub(crate) fn has_passed(&self) -> bool {
        self.passed > 0
    }
}

impl Results {
    /// Those of these libraries that were run.
    pub(crate) fn read<'a>(libraries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut results = BTreeMap::new();
        for library in libraries {
            let path = path(library);
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let result = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            results.insert(library.to_owned(), result);
        }
        Ok(Self(results))
    }
}

impl OfLibrary {
    pub(crate) fn write(&self, library: &str) -> Result<(), String> {
        let path = path(library);
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// This package.
pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn path(library: &str) -> PathBuf {
    package().join(format!("results/{library}.json"))
}
