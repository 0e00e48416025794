//! The libraries: what each claims, where it says so, and how its clients are started.

use benchmarks_programs::{Profile, Program};
use testbed::{Edition, MariaDb, Postgres, Redis, Server, ZooKeeper};

pub(crate) use self::list::ALL;

use crate::claims::Claim;
use crate::view::{Store, View};

mod list;

/// One lock of a library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// The class or type whose locks are tested.
    pub(crate) lock: &'static str,
    pub(crate) language: Language,
    pub(crate) store: Store,
    /// With the place where the library says it.
    pub(crate) claims: &'static [(Claim, &'static str)],
    /// Options other than the defaults, and what the library's documentation says of them.
    pub(crate) settings: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Go,
    Java,
    Python,
}

/// The names of all.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|library| library.name)
}

/// The one with this name.
pub(crate) fn named(name: &str) -> Option<&'static Library> {
    ALL.iter().find(|library| library.name == name)
}

impl Library {
    pub(crate) fn claims_all(&self, needs: &[Claim]) -> bool {
        needs
            .iter()
            .all(|need| self.claims.iter().any(|(claim, _)| claim == need))
    }

    pub(crate) async fn build(&self) -> Result<Program, String> {
        match (self.language, self.store) {
            (Language::Python, Store::ZooKeeper) => benchmarks_programs::python("conformance.py", testbed::kazoo()),
            (Language::Python, _) => benchmarks_programs::python("conformance.py", testbed::redis_py()),
            (Language::Go, _) => benchmarks_programs::go("./conformance").await,
            (Language::Java, _) => benchmarks_programs::java("Conformance").await,
            (Language::Rust, store) => {
                let binary = match store {
                    Store::Redis(_) => "conformance-redis",
                    Store::MySql => "conformance-mysql",
                    Store::Postgres => "conformance-postgres",
                    Store::ZooKeeper => "conformance-zookeeper",
                };
                // With the features of all, so that they share what is built.
                benchmarks_programs::rust(binary, "redis,mysql,postgres,zookeeper", Profile::Debug).await
            }
        }
    }

    pub(crate) async fn start_server(&self) -> Result<Server, String> {
        let server = match self.store {
            Store::Redis(_) => Redis::new().start().await,
            Store::MySql => MariaDb::new().edition(Edition::MySql9).start().await,
            Store::Postgres => Postgres::new().start().await,
            Store::ZooKeeper => ZooKeeper::new().start().await,
        };
        server.map_err(|error| error.to_string())
    }

    /// What the server calls itself.
    pub(crate) async fn server_version(&self, server: &Server) -> Result<String, String> {
        let view = View {
            store: self.store,
            url: server.url(),
        };
        view.version().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_library_claims_something_twice() {
        for library in ALL {
            for (at, (claim, _)) in library.claims.iter().enumerate() {
                let before = &library.claims[..at];
                assert!(
                    before.iter().all(|(earlier, _)| earlier != claim),
                    "{}: {claim:?}",
                    library.name
                );
            }
        }
    }
}
