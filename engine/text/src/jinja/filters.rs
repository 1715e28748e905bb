//! Jinja's filters for single values; filters for lists are in list_filters.rs. Called by the parser, which looks them up, and by the
//! interpreter. Those that no chat template has (urlize, xmlattr, wordwrap and more) are not there: a template with one does not load.

use super::arguments::{integer, integer_or, is_true, size, text, Arguments};
use super::ast::{Name, Operator};
use super::dict::Dict;
use super::error::{failed, Result};
use super::format::percent;
use super::generators::items_of;
use super::interpreter::Interpreter;
use super::json::{json_of, Style};
use super::limits::{Meter, CHARACTERS_PER_STEP, DIGITS_PER_STEP};
use super::list_filters::LIST_FILTERS;
use super::lookup;
use super::number::{float_from, integer_from, truncated};
use super::operators::{binary, float_of, negative};
use super::sequences::length_of;
use super::string_methods::{call_string_method, cased, center, replace};
use super::text::str_of;
use super::unicode::{is_space, is_word, split_lines};
use super::value::{Items, Value};
use super::writer::Writer;

pub type Filter = fn(&mut Interpreter, Value, Arguments) -> Result<Value>;

const FILTERS: [(&str, Filter); 28] = [
    ("abs", abs),
    ("attr", attr),
    ("capitalize", |interpreter, value, arguments| as_method(interpreter, value, "capitalize", arguments)),
    ("center", center_filter),
    ("count", length),
    ("d", default),
    ("default", default),
    ("e", escape),
    ("escape", escape),
    ("float", float),
    ("forceescape", force_escape),
    ("format", format),
    ("indent", indent),
    ("int", int),
    ("length", length),
    ("lower", |interpreter, value, arguments| as_method(interpreter, value, "lower", arguments)),
    ("replace", replace_filter),
    ("round", round),
    ("safe", safe),
    ("string", string),
    ("striptags", strip_tags),
    ("title", title),
    ("tojson", tojson),
    ("trim", trim),
    ("truncate", truncate),
    ("upper", |interpreter, value, arguments| as_method(interpreter, value, "upper", arguments)),
    ("urlencode", url_encode),
    ("wordcount", word_count),
];

/// Filters of Jinja that are not there.
const UNSUPPORTED: [&str; 6] = ["filesizeformat", "pprint", "random", "urlize", "wordwrap", "xmlattr"];

/// The test `filter`: whether Jinja has a filter of that name.
pub fn is_filter(name: &str) -> Result<bool> {
    match UNSUPPORTED.contains(&name) {
        true => Err(failed(format!("filter {name} is not supported"))),
        false => Ok(filter_named(name).is_some()),
    }
}

pub fn filter_named(name: &str) -> Option<Filter> {
    FILTERS.iter().chain(&LIST_FILTERS).find(|(other, _)| *other == name).map(|&(_, filter)| filter)
}

/// A string as it is, with its mark; of other values, str(value).
fn soft_text(interpreter: &Interpreter, value: Value) -> Result<Value> {
    Ok(match value {
        Value::Text { .. } => value,
        other => Value::shared(str_of(&other, interpreter.meter)?),
    })
}

fn as_method(interpreter: &mut Interpreter, value: Value, method: &str, arguments: Arguments) -> Result<Value> {
    let Value::Text { text, safe } = soft_text(interpreter, value)? else { unreachable!("a text was made") };
    call_string_method(interpreter, &text, safe, method, arguments)
}

fn trim(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [characters] = arguments.bind("trim", 0, ["chars"])?;
    let characters = Arguments::one(characters.unwrap_or(Value::None), interpreter.meter)?;
    as_method(interpreter, value, "strip", characters)
}

fn length(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("length")?;
    Ok(Value::Integer(length_of(&value, interpreter)? as i128))
}

fn default(_: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [default, boolean] = arguments.bind("default", 0, ["default_value", "boolean"])?;
    let use_default = matches!(value, Value::Undefined(_)) || (is_true(boolean) && !value.is_true());
    Ok(if use_default { default.unwrap_or_else(|| Value::shared("".into())) } else { value })
}

