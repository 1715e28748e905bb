//! A line of JSON as its members, whose values stay text: numbers keep their digits.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// In the order of the text.
pub struct Line<'a>(pub Vec<(String, &'a RawValue)>);

impl<'a> Line<'a> {
    pub fn parse(text: &'a str) -> Result<Line<'a>, String> {
        serde_json::from_str(text).map_err(|error| format!("a row is not a JSON object: {error}"))
    }
}

impl<'a> Deserialize<'a> for Line<'a> {
    fn deserialize<D: Deserializer<'a>>(input: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'a> Visitor<'a> for Members {
            type Value = Line<'a>;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Line<'a>, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Line(members))
            }
        }
        input.deserialize_map(Members)
    }
}

/// A double holds all integers up to this.
const EXACT_MAX: u64 = 1 << 53;

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Null,
    Bool,
    /// Of 64 bits that a double holds exactly.
    Integer,
    /// Of 64 bits that a double does not hold.
    LongInteger,
    Number,
    Text,
    /// A list, an object, or a number that neither 64 bits nor a double hold.
    Other,
}

pub fn kind_of(value: &RawValue) -> Kind {
    let text = value.get();
    match text.as_bytes()[0] {
        b'n' => Kind::Null,
        b't' | b'f' => Kind::Bool,
        b'"' => Kind::Text,
        b'[' | b'{' => Kind::Other,
        _ if text.parse::<i64>().is_ok_and(|value| value.unsigned_abs() <= EXACT_MAX) => Kind::Integer,
        _ if text.parse::<i64>().is_ok() => Kind::LongInteger,
        _ if text.contains(['.', 'e', 'E']) && text.parse::<f64>().is_ok_and(f64::is_finite) => Kind::Number,
        _ => Kind::Other,
    }
}
