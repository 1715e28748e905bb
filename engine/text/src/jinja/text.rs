//! Python's str() and repr() of values, byte for byte, because the prompts that models were trained on were made with them. Used by the
//! interpreter for output, and by filters and methods.

use std::fmt::Write;

use super::ast::Name;
use super::error::{failed, Result};
use super::limits::Meter;
use super::number::float_text;
use super::unicode::is_printable;
use super::value::{Value, View};

/// str(value).
pub fn str_of(value: &Value, meter: &Meter) -> Result<Name> {
    match value {
        Value::Text { text, .. } => Ok(text.clone()),
        Value::Undefined(_) => Ok("".into()),
        _ => repr_of(value, meter).map(Name::from),
    }
}

/// repr(value). An error for objects that Python shows by their address.
pub fn repr_of(value: &Value, meter: &Meter) -> Result<String> {
    let mut out = String::new();
    write_repr(value, meter, &mut out)?;
    Ok(out)
}

fn write_repr(value: &Value, meter: &Meter, out: &mut String) -> Result<()> {
    meter.steps(1)?;
    let before = out.len();
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(truth) => out.push_str(if *truth { "True" } else { "False" }),
        Value::Integer(integer) => {
            let _ = write!(out, "{integer}");
        }
        Value::Float(real) => out.push_str(&float_text(*real, ["nan", "inf", "-inf"])),
        Value::Text { text, safe: false } => write_string_repr(text, out),
        Value::Text { text, safe: true } => {
            out.push_str("Markup(");
            write_string_repr(text, out);
            out.push(')');
        }
        Value::List(list) => return write_items(&list.items, ("[", "]"), meter, out),
        Value::Tuple(tuple) => return write_items(&tuple.items, ("(", if tuple.items.len() == 1 { ",)" } else { ")" }), meter, out),
        Value::Dict(dict) => {
            for (index, (key, field)) in dict.entries.iter().enumerate() {
                out.push_str(if index == 0 { "{" } else { ", " });
                write_repr(key, meter, out)?;
                out.push_str(": ");
                write_repr(field, meter, out)?;
            }
            out.push_str(if dict.entries.is_empty() { "{}" } else { "}" });
            return Ok(());
        }
        Value::View(view, _) => {
            out.push_str(match view {
                View::Keys => "dict_keys(",
                View::Values => "dict_values(",
                View::Items => "dict_items(",
            });
            write_items(&super::sequences::items_of(value, meter)?, ("[", "])"), meter, out)?;
        }
        Value::Range(range) if range.step == 1 => {
            let _ = write!(out, "range({}, {})", range.start, range.stop);
        }
        Value::Range(range) => {
            let _ = write!(out, "range({}, {}, {})", range.start, range.stop, range.step);
        }
        other => return Err(failed(format!("{} has no text: call it, or make a list of it", other.type_name()))),
    }
    meter.text(out.len() - before)
}

fn write_items(items: &[Value], (open, close): (&str, &str), meter: &Meter, out: &mut String) -> Result<()> {
    out.push_str(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_repr(item, meter, out)?;
    }
    out.push_str(close);
    Ok(())
}

fn write_string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        let _ = match character {
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            _ if character == quote => write!(out, "\\{quote}"),
            _ if is_printable(character) => write!(out, "{character}"),
            _ => match character as u32 {
                code @ 0..=0xff => write!(out, "\\x{code:02x}"),
                code @ 0x100..=0xffff => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            },
        };
    }
    out.push(quote);
}
