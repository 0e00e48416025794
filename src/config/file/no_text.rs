//! Fields that are no text, but in which somebody may write a URL. An error of serde's would repeat it, with its password.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::config::QuorumOptions;

pub(super) fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    // With a hint, some formats complain of the text themselves.
    deserializer.deserialize_any(Urls)
}

pub(super) fn quorum<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<QuorumOptions>, D::Error> {
    deserializer.deserialize_any(Quorum)
}

struct Urls;

impl<'de> Visitor<'de> for Urls {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of URLs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(list))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(E::custom(
            "`urls` is a list: write one URL as `url`, and several as `urls = [\"redis://a\", \"redis://b\"]`",
        ))
    }
}

struct Quorum;

impl<'de> Visitor<'de> for Quorum {
    type Value = Option<QuorumOptions>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings of a quorum")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, settings: A) -> Result<Self::Value, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(settings)).map(Some)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(E::custom(
            "`quorum` has settings, as in `quorum = { restart_delay = \"60s\" }`: the servers of the quorum are `urls`",
        ))
    }
}
