//! Rows of the driver, for tests. Nothing but a server makes them, so this one answers any statement with the row that it is given.

use std::io::{Write, copy, sink};
use std::net::{Ipv4Addr, TcpListener};

use sqlx::mysql::{MySqlConnectOptions, MySqlRow, MySqlSslMode};
use sqlx::{ConnectOptions, Executor, raw_sql};

/// A value in a column of its type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Signed(i64),
    Unsigned(u64),
    Bytes(&'a [u8]),
}

/// A row of these values.
pub(crate) fn row(values: &[Value<'_>]) -> MySqlRow {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Without statements of its own when it connects.
    let options = MySqlConnectOptions::new()
        .host("127.0.0.1")
        .port(listener.local_addr().unwrap().port())
        .ssl_mode(MySqlSslMode::Disabled)
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None)
        .set_names(false);
    let answers = answers(values);
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(&answers).unwrap();
        // To close it before all is read would reset it.
        copy(&mut client, &mut sink()).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let row = runtime.unwrap().block_on(async {
        let mut connection = options.connect().await.unwrap();
        connection.fetch_one(raw_sql("SELECT")).await.unwrap()
    });
    server.join().unwrap();
    row
}

/// All that the server sends: its greeting, yes to the login, and the row.
fn answers(values: &[Value<'_>]) -> Vec<u8> {
    const GREETING: &[u8] = b"\x0a8.0.0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02\x2d\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const OK: &[u8] = b"\0\0\0\x02\0\0\0";
    const END: &[u8] = b"\xfe\0\0\x02\0";
    let mut packets = vec![GREETING.to_vec(), OK.to_vec(), vec![length(values)]];
    packets.extend(values.iter().map(column));
    packets.push(END.to_vec());
    packets.push(values.iter().flat_map(text).collect());
    packets.push(END.to_vec());
    let framed = packets
        .into_iter()
        .flat_map(|packet| [vec![length(&packet), 0, 0, 0], packet].concat());
    framed.collect()
}

/// The definition of the value's column: without a name, then its type and its flags.
fn column(value: &Value<'_>) -> Vec<u8> {
    let (kind, flags) = match value {
        Value::Null => (6, 0),
        Value::Signed(_) => (8, 0),
        Value::Unsigned(_) => (8, 32),
        Value::Bytes(_) => (252, 128),
    };
    [
        &b"\x03def\0\0\0\0\0\x0c\x3f\0\xff\0\0\0"[..],
        &[kind, flags, 0, 0, 0, 0],
    ]
    .concat()
}

fn text(value: &Value<'_>) -> Vec<u8> {
    let text = match value {
        Value::Null => return vec![0xfb],
        Value::Signed(number) => number.to_string().into_bytes(),
        Value::Unsigned(number) => number.to_string().into_bytes(),
        Value::Bytes(bytes) => bytes.to_vec(),
    };
    [vec![length(&text)], text].concat()
}

/// Greater ones are written otherwise.
fn length<T>(of: &[T]) -> u8 {
    u8::try_from(of.len()).ok().filter(|length| *length < 251).unwrap()
}
