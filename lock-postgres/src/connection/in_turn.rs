//! One request at a time, for a connection behind a pooler of transactions.
//!
//! A PgBouncer 1.18 whose client leaves with several requests under way lends its connection on as soon as the first of them has its
//! answer. The next client is then given the answers to the others. So a request is sent when the one before has its answer, whether
//! or not somebody still waits for that.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::state::{EndOnDrop, QueuedRequest, State, UnansweredRequest};
use super::{Parameters, Statement};
use crate::error::SqlError;

/// The requests of one connection.
pub(super) struct InTurn {
    client: Arc<Client>,
    state: Arc<State>,
    requests: mpsc::UnboundedSender<Request>,
}

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

impl InTurn {
    /// Spawns the task that sends them, on this runtime. It ends with the connection.
    pub(super) fn spawn(client: Arc<Client>, state: Arc<State>) -> Self {
        let (requests, mut next) = mpsc::unbounded_channel::<Request>();
        let end = EndOnDrop(state.clone());
        tokio::spawn(async move {
            let _end = end;
            while let Some(request) = next.recv().await {
                request.await;
            }
        });
        Self {
            client,
            state,
            requests,
        }
    }

    /// Its place in the order is that of its first poll. `begin` reports its turn; if nobody receives that any more, nothing is sent.
    pub(super) async fn query(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
        begin: oneshot::Sender<()>,
    ) -> Result<Vec<Row>, SqlError> {
        let (client, sql) = (self.client.clone(), statement.sql.clone());
        let parameters = encoded(statement, parameters)?;
        self.ask(
            async move {
                let typed: Vec<_> = parameters
                    .iter()
                    .map(|(value, of)| (value as &(dyn ToSql + Sync), of.clone()))
                    .collect();
                client.query_typed(&sql, &typed).await
            },
            begin,
        )
        .await
    }

    /// The same for a text of statements, which is one request.
    pub(super) async fn run(&self, sql: &str, begin: oneshot::Sender<()>) -> Result<Vec<SimpleQueryMessage>, SqlError> {
        let (client, sql) = (self.client.clone(), sql.to_owned());
        self.ask(async move { client.simple_query(&sql).await }, begin).await
    }

    /// Sends a text whose answer nobody needs.
    pub(super) fn send(&self, sql: &str) {
        let (client, sql) = (self.client.clone(), sql.to_owned());
        self.push(async move { drop(client.simple_query(&sql).await) });
    }

    async fn ask<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, tokio_postgres::Error>> + Send + 'static,
        begin: oneshot::Sender<()>,
    ) -> Result<T, SqlError> {
        let (answer, answered) = oneshot::channel();
        let state = self.state.clone();
        self.push(async move {
            if begin.send(()).is_err() {
                return;
            }
            let result = match state.ended.load(Ordering::SeqCst) {
                true => Err(SqlError::NotConnected),
                false => request.await.map_err(SqlError::from),
            };
            // Its caller may have left.
            drop(answer.send(result));
        });
        // Without an answer, the task has ended with its runtime.
        answered.await.unwrap_or(Err(SqlError::Disconnected(None)))
    }

    /// Until it is answered, the connection is not idle. The server is silent only if it has no answer to what was sent.
    fn push(&self, request: impl Future<Output = ()> + Send + 'static) {
        let (queued, state) = (QueuedRequest::begin(&self.state), self.state.clone());
        // If the task has ended, so has the connection, and its callers learn of that.
        drop(self.requests.send(Box::pin(async move {
            let _unanswered = UnansweredRequest::begin(&state);
            drop(queued);
            request.await;
        })));
    }
}

/// A parameter as it is sent; `None` is NULL.
#[derive(Debug)]
struct Encoded(Option<BytesMut>);

