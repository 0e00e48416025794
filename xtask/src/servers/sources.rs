//! Which of the machine's package sources are the distribution's own.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// The distribution and its package sources.
#[derive(Debug)]
pub(crate) struct System {
    /// "debian" or "ubuntu".
    pub(crate) id: String,
    pub(crate) codename: String,
    pub(crate) sources: Vec<Source>,
}

/// One entry in any of apt's two formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// As in the newer format: "Signed-By", "Trusted", "Check-Valid-Until" …
    options: Vec<(String, String)>,
}

impl System {
    pub(crate) fn of_this_machine() -> Result<Self> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let (id, codename) = distribution(&release).ok_or("this is neither Debian nor Ubuntu")?;
        let mut sources = Vec::new();
        for file in source_files(Path::new("/etc/apt")) {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let newer = file.extension().is_some_and(|extension| extension == "sources");
            sources.extend(if newer { parse_deb822(&text) } else { parse_lines(&text) });
        }
        let sources: Vec<Source> = sources.into_iter().filter_map(|source| source.own(&codename)).collect();
        if sources.is_empty() {
            return Err(format!("/etc/apt names no package source of {id} {codename} itself"));
        }
        Ok(Self { id, codename, sources })
    }

    /// Another release, from where this one comes. `None` for other distributions than Debian.
    pub(crate) fn release(&self, codename: &str) -> Option<Self> {
        let other = |source: &Source| source.release(&self.codename, codename);
        let sources: Vec<Source> = self.sources.iter().filter_map(other).collect();
        (self.id == "debian" && !sources.is_empty()).then(|| Self {
            id: self.id.clone(),
            codename: codename.into(),
            sources,
        })
    }
}

impl Source {
    /// What of it is the distribution's own, stable part: no other vendor's packages, no backports.
    fn own(mut self, codename: &str) -> Option<Self> {
        let suites = ["", "-updates", "-security", "/updates"].map(|part| format!("{codename}{part}"));
        self.suites.retain(|suite| suites.contains(suite));
        self.components
            .retain(|component| ["main", "universe"].contains(&component.as_str()));
        self.uris.retain(|uri| uri.split('/').skip(1).any(is_archive));
        let signed_by_itself = self
            .options
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("signed-by"))
            .all(
                // Several keyrings may be named; a key may also stand there itself, and whose it is cannot be seen.
                |(_, keys)| {
                    keys.split([',', ' ']).any(|key| {
                        let name = key.rsplit('/').next().unwrap_or_default();
                        name.starts_with("debian-archive") || name.starts_with("ubuntu-archive")
                    })
                },
            );
        let all = [&self.suites, &self.components, &self.uris];
        (signed_by_itself && all.iter().all(|list| !list.is_empty())).then_some(self)
    }

    /// The main part of another release, if this is the main part of ours.
    fn release(&self, ours: &str, other: &str) -> Option<Self> {
        let is_main =
            self.suites.iter().any(|suite| suite == ours) && self.components.iter().any(|part| part == "main");
        is_main.then(|| Self {
            uris: self.uris.clone(),
            suites: vec![other.into()],
            components: vec!["main".into()],
            options: self.options.clone(),
        })
    }

    /// In the newer format.
    pub(crate) fn to_deb822(&self) -> String {
        let mut text = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\n",
            self.uris.join(" "),
            self.suites.join(" "),
            self.components.join(" ")
        );
        for (name, value) in &self.options {
            text += &format!("{name}: {value}\n");
        }
        text
    }
}

/// A part of a URI's path in mirrors of the distributions: ".../debian", ".../debian-security", ".../ubuntu-ports",
/// "mirror+file:/etc/apt/mirrors/debian.list".
fn is_archive(part: &str) -> bool {
    let part = part.strip_suffix(".list").unwrap_or(part);
    ["debian", "debian-security", "debian-archive", "ubuntu", "ubuntu-ports"].contains(&part)
}

/// The name and the release in /etc/os-release.
fn distribution(release: &str) -> Option<(String, String)> {
    let fields: HashMap<&str, &str> = release
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect();
    let id = fields.get("ID").filter(|id| ["debian", "ubuntu"].contains(id))?;
    let codename = fields.get("VERSION_CODENAME").filter(|codename| !codename.is_empty())?;
    Some((id.to_string(), codename.to_string()))
}

fn source_files(apt: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(apt.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "list" || extension == "sources")
        })
        .collect();
    files.sort();
    files.insert(0, apt.join("sources.list"));
    files
}

/// `deb [arch=amd64 signed-by=/key] http://host/debian bookworm main contrib`
fn parse_lines(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let options = options.split_whitespace().filter_map(|option| option.split_once('='));
    let mut words = rest.split_whitespace().map(String::from);
    Some(Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        options: options
            .map(|(name, value)| (newer_name(name), value.replace(',', " ")))
            .collect(),
    })
}

