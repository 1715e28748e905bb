//! json.dumps: the filter tojson with which transformers replaces Jinja's. Called by filters.rs.

use super::ast::Name;
use super::error::{failed, Error, Result};
use super::limits::Meter;
use super::number::float_text;
use super::operators::order;
use super::sequences::sorted;
use super::value::Value;
use super::writer::Writer;

/// The arguments of json.dumps that templates may set.
pub struct Style {
    pub ensure_ascii: bool,
    /// One level of indentation; None: everything is on one line.
    pub indent: Option<Name>,
    pub item_separator: Name,
    pub key_separator: Name,
    pub sort_keys: bool,
}

pub fn json_of(value: &Value, style: &Style, meter: &Meter) -> Result<Value> {
    let mut json = JsonWriter { style, meter, out: Writer::new(meter) };
    json.value(value, 0)?;
    Ok(json.out.value())
}

struct JsonWriter<'w> {
    style: &'w Style,
    meter: &'w Meter,
    out: Writer<'w>,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.meter.steps(1)?;
        match value {
            Value::None | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => self.out.push(&scalar(value)?),
            Value::Text { text, .. } => self.string(text),
            Value::List(sequence) | Value::Tuple(sequence) => {
                self.out.push("[")?;
                for (index, item) in sequence.items.iter().enumerate() {
                    self.begin_item(index, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.end_items(sequence.items.is_empty(), depth)?;
                self.out.push("]")
            }
            Value::Dict(dict) => {
                self.out.push("{")?;
                let mut entries: Vec<&(Value, Value)> = dict.entries().iter().collect();
                if self.style.sort_keys {
                    entries = sorted(entries, &|(a, _), (b, _)| order(a, b, self.meter))?;
                }
                for (index, (key, field)) in entries.into_iter().enumerate() {
                    self.begin_item(index, depth + 1)?;
                    match key.as_text() {
                        Some(text) => self.string(text)?,
                        None => self.string(&scalar(key)?)?,
                    }
                    self.out.push(&self.style.key_separator)?;
                    self.value(field, depth + 1)?;
                }
                self.end_items(dict.entries().is_empty(), depth)?;
                self.out.push("}")
            }
            other => Err(not_serializable(other)),
        }
    }

    fn begin_item(&mut self, index: usize, depth: usize) -> Result<()> {
        if index > 0 {
            self.out.push(&self.style.item_separator)?;
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
        self.out.push("\n")?;
        self.out.push_repeated(indent, depth)
    }

    fn string(&mut self, text: &str) -> Result<()> {
        let out = &mut self.out;
        out.push("\"")?;
        for character in text.chars() {
            match character {
                '"' => out.push("\\\"")?,
                '\\' => out.push("\\\\")?,
                '\n' => out.push("\\n")?,
                '\r' => out.push("\\r")?,
                '\t' => out.push("\\t")?,
                '\x08' => out.push("\\b")?,
                '\x0c' => out.push("\\f")?,
                '\0'..='\x1f' => write_unicode_escape(character, out)?,
                '\x7f'.. if self.style.ensure_ascii => write_unicode_escape(character, out)?,
                _ => out.push_char(character)?,
            }
        }
        out.push("\"")
    }
}

fn scalar(value: &Value) -> Result<String> {
    Ok(match value {
        Value::None => "null".to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Float(real) => float_text(*real, ["NaN", "Infinity", "-Infinity"]),
        other => return Err(not_serializable(other)),
    })
}

fn not_serializable(value: &Value) -> Error {
    match value {
        Value::Undefined(name) => failed(format!("tojson: {name} is not defined")),
        other => failed(format!("tojson: {} has no JSON form", other.type_name())),
    }
}

fn write_unicode_escape(character: char, out: &mut Writer) -> Result<()> {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.push(&format!("\\u{unit:04x}"))?;
    }
    Ok(())
}
