//! json.dumps: the filter tojson with which transformers replaces Jinja's. Called by filters.rs.

use std::fmt::Write;

use super::error::{failed, Error, Result};
use super::limits::Meter;
use super::number::float_text;
use super::value::Value;

/// The arguments of json.dumps that templates may set.
pub struct Style {
    pub ensure_ascii: bool,
    /// One level of indentation; None: everything is on one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

pub fn json_of(value: &Value, style: &Style, meter: &Meter) -> Result<String> {
    let mut writer = Writer { style, meter, out: String::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'w> {
    style: &'w Style,
    meter: &'w Meter,
    out: String,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.meter.steps(1)?;
        match value {
            Value::None | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
                let text = scalar(value)?;
                self.write(&text)
            }
            Value::Text { text, .. } => self.string(text),
            Value::List(sequence) | Value::Tuple(sequence) => {
                self.write("[")?;
                for (index, item) in sequence.items.iter().enumerate() {
                    self.begin_item(index, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.end_items(sequence.items.is_empty(), depth)?;
                self.write("]")
            }
            Value::Dict(dict) => {
                self.write("{")?;
                let mut entries: Vec<&(Value, Value)> = dict.entries.iter().collect();
                if self.style.sort_keys {
                    super::sequences::sort_by(&mut entries, |(a, _), (b, _)| super::operators::order(a, b, self.meter))?;
                }
                for (index, (key, field)) in entries.into_iter().enumerate() {
                    self.begin_item(index, depth + 1)?;
                    match key.as_text() {
                        Some(text) => self.string(text)?,
                        None => self.string(&scalar(key)?)?,
                    }
                    let separator = &self.style.key_separator;
                    self.write(separator)?;
                    self.value(field, depth + 1)?;
                }
                self.end_items(dict.entries.is_empty(), depth)?;
                self.write("}")
            }
            other => Err(not_serializable(other)),
        }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.meter.text(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn begin_item(&mut self, index: usize, depth: usize) -> Result<()> {
        if index > 0 {
            let separator = &self.style.item_separator;
            self.write(separator)?;
        }
        self.new_line(depth)
    }

    fn end_items(&mut self, empty: bool, depth: usize) -> Result<()> {
        if empty {
            Ok(())
        } else {
            self.new_line(depth)
        }
    }

    fn new_line(&mut self, depth: usize) -> Result<()> {
        let Some(indent) = &self.style.indent else { return Ok(()) };
        self.meter.text(1 + indent.len() * depth)?;
        self.out.push('\n');
        self.out.push_str(&indent.repeat(depth));
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<()> {
        self.meter.text(text.len() + 2)?;
        let out = &mut self.out;
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => write_unicode_escape(character, out),
                '\x7f'.. if self.style.ensure_ascii => write_unicode_escape(character, out),
                _ => out.push(character),
            }
        }
        out.push('"');
        Ok(())
    }
}

fn scalar(value: &Value) -> Result<String> {
    Ok(match value {
        Value::None => "null".to_string(),
        Value::Bool(truth) => if *truth { "true" } else { "false" }.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Float(real) => float_text(*real, ["NaN", "Infinity", "-Infinity"]),
        other => return Err(not_serializable(other)),
    })
}

fn not_serializable(value: &Value) -> Error {
    match value {
        Value::Undefined(name) => failed(format!("tojson: a value of kind undefined has no JSON form: {name} is not defined")),
        other => failed(format!("tojson: {} has no JSON form", other.type_name())),
    }
}

fn write_unicode_escape(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}