fn attr(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [name] = arguments.bind("attr", 1, ["name"])?;
    let name = str_of(&name.unwrap_or(Value::None), interpreter.meter)?;
    Ok(lookup::own_attribute(interpreter, value.defined()?, &name)?.unwrap_or_else(|| Value::undefined(name)))
}

fn safe(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("safe")?;
    Ok(Value::shared(str_of(&value, interpreter.meter)?).marked(true))
}

fn string(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("string")?;
    soft_text(interpreter, value)
}

fn escape(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    if value.is_safe() {
        return arguments.none("escape").map(|()| value);
    }
    force_escape(interpreter, value, arguments)
}

fn force_escape(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("escape")?;
    let mut out = Writer::new(interpreter.meter);
    out.push_escaped(&str_of(&value, interpreter.meter)?)?;
    Ok(out.value().marked(true))
}

fn replace_filter(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [old, new, count] = arguments.bind("replace", 2, ["old", "new", "count"])?;
    let meter = interpreter.meter;
    let of = |value: Option<Value>| str_of(&value.unwrap_or(Value::None), meter);
    let (old, new) = (of(old)?, of(new)?);
    let count = match count {
        None | Some(Value::None) => -1,
        Some(count) => integer("the count of replace", &count)?,
    };
    replace(&str_of(&value, meter)?, &old, &new, count, meter)
}

/// Words begin after space, hyphens and opening brackets.
fn title(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("title")?;
    let text = str_of(&value, interpreter.meter)?;
    let is_gap = |character: char| is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<');
    let mut out = String::new();
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|character| is_gap(character) != is_gap(first)).unwrap_or(rest.len());
        let (start, word) = rest[..end].split_at(first.len_utf8());
        out.push_str(&start.to_uppercase());
        out.push_str(&word.to_lowercase());
        rest = &rest[end..];
    }
    Value::text(out, interpreter.meter)
}

fn word_count(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("wordcount")?;
    let text = str_of(&value, interpreter.meter)?;
    interpreter.meter.steps(text.len() / CHARACTERS_PER_STEP)?;
    let words = text.split(|character| !is_word(character)).filter(|word| !word.is_empty()).count();
    Ok(Value::Integer(words as i128))
}

fn center_filter(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [width] = arguments.bind("center", 0, ["width"])?;
    let width = size("the width of center", &width.unwrap_or(Value::Integer(80)))?;
    let Value::Text { text, safe } = soft_text(interpreter, value)? else { unreachable!("a text was made") };
    center(&text, width, " ", interpreter.meter).map(|text| text.marked(safe))
}

fn truncate(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [length, kill_words, end, leeway] = arguments.bind("truncate", 0, ["length", "killwords", "end", "leeway"])?;
    let own = text("what truncate cuts", &value)?;
    let length = integer_or("the length of truncate", &length, 255)?;
    let leeway = match leeway {
        None | Some(Value::None) => 5,
        Some(leeway) => integer("the leeway of truncate", &leeway)?,
    };
    let end = end.unwrap_or_else(|| Value::shared("...".into()));
    let kept = length - text("the end of truncate", &end)?.chars().count() as i128;
    if kept < 0 || leeway < 0 {
        return Err(failed("truncate: the length must not be smaller than the end's, nor the leeway than 0"));
    }
    if own.chars().count() as i128 <= length + leeway {
        return Ok(value);
    }
    let kept = own.char_indices().nth(kept as usize).map_or(own, |(at, _)| &own[..at]);
    let kept = if is_true(kill_words) { kept } else { kept.rsplit_once(' ').map_or(kept, |(before, _)| before) };
    // The sum of two strings escapes what is not marked as safe if the other is.
    let kept = Value::text(kept, interpreter.meter)?.marked(value.is_safe());
    binary(Operator::Add, &kept, &end, interpreter.meter)
}

