//! Lines of JSON, as log collectors read them. A key that comes twice in one object loses one of its values there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::lives::{a_life_of_trouble, an_eventful_life};
use super::{Lines, runtime, subscribed_by};

/// A value of JSON, whose objects have each key once.
#[derive(Debug, Clone, PartialEq)]
enum Strict {
    Text(String),
    Other,
    List(Vec<Strict>),
    Object(BTreeMap<String, Strict>),
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without double keys")
    }

    fn visit_str<E>(self, text: &str) -> Result<Strict, E> {
        Ok(Strict::Text(text.into()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
        Ok(Strict::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
        Ok(Strict::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Strict::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Strict, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry::<String, Strict>()? {
            if object.insert(key.clone(), value).is_some() {
                return Err(A::Error::custom(format!("the key {key:?} comes twice")));
            }
        }
        Ok(Strict::Object(object))
    }
}

impl Strict {
    fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(object) => object.get(key),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }
}

#[test]
fn no_key_comes_twice_and_text_is_not_quoted_twice() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    subscribed_by(subscriber, || {
        runtime().block_on(async {
            an_eventful_life(str::to_owned).await;
            a_life_of_trouble(str::to_owned).await;
        });
    });
    let printed = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let parsed: Vec<Strict> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let message =
        |line: &Strict, wanted: &str| line.get("fields").and_then(|fields| fields.text("message")) == Some(wanted);
    let acquired = parsed
        .iter()
        .find(|line| message(line, "lock acquired"))
        .expect("one was");
    let span = acquired.get("span").expect("it is in a span");
    assert_eq!((span.text("name"), span.text("lock")), (Some("acquire"), Some("a")));
    assert_eq!(span.text("label"), Some("worker 7"));
    assert!(parsed.iter().any(|line| message(line, "hold lost")), "{printed}");
}

#[test]
fn a_double_key_is_noticed() {
    let error = serde_json::from_str::<Strict>(r#"{"span":{"name":"a","name":"b"}}"#).unwrap_err();
    assert!(error.to_string().contains("\"name\" comes twice"), "{error}");
}
