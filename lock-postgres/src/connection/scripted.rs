//! A server for tests, which lets everybody in and gives one answer.

use std::sync::Arc;

use futures_util::future::join;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Builder;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Error, NoTls, Row, SimpleQueryMessage};
use uuid::Uuid;

use super::Connection;

/// The bytes of a column; `None` for `NULL`.
pub(crate) type Value = Option<Vec<u8>>;

/// A message of the server.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], body].concat()
}

/// The rows of a text: each is a line, with `|` between its columns, and `~` for one that is `NULL`.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = Vec<Option<&str>>> {
    let column = |column| (column != "~").then_some(column);
    text.lines().map(move |line| line.split('|').map(column).collect())
}

/// The [rows of a text](parts), and as the driver reads them if a statement has columns of these types. A value that is none of its
/// type is sent as its bytes; `\u{1}` stands for one that is in no text.
pub(crate) fn rows_of(text: &str, types: &[Type]) -> (Vec<Vec<Value>>, Vec<Row>) {
    let row = |row: Vec<Option<&str>>| {
        let value = |(number, of)| Some(bytes(row.get(number).copied().flatten()?, of));
        types.iter().enumerate().map(value).collect()
    };
    let values: Vec<_> = parts(text).map(row).collect();
    let rows = rows(types, &values);
    (values, rows)
}

fn bytes(text: &str, of: &Type) -> Vec<u8> {
    let is = |other: Type| *of == other;
    match (text.parse::<i64>(), Uuid::parse_str(text)) {
        (Ok(number), _) if is(Type::INT8) => number.to_be_bytes().to_vec(),
        (Ok(number), _) if is(Type::INT2) => number.to_be_bytes()[6..].to_vec(),
        (_, Ok(id)) if is(Type::UUID) => id.as_bytes().to_vec(),
        _ if is(Type::BOOL) && ["t", "f"].contains(&text) => vec![u8::from(text == "t")],
        _ => {
            let byte = |byte| if byte == 1 { 0xFF } else { byte };
            text.bytes().map(byte).collect()
        }
    }
}

/// The number of a column of 8 bytes.
pub(crate) fn int8(value: &Value) -> Option<i64> {
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    value.as_deref().map(number)
}

/// Whether a column of a byte is true.
pub(crate) fn is_set(value: &Value) -> bool {
    value.as_deref().is_some_and(|bytes| bytes != [0])
}

/// The text of a column, which may be none.
pub(crate) fn lossy(value: &Value) -> Option<String> {
    value
        .as_deref()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The rows of a statement with columns of these types, as the driver reads them.
fn rows(types: &[Type], rows: &[Vec<Value>]) -> Vec<Row> {
    let columns: Vec<_> = types.iter().map(|of| ("c", of.clone())).collect();
    let begin = [message(b'1', b""), message(b'2', b"")].concat();
    let answer = [begin, table(&columns, rows)].concat();
    let asked = ask(&answer, async |client| client.query_typed("SELECT", &[]).await);
    asked.expect("the answer is one of a statement")
}

/// The answer to a text of one statement with these columns, as the driver reads it.
pub(crate) fn messages(columns: &[&str], rows: &[Vec<Value>]) -> Vec<SimpleQueryMessage> {
    let columns: Vec<_> = columns.iter().map(|name| (*name, Type::TEXT)).collect();
    let asked = ask(&table(&columns, rows), async |client| {
        client.simple_query("SELECT").await
    });
    asked.expect("the answer is one of a text")
}

/// A connection whose server gives this answer to the first text, and leaves.
pub(crate) async fn connection(answer: Vec<u8>) -> Arc<Connection> {
    let (client, mut server) = duplex(4096);
    tokio::spawn(async move {
        let login = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
        for said in [login, answer] {
            if server.read(&mut [0; 1024]).await.is_ok_and(|length| length > 0) {
                server.write_all(&said).await.unwrap();
            }
        }
    });
    let connected = Config::new().user("u").connect_raw(client, NoTls).await;
    let (client, driver) = connected.expect("the server lets everybody in");
    let made = Connection::spawn(client, driver, Box::new(|_| {}));
    Arc::new(Connection::new(made, false, String::new()))
}

/// What the driver makes of this answer.
fn ask<T>(answer: &[u8], ask: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, Error> {
    let (client, mut server) = duplex(4096);
    let login = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    let serve = async {
        for said in [&login[..], answer] {
            // What the client says comes in one piece.
            let length = server.read(&mut [0; 1024]).await.unwrap();
            assert!(length > 0, "the client has left");
            server.write_all(said).await.unwrap();
        }
    };
    let asked = async {
        let connected = Config::new().user("u").connect_raw(client, NoTls).await;
        let (client, driver) = connected.expect("the server lets everybody in");
        // The client's end is the driver's.
        let asked = async move { ask(&client).await };
        join(asked, driver).await.0
    };
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(join(serve, asked)).1
}

fn table(columns: &[(&str, Type)], rows: &[Vec<Value>]) -> Vec<u8> {
    let count = |count: usize| i16::try_from(count).unwrap().to_be_bytes();
    let mut description = count(columns.len()).to_vec();
    for (name, of) in columns {
        description.extend([name.as_bytes(), &[0; 7], &of.oid().to_be_bytes(), &[0; 8]].concat());
    }
    let mut answer = message(b'T', &description);
    for row in rows {
        let mut body = count(row.len()).to_vec();
        for value in row {
            let length = value.as_ref().map_or(-1, |value| i32::try_from(value.len()).unwrap());
            body.extend([&length.to_be_bytes(), value.as_deref().unwrap_or_default()].concat());
        }
        answer.extend(message(b'D', &body));
    }
    answer.extend([message(b'C', b"SELECT\0"), message(b'Z', b"I")].concat());
    answer
}
