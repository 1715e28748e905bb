//! str and repr of values, the same as Python's to the byte, because the prompts that models were trained on were made with them. Used by
//! the interpreter for output, and by filters and methods.

use super::ast::Name;
use super::error::{failed, Result};
use super::generators::plain_items_of;
use super::limits::{Meter, CHARACTERS_PER_STEP};
use super::number::float_text;
use super::unicode::is_printable;
use super::value::{Value, View};
use super::writer::Writer;

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
    let mut out = Writer::new(meter);
    write_repr(value, meter, &mut out)?;
    Ok(out.string())
}

fn write_repr(value: &Value, meter: &Meter, out: &mut Writer) -> Result<()> {
    meter.steps(1)?;
    match value {
        Value::Undefined(_) => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(truth) => out.push(if *truth { "True" } else { "False" }),
        Value::Integer(integer) => out.push(&integer.to_string()),
        Value::Float(real) => out.push(&float_text(*real, ["nan", "inf", "-inf"])),
        Value::Text { text, safe } => {
            meter.steps(text.len() / CHARACTERS_PER_STEP)?;
            out.push(if *safe { "Markup(" } else { "" })?;
            write_string_repr(text, out)?;
            out.push(if *safe { ")" } else { "" })
        }
        Value::List(list) => write_items(&list.items, ("[", "]"), meter, out),
        Value::Tuple(tuple) => write_items(&tuple.items, ("(", if tuple.items.len() == 1 { ",)" } else { ")" }), meter, out),
        Value::Dict(dict) => {
            out.push("{")?;
            for (index, (key, field)) in dict.entries().iter().enumerate() {
                out.push(if index == 0 { "" } else { ", " })?;
                write_repr(key, meter, out)?;
                out.push(": ")?;
                write_repr(field, meter, out)?;
            }
            out.push("}")
        }
        Value::View(view, _) => {
            out.push(match view {
                View::Keys => "dict_keys(",
                View::Values => "dict_values(",
                View::Items => "dict_items(",
            })?;
            write_items(&plain_items_of(value, meter)?, ("[", "])"), meter, out)
        }
        Value::Range(range) if range.step == 1 => out.push(&format!("range({}, {})", range.start, range.stop)),
        Value::Range(range) => out.push(&format!("range({}, {}, {})", range.start, range.stop, range.step)),
        other => Err(failed(format!("{} has no text: call it, or make a list of it", other.type_name()))),
    }
}

fn write_items(items: &[Value], (open, close): (&str, &str), meter: &Meter, out: &mut Writer) -> Result<()> {
    out.push(open)?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        write_repr(item, meter, out)?;
    }
    out.push(close)
}

fn write_string_repr(text: &str, out: &mut Writer) -> Result<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push_char(quote)?;
    for character in text.chars() {
        match character {
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            _ if character == quote => out.push(&format!("\\{quote}"))?,
            _ if is_printable(character) => out.push_char(character)?,
            _ => match character as u32 {
                code @ 0..=0xff => out.push(&format!("\\x{code:02x}"))?,
                code @ 0x100..=0xffff => out.push(&format!("\\u{code:04x}"))?,
                code => out.push(&format!("\\U{code:08x}"))?,
            },
        }
    }
    out.push_char(quote)
}