impl ToSql for Encoded {
    fn to_sql(&self, _of: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        Ok(match &self.0 {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                IsNull::No
            }
            None => IsNull::Yes,
        })
    }

    fn accepts(_of: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The parameters with their types, as values that outlive the caller.
fn encoded(statement: &Statement, parameters: Parameters<'_>) -> Result<Vec<(Encoded, Type)>, SqlError> {
    let encode = |(parameter, of): (&&(dyn ToSql + Sync), &Type)| {
        let mut bytes = BytesMut::new();
        let value = match parameter.to_sql_checked(of, &mut bytes) {
            Ok(IsNull::No) => Some(bytes),
            Ok(IsNull::Yes) => None,
            Err(_) => return Err(SqlError::UnexpectedParameter(of.name().to_owned())),
        };
        Ok((Encoded(value), of.clone()))
    };
    parameters.iter().zip(&statement.types).map(encode).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;
    use tokio_postgres::{Config, NoTls};

    use super::*;
    use crate::connection::Connection;
    use crate::connection::scripted::message;

    const LIMIT: Duration = Duration::from_secs(1);

    /// A connection whose requests take turns, and the server's end of it.
    async fn connected() -> (Connection, DuplexStream) {
        let (client, mut server) = duplex(4096);
        let login = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
        server.write_all(&login).await.unwrap();
        let (client, driver) = Config::new().user("u").connect_raw(client, NoTls).await.unwrap();
        // What the client says first has no length of its own kind.
        read(&mut server).await;
        let made = Connection::spawn(client, driver, Box::new(|_| {}));
        (Connection::new(made, true, String::new()), server)
    }

    /// A message of the client, which comes in one piece.
    async fn read(server: &mut DuplexStream) -> String {
        let mut bytes = [0; 1024];
        let length = server.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    async fn answer(server: &mut DuplexStream) {
        let answer = [message(b'C', b"SELECT\0"), message(b'Z', b"I")].concat();
        server.write_all(&answer).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_its_whole_limit_from_its_turn_on() {
        let (connection, mut server) = connected().await;
        let asked = async {
            let asked = ["1", "2", "3"].map(|sql| connection.run(sql, Some(LIMIT)));
            for answer in futures_util::future::join_all(asked).await {
                answer.expect("it was answered within the limit");
            }
        };
        let serve = async {
            for turn in 0..3 {
                read(&mut server).await;
                sleep(LIMIT * 9 / 10).await;
                assert!(!connection.is_silent() && !connection.is_idle(), "{turn}");
                answer(&mut server).await;
            }
        };
        tokio::join!(asked, serve);
        assert!(connection.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_turn_does_not_come_is_not_sent_and_ends_nothing() {
        let (connection, mut server) = connected().await;
        let first = connection.run("first", None);
        let rest = async {
            let error = connection.run("second", Some(LIMIT)).await.unwrap_err();
            assert!(
                matches!(error, SqlError::NotSent(_)) && error.is_not_executed(),
                "{error}"
            );
            assert!(read(&mut server).await.contains("first"));
            answer(&mut server).await;
            let serve = async {
                assert!(read(&mut server).await.contains("third"));
                answer(&mut server).await;
            };
            tokio::join!(connection.run("third", Some(LIMIT)), serve).0.unwrap();
        };
        tokio::join!(first, rest).0.unwrap();
        assert!(!connection.has_ended());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_the_connection_for_those_behind_it() {
        let (connection, _server) = connected().await;
        let (first, second) = tokio::join!(
            connection.run("first", Some(LIMIT)),
            connection.run("second", Some(LIMIT))
        );
        assert!(matches!(first, Err(SqlError::TimedOut(LIMIT))), "{first:?}");
        assert!(second.unwrap_err().is_disconnect());
        assert!(connection.has_ended());
    }

    fn sent(value: &(dyn ToSql + Sync), of: &Type) -> Option<Vec<u8>> {
        let mut bytes = BytesMut::new();
        let is_null = value.to_sql_checked(of, &mut bytes).expect("it fits");
        matches!(is_null, IsNull::No).then(|| bytes.to_vec())
    }

    #[test]
    fn parameters_are_sent_as_the_driver_sends_them() {
        let types = vec![Type::INT8, Type::TEXT, Type::BYTEA, Type::BOOL, Type::TEXT];
        let statement = Statement {
            sql: String::new(),
            types: types.clone(),
        };
        let parameters: Parameters<'_> = &[&-7_i64, &"wörd", &&b"\0\xff"[..], &true, &None::<String>];
        let encoded = encoded(&statement, parameters).expect("they fit");
        assert_eq!(encoded.len(), parameters.len());
        for ((parameter, of), (value, of_value)) in parameters.iter().zip(&types).zip(&encoded) {
            assert_eq!(of_value, of);
            assert_eq!(sent(value, of), sent(*parameter, of), "{of}");
        }
        assert_eq!(sent(&encoded[0].0, &Type::INT8), Some((-7_i64).to_be_bytes().to_vec()));
        assert_eq!(sent(&encoded[4].0, &Type::TEXT), None);
    }

    #[test]
    fn a_parameter_of_another_type_is_refused() {
        let statement = Statement {
            sql: String::new(),
            types: vec![Type::INT8],
        };
        let refused = encoded(&statement, &[&"seven"]);
        assert!(matches!(refused, Err(SqlError::UnexpectedParameter(of)) if of == "int8"));
    }
}