fn indent(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [width, first, blank] = arguments.bind("indent", 0, ["width", "first", "blank"])?;
    let (first, blank) = (is_true(first), is_true(blank));
    let indentation = match width {
        None => "    ".into(),
        Some(width) => indentation("the width of indent", width, interpreter.meter)?,
    };
    let with_end = text("what indent indents", &value)?.to_string() + "\n";
    let mut out = Writer::new(interpreter.meter);
    for (index, line) in split_lines(&with_end, false).enumerate() {
        interpreter.meter.steps(1)?;
        if index > 0 {
            out.push("\n")?;
        }
        let indented = if index == 0 { first } else { blank || !line.is_empty() };
        if indented {
            out.push(&indentation)?;
        }
        out.push(line)?;
    }
    Ok(out.value().marked(value.is_safe()))
}

/// A text, or a number of spaces.
fn indentation(what: &str, width: Value, meter: &Meter) -> Result<Name> {
    if let Value::Text { text, .. } = width {
        return Ok(text);
    }
    let mut spaces = Writer::new(meter);
    spaces.push_repeated(" ", size(what, &width)?)?;
    Ok(spaces.text())
}

fn strip_tags(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("striptags")?;
    let text = str_of(&value, interpreter.meter)?;
    if text.contains(['<', '&']) {
        return Err(failed("striptags of a text with tags or entities is not supported"));
    }
    let mut out = Writer::new(interpreter.meter);
    for (index, word) in text.split(is_space).filter(|word| !word.is_empty()).enumerate() {
        out.push(if index > 0 { " " } else { "" })?;
        out.push(word)?;
    }
    Ok(out.value())
}

fn url_encode(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("urlencode")?;
    if !matches!(value, Value::Text { .. } | Value::Integer(_) | Value::Bool(_) | Value::None) {
        return Err(failed(format!("urlencode of {} is not supported", value.type_name())));
    }
    let mut out = Writer::new(interpreter.meter);
    for byte in str_of(&value, interpreter.meter)?.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => out.push_char(byte as char)?,
            _ => out.push(&format!("%{byte:02X}"))?,
        }
    }
    Ok(out.value())
}

fn format(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let meter = interpreter.meter;
    let arguments = match (arguments.positional.is_empty(), arguments.named.is_empty()) {
        (false, false) => return Err(failed("format takes values by position or by name, not both")),
        (true, false) => {
            let mut dict = Dict::default();
            for (name, value) in arguments.named {
                dict.insert(Value::shared(name), value, meter)?;
            }
            Value::dict(dict, meter)?
        }
        _ => Value::tuple(arguments.positional)?,
    };
    let pattern = soft_text(interpreter, value)?;
    percent(&pattern, &arguments, meter)
}

fn int(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [default, base] = arguments.bind("int", 0, ["default", "base"])?;
    let base = integer_or("the base of int", &base, 10)?;
    let base = u32::try_from(base)
        .ok()
        .filter(|&base| base == 0 || (2..=36).contains(&base))
        .ok_or_else(|| failed("int: the base must be 0 or from 2 to 36"))?;
    let found = match value.defined()? {
        Value::Bool(truth) => Some(Value::Integer(i128::from(*truth))),
        Value::Integer(_) => Some(value),
        Value::Float(real) => truncated(*real)?.map(Value::Integer),
        Value::Text { text, .. } => {
            interpreter.meter.steps(text.len() / CHARACTERS_PER_STEP)?;
            match (integer_from(text, base)?, float_from(text)?) {
                (Some(integer), _) => Some(Value::Integer(integer)),
                (None, Some(real)) => truncated(real)?.map(Value::Integer),
                (None, None) => None,
            }
        }
        _ => None,
    };
    Ok(found.or(default).unwrap_or(Value::Integer(0)))
}

