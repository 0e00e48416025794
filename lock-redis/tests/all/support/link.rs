//! A connection that a test writes to and reads from in place, so that hundreds of thousands of requests take seconds. What is
//! published on its channels comes with the replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Reply>),
    Error(String),
}

pub(crate) struct Link {
    to: TcpStream,
    from: BufReader<TcpStream>,
    requests: Vec<u8>,
    /// Channels and messages that were not taken yet.
    news: Vec<(String, String)>,
}

impl Link {
    pub(crate) fn connect(address: &str) -> Self {
        let to = TcpStream::connect(address).expect("it is there");
        to.set_nodelay(true).expect("it is a socket");
        let from = BufReader::new(to.try_clone().expect("a second handle"));
        let mut link = Self {
            to,
            from,
            requests: Vec::new(),
            news: Vec::new(),
        };
        link.ask(&["HELLO", "3"]);
        link
    }

    /// Adds a request to those that go out together.
    pub(crate) fn add(&mut self, words: &[&str]) {
        write!(self.requests, "*{}\r\n", words.len()).expect("it is memory");
        for word in words {
            write!(self.requests, "${}\r\n{word}\r\n", word.len()).expect("it is memory");
        }
    }

    /// Sends what was added, and reads so many replies.
    pub(crate) fn run(&mut self, replies: usize) -> Vec<Reply> {
        self.to.write_all(&self.requests).expect("it listens");
        self.requests.clear();
        (0..replies).map(|_| self.reply()).collect()
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Reply {
        self.add(words);
        self.run(1).remove(0)
    }

    /// Begins or ends to hear a channel.
    pub(crate) fn hear(&mut self, command: &str, channel: &str) {
        // Which has no reply of its own.
        self.add(&[command, channel]);
        self.ask(&["PING"]);
    }

    /// What came since this was asked last. What a request published has come with the reply to the next one.
    pub(crate) fn news(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.news)
    }

    fn reply(&mut self) -> Reply {
        loop {
            let (kind, rest) = self.line();
            if kind != b'>' {
                return self.rest_of(kind, &rest);
            }
            let Reply::List(push) = self.rest_of(b'*', &rest) else {
                panic!("a push without parts");
            };
            if let [Reply::Text(kind), Reply::Text(channel), Reply::Text(message)] = &push[..]
                && kind == "message"
            {
                self.news.push((channel.clone(), message.clone()));
            }
        }
    }

    fn line(&mut self) -> (u8, String) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        let kind = *line.as_bytes().first().expect("it goes on");
        (kind, line[1..].trim_end().to_owned())
    }

    fn rest_of(&mut self, kind: u8, rest: &str) -> Reply {
        let number = || rest.parse::<i64>().expect("a number");
        match kind {
            b'+' | b',' => Reply::Text(rest.to_owned()),
            b'-' => Reply::Error(rest.to_owned()),
            b'_' => Reply::Nil,
            b':' => Reply::Int(number()),
            b'$' | b'=' | b'*' | b'~' | b'%' if rest == "-1" => Reply::Nil,
            b'$' | b'=' => {
                let mut text = vec![0; usize::try_from(number()).expect("a length") + 2];
                self.from.read_exact(&mut text).expect("it goes on");
                text.truncate(text.len() - 2);
                Reply::Text(String::from_utf8(text).expect("it is text"))
            }
            b'*' | b'~' | b'%' => {
                let parts = number() * if kind == b'%' { 2 } else { 1 };
                Reply::List((0..parts).map(|_| self.reply()).collect())
            }
            other => panic!("an unknown kind of reply: {}{rest}", char::from(other)),
        }
    }
}

impl Reply {
    pub(crate) fn list(self) -> Vec<Reply> {
        match self {
            Self::List(parts) => parts,
            other => panic!("{other:?} is no list"),
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("{other:?} is no number"),
        }
    }
}
