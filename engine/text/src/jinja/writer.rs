//! A text that is being made. Used by what makes texts of several parts, which can become larger than any of them.

use super::ast::Name;
use super::error::Result;
use super::limits::Meter;
use super::value::Value;

pub struct Writer<'m> {
    text: String,
    meter: &'m Meter,
}

impl<'m> Writer<'m> {
    pub fn new(meter: &'m Meter) -> Self {
        Writer { text: String::new(), meter }
    }

    pub fn meter(&self) -> &'m Meter {
        self.meter
    }

    pub fn push(&mut self, text: &str) -> Result<()> {
        self.meter.bytes(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    pub fn push_char(&mut self, character: char) -> Result<()> {
        self.push(character.encode_utf8(&mut [0; 4]))
    }

    pub fn push_repeated(&mut self, text: &str, count: usize) -> Result<()> {
        self.meter.bytes(text.len().saturating_mul(count))?;
        self.text.extend(std::iter::repeat_n(text, count));
        Ok(())
    }

    /// With HTML escapes, as markupsafe writes them.
    pub fn push_escaped(&mut self, text: &str) -> Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['&', '>', '<', '\'', '"']) {
            self.push(&rest[..at])?;
            self.push(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'>' => "&gt;",
                b'<' => "&lt;",
                b'\'' => "&#39;",
                _ => "&#34;",
            })?;
            rest = &rest[at + 1..];
        }
        self.push(rest)
    }

    pub fn text(self) -> Name {
        self.text.into()
    }

    pub fn string(self) -> String {
        self.text
    }

    pub fn value(self) -> Value {
        Value::shared(self.text())
    }
}