fn float(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [default] = arguments.bind("float", 0, ["default"])?;
    let found = match value.defined()? {
        Value::Text { text, .. } => {
            interpreter.meter.steps(text.len() / CHARACTERS_PER_STEP)?;
            float_from(text)?
        }
        other => float_of(other),
    };
    Ok(found.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
}

fn abs(_: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("abs")?;
    match value.defined()? {
        Value::Float(real) => Ok(Value::Float(real.abs())),
        Value::Integer(integer) if *integer < 0 => negative(&value),
        Value::Integer(_) => Ok(value),
        Value::Bool(truth) => Ok(Value::Integer(i128::from(*truth))),
        other => Err(failed(format!("abs of {} is not defined", other.type_name()))),
    }
}

fn round(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [precision, method] = arguments.bind("round", 0, ["precision", "method"])?;
    let precision = integer_or("the precision of round", &precision, 0)?;
    if precision.abs() > 300 {
        return Err(failed("round to this precision is not supported"));
    }
    interpreter.meter.steps(precision.unsigned_abs() as usize / DIGITS_PER_STEP)?;
    let toward: fn(f64) -> f64 = match method.as_ref().map_or(Ok("common"), |method| text("the method of round", method))? {
        "common" => return rounded(&value, precision),
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        other => return Err(failed(format!("round has no method {other}; it has common, ceil and floor"))),
    };
    let meter = interpreter.meter;
    let scale = binary(Operator::Power, &Value::Integer(10), &Value::Integer(precision), meter)?;
    let scaled = match binary(Operator::Multiply, &value, &scale, meter)? {
        Value::Float(real) if real.abs() < 1e30 => Value::Integer(toward(real) as i128),
        Value::Float(_) => return Err(failed("round: the number is too large")),
        integer => integer,
    };
    binary(Operator::Divide, &scaled, &scale, meter)
}

/// Python's round: to the nearest, half to even.
fn rounded(value: &Value, precision: i128) -> Result<Value> {
    match value.defined()? {
        Value::Float(real) if !real.is_finite() => Ok(Value::Float(*real)),
        // Rust rounds the exact value of the float, half to even, as Python does.
        Value::Float(real) if precision >= 0 => {
            Ok(Value::Float(format!("{real:.*}", precision as usize).parse().map_err(|_| failed("round of this number failed"))?))
        }
        Value::Float(real) => match real.abs() < 1e30 && real.fract() == 0.0 {
            true => match rounded(&Value::Integer(*real as i128), precision)? {
                Value::Integer(integer) => Ok(Value::Float(integer as f64)),
                other => Ok(other),
            },
            false => Err(failed("round of a fraction to a negative precision is not supported")),
        },
        Value::Bool(_) | Value::Integer(_) => {
            let integer = integer("round", value)?;
            let Some(unit) = u32::try_from(-precision).ok().map(|digits| 10i128.checked_pow(digits)) else {
                return Ok(Value::Integer(integer));
            };
            let unit = unit.ok_or_else(|| failed("round to this precision is not supported"))?;
            let (quotient, rest) = (integer.div_euclid(unit), integer.rem_euclid(unit));
            let up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0);
            Ok(Value::Integer((quotient + i128::from(up)) * unit))
        }
        other => Err(failed(format!("round of {} is not defined", other.type_name()))),
    }
}

/// json.dumps with ensure_ascii off and no HTML escapes, with these arguments in this order.
fn tojson(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [ensure_ascii, indent, separators, sort_keys] =
        arguments.bind("tojson", 0, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(indent) => Some(indentation("the indent of tojson", indent, interpreter.meter)?),
    };
    let separators = match separators {
        None | Some(Value::None) => {
            let item = if indent.is_some() { "," } else { ", " };
            Items::copy([item, ": "].map(|text| Value::shared(text.into())), 2, interpreter.meter)?
        }
        Some(separators) => items_of(separators.defined()?, interpreter)?,
    };
    let [Value::Text { text: item, .. }, Value::Text { text: key, .. }] = &separators[..] else {
        return Err(failed("tojson: separators must be two strings"));
    };
    let style = Style {
        ensure_ascii: is_true(ensure_ascii),
        indent,
        item_separator: item.clone(),
        key_separator: key.clone(),
        sort_keys: is_true(sort_keys),
    };
    json_of(&value, &style, interpreter.meter)
}

/// The lower case of a string, by which filters compare unless they are case sensitive.
pub fn without_case(value: Value, meter: &Meter) -> Result<Value> {
    match value.as_text() {
        Some(text) => {
            meter.read(text.len().saturating_mul(4))?;
            Value::text(cased(text, "lower")?, meter)
        }
        None => Ok(value),
    }
}
