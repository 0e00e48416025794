//! Fields that are no text, but in which somebody may write a URL. An error of serde's would repeat it, with its password.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::config::QuorumOptions;

pub(super) fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::deserialize(deserializer);
    list.map_err(|_| {
        D::Error::custom(
            "`urls` is a list of URLs: write one URL as `url`, and several as `urls = [\"redis://a\", \"redis://b\"]`",
        )
    })
}

pub(super) fn quorum<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<QuorumOptions>, D::Error> {
    // With a hint, some formats complain of the text themselves.
    deserializer.deserialize_any(Quorum)
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
