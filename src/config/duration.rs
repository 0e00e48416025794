//! Durations as people write them: a number with its unit.

use std::fmt;
use std::time::Duration;

use lock_core::backend::parse_duration;
use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// An optional duration, such as `"1m 30s"`. A number without a unit is an error.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    deserializer.deserialize_option(WithUnit)
}

struct WithUnit;

impl<'de> Visitor<'de> for WithUnit {
    type Value = Option<Duration>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with its unit: write 3s or 500ms")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let parsed = parse_duration(text).map(Some);
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}
