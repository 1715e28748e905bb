//! Python's str(), repr() and json.dumps() of template values, byte for byte, because the prompts that models were trained on were made
//! with them. Called by chat_template.rs.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// str(value).
pub fn str_of(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_string(),
        ValueKind::Undefined => String::new(),
        _ => repr_of(value),
    }
}

/// repr(value).
pub fn repr_of(value: &Value) -> String {
    let mut text = String::new();
    write_repr(value, &mut text);
    text
}

fn write_repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::String => write_string_repr(value.as_str().unwrap_or_default(), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number => out.push_str(&number(value, ["nan", "inf", "-inf"])),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter().map(Iterator::collect).unwrap_or_default();
            let (open, close) = match (value.is_tuple(), items.len()) {
                (true, 1) => ("(", ",)"),
                (true, _) => ("(", ")"),
                (false, _) => ("[", "]"),
            };
            out.push_str(open);
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(item, out);
            }
            out.push_str(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, out);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), out);
            }
            out.push('}');
        }
        // True, False, None, and objects that print only their name.
        _ => out.push_str(&value.to_string()),
    }
}

fn write_string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            '\0'..='\x1f' | '\x7f'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", character as u32);
            }
            // Marks that join, order or separate are not printable in Python.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}

/// An integer as it is; a float as Python's repr writes it: the shortest digits that parse to the same value, with an exponent outside
/// 1e-4 .. 1e16.
fn number(value: &Value, [nan, infinity, minus_infinity]: [&str; 3]) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(real) = f64::try_from(value.clone()) else { return value.to_string() };
    if real.is_nan() {
        return nan.to_string();
    }
    if real.is_infinite() {
        return if real > 0.0 { infinity } else { minus_infinity }.to_string();
    }
    let scientific = format!("{real:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..=15 => {
            let plain = format!("{real}");
            // Rust prints whole numbers without a decimal point.
            if exponent >= 0 && !plain.contains('.') {
                plain + ".0"
            } else {
                plain
            }
        }
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// The arguments of json.dumps that templates may set.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    /// One level of indentation; None: everything is on one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// json.dumps(value).
pub fn json_of(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut text = String::new();
    write_json(value, style, 0, &mut text)?;
    Ok(text)
}

fn write_json(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value, ["NaN", "Infinity", "-Infinity"])),
        ValueKind::String => write_json_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                begin_item(style, depth + 1, &mut empty, out);
                write_json(&item, style, depth + 1, out)?;
            }
            end_items(style, depth, empty, out);
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            let mut empty = true;
            for key in keys {
                begin_item(style, depth + 1, &mut empty, out);
                write_json_string(&json_key(&key)?, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write_json(&value.get_item(&key)?, style, depth + 1, out)?;
            }
            end_items(style, depth, empty, out);
            out.push('}');
        }
        kind => return Err(not_serializable(kind)),
    }
    Ok(())
}

fn begin_item(style: &JsonStyle, depth: usize, empty: &mut bool, out: &mut String) {
    if !*empty {
        out.push_str(&style.item_separator);
    }
    *empty = false;
    new_line(style, depth, out);
}

fn end_items(style: &JsonStyle, depth: usize, empty: bool, out: &mut String) {
    if !empty {
        new_line(style, depth, out);
    }
}

fn new_line(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        out.push_str(&indent.repeat(depth));
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(str_of(key)),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number => Ok(number(key, ["NaN", "Infinity", "-Infinity"])),
        kind => Err(not_serializable(kind)),
    }
}

fn not_serializable(kind: ValueKind) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: a value of kind {kind} has no JSON form"))
}

fn write_json_string(text: &str, ensure_ascii: bool, out: &mut String) {
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
            '\x7f'.. if ensure_ascii => write_unicode_escape(character, out),
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn write_unicode_escape(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}