/// The newer format's name of an option.
fn newer_name(name: &str) -> String {
    match name {
        "arch" => "Architectures".into(),
        "lang" => "Languages".into(),
        "target" => "Targets".into(),
        // Upper and lower case are the same.
        other => other.into(),
    }
}

/// Stanzas of "Name: value" with continuation lines.
fn parse_deb822(text: &str) -> Vec<Source> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .split(|line| line.trim().is_empty())
        .filter_map(parse_stanza)
        .collect()
}

fn parse_stanza(lines: &[&str]) -> Option<Source> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        match fields.last_mut() {
            Some((_, value)) if line.starts_with([' ', '\t']) => {
                value.push('\n');
                value.push_str(line);
            }
            _ => {
                let (name, value) = line.split_once(':')?;
                fields.push((name.trim().into(), value.trim().into()));
            }
        }
    }
    let mut take = |wanted: &str| -> Option<String> {
        let at = fields.iter().position(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(fields.remove(at).1)
    };
    let words = |text: String| -> Vec<String> { text.split_whitespace().map(String::from).collect() };
    let types = words(take("Types")?);
    let uris = words(take("URIs")?);
    let suites = words(take("Suites")?);
    let components = words(take("Components")?);
    let enabled = take("Enabled").is_none_or(|value| !["no", "false", "0"].contains(&value.as_str()));
    let usable = enabled && types.iter().any(|kind| kind == "deb");
    usable.then_some(Source {
        uris,
        suites,
        components,
        options: fields,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(sources: Vec<Source>) -> Vec<String> {
        sources
            .into_iter()
            .filter_map(|source| source.own("bookworm"))
            .map(|source| source.to_deb822())
            .collect()
    }

    #[test]
    fn newer_format() {
        let text = "\
            Types: deb deb-src\n# a comment\nURIs: http://mirror.example/debian\n\
            Suites: bookworm bookworm-updates\n bookworm-backports\nComponents: main contrib\n\
            Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\
            Types: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\nComponents: main\n\
            Enabled: no\n\n\
            Types: deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n";
        assert_eq!(
            own(parse_deb822(text)),
            [
                "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
              Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
            ]
        );
    }

    #[test]
    fn classic_format() {
        let text = "\
            # deb http://mirror.example/debian bookworm main\n\
            deb-src http://mirror.example/debian bookworm main\n\
            deb [arch=amd64,arm64 signed-by=/keys/debian-archive-keyring.gpg trusted=yes] \
                http://mirror.example/debian/ bookworm main # mine\n\
            deb\tmirror+file:/etc/apt/mirrors/debian.list bookworm-security main\n";
        assert_eq!(
            own(parse_lines(text)),
            [
                "Types: deb\nURIs: http://mirror.example/debian/\nSuites: bookworm\nComponents: main\n\
                 Architectures: amd64 arm64\nsigned-by: /keys/debian-archive-keyring.gpg\ntrusted: yes\n",
                "Types: deb\nURIs: mirror+file:/etc/apt/mirrors/debian.list\nSuites: bookworm-security\n\
                 Components: main\n",
            ]
        );
    }

    #[test]
    fn other_vendors_are_left_out() {
        let text = "\
            deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/debian bookworm main\n\
            deb https://vendor.example/linux/debian bookworm stable\n\
            deb https://vendor.example/apt bookworm main\n\
            deb https://vendor.example/debian bookworm-vendor main\n\
            deb http://mirror.example/debian trixie main\n";
        assert_eq!(own(parse_lines(text)), [""; 0]);
        let inline = "Types: deb\nURIs: https://vendor.example/debian\nSuites: bookworm\nComponents: main\n\
                      Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ\n -----END PGP PUBLIC KEY BLOCK-----\n";
        assert_eq!(own(parse_deb822(inline)), [""; 0]);
    }

    #[test]
    fn another_release_comes_from_the_same_place() {
        let text = "\
            deb [signed-by=/keys/debian-archive-keyring.gpg] http://mirror.example/debian bookworm main contrib\n\
            deb http://mirror.example/debian-security bookworm-security main\n";
        let system = |id: &str| System {
            id: id.into(),
            codename: "bookworm".into(),
            sources: parse_lines(text),
        };
        let trixie = system("debian").release("trixie").expect("there is one");
        let sources: Vec<String> = trixie.sources.iter().map(Source::to_deb822).collect();
        assert_eq!(
            sources,
            [
                "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n\
              signed-by: /keys/debian-archive-keyring.gpg\n"
            ]
        );
        assert!(system("ubuntu").release("trixie").is_none());
    }

    #[test]
    fn distributions() {
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(distribution(debian), Some(("debian".into(), "bookworm".into())));
        let ubuntu = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=\"noble\"\n";
        assert_eq!(distribution(ubuntu), Some(("ubuntu".into(), "noble".into())));
        assert_eq!(distribution("ID=fedora\nVERSION_CODENAME=\"\"\n"), None);
        assert_eq!(distribution(""), None);
    }
}
