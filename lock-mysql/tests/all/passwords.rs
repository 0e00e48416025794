//! Passwords from outside the configuration, which change while locks are held.

use std::sync::{Arc, Mutex};

use lock_core::backend::{DistributedLock, ReleaseOutcome, Renewal};
use lock_core::{CredentialSource, Credentials, Error, ErrorKind, HoldState};
use lock_mysql::{LeaseTableBackend, MySqlConfig, RowLockBackend, Strategy};
use testbed::Server;

use crate::support::*;

on_both_servers!(
    a_lease_outlives_the_password_of_its_connections,
    a_row_lock_stays_while_new_connections_use_the_new_password,
);

/// A user of one test's own, and the password that the client gives.
struct User {
    fixture: Fixture,
    observer: Observer,
    name: String,
    is_mysql: bool,
    known: Arc<Mutex<&'static str>>,
}

impl User {
    /// With the password `old`, at the server and here.
    async fn new(server: Server) -> Self {
        let fixture = Fixture::on(server);
        let mut observer = fixture.observer().await;
        let name = format!("pw_{}", fixture.table);
        observer
            .run(&format!(
                "CREATE USER '{name}'@'%' IDENTIFIED BY 'old'; GRANT ALL ON app.* TO '{name}'@'%'"
            ))
            .await;
        let is_mysql = !observer.text("SELECT VERSION()").await.contains("MariaDB");
        let known = Arc::new(Mutex::new("old"));
        Self {
            fixture,
            observer,
            name,
            is_mysql,
            known,
        }
    }

    fn config(&self) -> MySqlConfig {
        let (_, server) = self
            .fixture
            .server
            .url()
            .split_once('@')
            .map(|(_, server)| ((), server.to_owned()))
            .unwrap();
        let known = self.known.clone();
        let source = CredentialSource::ask(move || {
            let password = *known.lock().unwrap();
            async move { Ok(Credentials::new(password)) }
        });
        let config = patient(&format!("mysql://{server}")).with_table(&self.fixture.table);
        config.with_user(&self.name).with_credentials(source)
    }

    /// As the crate's page says: both passwords at the server, the new one here, then the new one alone at the server.
    async fn change_password(&mut self) {
        let name = &self.name;
        let (both, new) = match self.is_mysql {
            true => (
                format!("ALTER USER '{name}'@'%' IDENTIFIED BY 'new' RETAIN CURRENT PASSWORD"),
                format!("ALTER USER '{name}'@'%' DISCARD OLD PASSWORD"),
            ),
            false => (
                format!(
                    "ALTER USER '{name}'@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('old') \
                     OR mysql_native_password USING PASSWORD('new')"
                ),
                format!("ALTER USER '{name}'@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('new')"),
            ),
        };
        self.observer.run(&both).await;
        // Clients with either password are served meanwhile.
        for password in ["old", "new"] {
            *self.known.lock().unwrap() = password;
            let client = RowLockBackend::new(self.config()).unwrap();
            soon("connected", client.connect()).await.expect(password);
        }
        self.observer.run(&new).await;
    }

    async fn end_connections(&mut self) {
        let of_user = format!("FROM information_schema.PROCESSLIST WHERE USER='{}'", self.name);
        let all = format!("SELECT COALESCE(GROUP_CONCAT(ID),'') {of_user}");
        for id in self.observer.text(&all).await.split(',').filter(|id| !id.is_empty()) {
            // It may have ended by itself.
            self.observer.try_run(&format!("KILL CONNECTION {id}")).await;
        }
    }
}

async fn a_lease_outlives_the_password_of_its_connections(server: Server) {
    let mut user = User::new(server).await;
    let backend = LeaseTableBackend::new(user.config().with_strategy(Strategy::Lease)).unwrap();
    let granted = grant(&backend, "a", secs(60)).await;
    let ends = format!("SELECT expires FROM {}_leases WHERE name='a'", user.fixture.table);
    let first = user.observer.number(&ends).await;

    user.change_password().await;
    user.end_connections().await;

    let renewal = insist("renewed", async || granted.hold.renew(secs(120)).await).await;
    assert!(matches!(renewal, Renewal::Renewed(_)));
    assert!(
        user.observer.number(&ends).await > first + 30_000_000,
        "beyond what it had"
    );
    assert_eq!(granted.release().await, ReleaseOutcome::Released);

    // The next connection needs the new password.
    *user.known.lock().unwrap() = "old";
    let late = LeaseTableBackend::new(user.config().with_strategy(Strategy::Lease)).unwrap();
    let error = soon("refused", late.connect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

async fn a_row_lock_stays_while_new_connections_use_the_new_password(server: Server) {
    let mut user = User::new(server).await;
    let backend = RowLockBackend::new(user.config()).unwrap();
    let before = grant(&backend, "before", secs(60)).await;

    user.change_password().await;
    // The hold is a connection of its own, so this is another one.
    let after = grant(&backend, "after", secs(60)).await;

    let renewal = before.hold.renew(secs(60)).await.unwrap();
    assert!(matches!(renewal, Renewal::Renewed(_)));
    assert_eq!(before.state(), HoldState::Held);
    for granted in [before, after] {
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    }
}

#[testbed::test]
async fn an_error_of_the_source_arrives() {
    let fixture = Fixture::shared().await;
    let url = fixture.server.url();
    let (_, server) = url.split_once('@').unwrap();
    let locked = || async { Err(Error::new(ErrorKind::Denied, "the secret store is locked")) };
    let config = patient(&format!("mysql://app@{server}")).with_connect_timeout(secs(3600));
    for (config, kind, said) in [
        (
            config.clone().with_credentials(CredentialSource::ask(locked)),
            ErrorKind::Denied,
            "the secret store is locked",
        ),
        (
            config.with_credentials(CredentialSource::file("/no/such/file")),
            ErrorKind::Misconfigured,
            "the password file /no/such/file cannot be read",
        ),
    ] {
        let backend = RowLockBackend::new(config).unwrap();
        let error = soon("refused", backend.connect()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, false), "{error}");
        assert!(error.is_not_executed() && error.to_string().contains(said), "{error}");
    }
}
