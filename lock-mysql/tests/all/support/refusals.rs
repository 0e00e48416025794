//! A proxy in whose way the server refuses a statement: any of them, within a text of several.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Fixture;

/// What a server answers to one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 1205: the transaction stays open.
    LockWait,
    /// 1205 of a server with `innodb_rollback_on_timeout`.
    LockWaitAndRollback,
    /// 1213: the transaction was rolled back.
    Deadlock,
}

impl Refusal {
    pub(crate) const ALL: [Self; 3] = [Self::LockWait, Self::LockWaitAndRollback, Self::Deadlock];

    fn procedure(self, fixture: &Fixture) -> String {
        format!("{}_{self:?}", fixture.table)
    }

    /// Makes the procedures that raise the errors at the server: it executes what comes before them, and does the rest of the
    /// text no more, as with an error of its own.
    pub(crate) async fn prepare(fixture: &Fixture) {
        let mut observer = fixture.observer().await;
        for refusal in Self::ALL {
            let raises = match refusal {
                Self::LockWait => "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO=1205;",
                Self::LockWaitAndRollback => "ROLLBACK; SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO=1205;",
                Self::Deadlock => "ROLLBACK; SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=1213;",
            };
            let procedure = refusal.procedure(fixture);
            observer
                .run(&format!("CREATE PROCEDURE {procedure}() BEGIN {raises} END"))
                .await;
        }
    }
}

/// A network that counts the statements of one client, and replaces one of them.
#[derive(Clone)]
pub(crate) struct RefusingProxy {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What replaces the statement of this number, counted from 1.
    at: usize,
    by: String,
    statements: AtomicUsize,
    /// The statement that was replaced.
    refused: OnceLock<String>,
    open: AtomicUsize,
    /// All statements in order, for people.
    said: Mutex<Vec<String>>,
}

impl RefusingProxy {
    /// Refuses the statement of this number.
    pub(crate) async fn new(fixture: &Fixture, refusal: Refusal, at: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = fixture.server.address().to_owned();
        let shared = Arc::new(Shared {
            at,
            by: format!("CALL {}()", refusal.procedure(fixture)),
            statements: AtomicUsize::new(0),
            refused: OnceLock::new(),
            open: AtomicUsize::new(0),
            said: Mutex::default(),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, serving) = (server.clone(), serving.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(server).await.unwrap();
                    serving.open.fetch_add(1, Ordering::SeqCst);
                    serve(client, server, &serving).await;
                    serving.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, shared }
    }

    /// The server's URL by way of this.
    pub(crate) fn url(&self, fixture: &Fixture) -> String {
        format!("{}?ssl-mode=DISABLED", fixture.server.url_at(&self.address))
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many statements the client has sent.
    pub(crate) fn statements(&self) -> usize {
        self.shared.statements.load(Ordering::SeqCst)
    }

    /// The statement that was refused.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.shared.refused.get().map(String::as_str)
    }

    /// The last statements up to now.
    pub(crate) fn last_statements(&self) -> String {
        let said = self.shared.said.lock().unwrap();
        said[said.len().saturating_sub(20)..].join("\n  ")
    }
}

async fn serve(mut client: TcpStream, mut server: TcpStream, shared: &Shared) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    tokio::select! {
        _ = pass_commands(&mut from_client, &mut to_server, shared) => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// Ends with the connection, by an error.
async fn pass_commands(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    shared: &Shared,
) -> std::io::Result<std::convert::Infallible> {
    const QUERY: u8 = 3;
    loop {
        let mut header = [0; 4];
        from.read_exact(&mut header).await?;
        let [a, b, c, sequence] = header;
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        from.read_exact(&mut payload).await?;
        // The packets of a login have other numbers.
        if sequence == 0 && payload.first() == Some(&QUERY) {
            let text = String::from_utf8(payload[1..].to_vec()).unwrap();
            payload.truncate(1);
            payload.extend(shared.replace(&text).into_bytes());
        }
        let [a, b, c, _] = u32::try_from(payload.len()).unwrap().to_le_bytes();
        to.write_all(&[&[a, b, c, sequence], &payload[..]].concat()).await?;
    }
}

impl Shared {
    fn replace(&self, text: &str) -> String {
        let mut statements: Vec<&str> = text.split(';').collect();
        for statement in &mut statements {
            let number = self.statements.fetch_add(1, Ordering::SeqCst) + 1;
            self.said.lock().unwrap().push(format!("{number}: {statement}"));
            if number == self.at {
                self.refused.set((*statement).to_owned()).expect("one has this number");
                *statement = &self.by;
            }
        }
        statements.join(";")
    }
}
