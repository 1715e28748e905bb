//! Jinja's filters for single values; filters for lists are in list_filters.rs. Called by the parser, which looks them up, and by the
//! interpreter. Those that no chat template has (urlize, xmlattr, wordwrap and more) are not there: a template with one does not load.

use super::arguments::{integer, integer_or, size, text, Arguments};
use super::ast::Operator;
use super::error::{failed, Result};
use super::format::percent;
use super::interpreter::Interpreter;
use super::json::{json_of, Style};
use super::list_filters::LIST_FILTERS;
use super::lookup;
use super::number::{float_from, integer_from};
use super::operators::{binary, escaped, float_of, negative};
use super::sequences::length_of;
use super::string_methods::{call_string_method, cased, center, replace};
use super::text::str_of;
use super::unicode::{is_word, split_lines};
use super::value::{Dict, Value};

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

pub fn filter_named(name: &str) -> Option<Filter> {
    FILTERS.iter().chain(&LIST_FILTERS).find(|(other, _)| *other == name).map(|&(_, filter)| filter)
}

/// A string as it is, with its mark; of other values, str(value).
fn soft_text(interpreter: &Interpreter, value: Value) -> Result<Value> {
    Ok(match value {
        Value::Text { .. } => value,
        other => Value::text(str_of(&other, &interpreter.meter)?),
    })
}

fn as_method(interpreter: &mut Interpreter, value: Value, method: &str, arguments: Arguments) -> Result<Value> {
    let Value::Text { text, safe } = soft_text(interpreter, value)? else { unreachable!("a text was made") };
    call_string_method(interpreter, &text, safe, method, arguments)
}

fn trim(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [characters] = arguments.bind("trim", 0, ["chars"])?;
    as_method(interpreter, value, "strip", Arguments::of(characters.into_iter().collect()))
}

fn length(_: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("length")?;
    Ok(Value::Integer(length_of(&value)? as i128))
}

fn default(_: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [default, boolean] = arguments.bind("default", 0, ["default_value", "boolean"])?;
    let use_default = matches!(value, Value::Undefined(_)) || (boolean.is_some_and(|boolean| boolean.is_true()) && !value.is_true());
    Ok(if use_default { default.unwrap_or(Value::text("")) } else { value })
}

fn attr(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [name] = arguments.bind("attr", 1, ["name"])?;
    let name = str_of(&name.unwrap_or(Value::None), &interpreter.meter)?;
    Ok(lookup::own_attribute(interpreter, value.defined()?, &name)?.unwrap_or_else(|| Value::undefined(name)))
}

fn safe(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("safe")?;
    Ok(Value::safe_text(str_of(&value, &interpreter.meter)?))
}

fn string(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("string")?;
    soft_text(interpreter, value)
}

fn escape(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    match value {
        Value::Text { safe: true, .. } => arguments.none("escape").map(|()| value),
        _ => force_escape(interpreter, value, arguments),
    }
}

fn force_escape(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("escape")?;
    let text = str_of(&value, &interpreter.meter)?;
    interpreter.meter.text(text.len().saturating_mul(5))?;
    Ok(Value::safe_text(escaped(&text)))
}

fn replace_filter(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [old, new, count] = arguments.bind("replace", 2, ["old", "new", "count"])?;
    let meter = &interpreter.meter;
    let of = |value: Option<Value>| str_of(&value.unwrap_or(Value::None), meter);
    let (old, new) = (of(old)?, of(new)?);
    let count = match count {
        None | Some(Value::None) => -1,
        Some(count) => integer("the count of replace", &count)?,
    };
    replace(&str_of(&value, meter)?, &old, &new, count, meter).map(Value::text)
}

/// Words begin after space, hyphens and opening brackets.
fn title(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("title")?;
    let text = str_of(&value, &interpreter.meter)?;
    interpreter.meter.text(text.len())?;
    let is_gap = |character: char| super::unicode::is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<');
    let mut out = String::new();
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|character| is_gap(character) != is_gap(first)).unwrap_or(rest.len());
        let (start, word) = rest[..end].split_at(first.len_utf8());
        out.push_str(&start.to_uppercase());
        out.push_str(&word.to_lowercase());
        rest = &rest[end..];
    }
    Ok(Value::text(out))
}

fn word_count(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("wordcount")?;
    let text = str_of(&value, &interpreter.meter)?;
    let words = text.split(|character| !is_word(character)).filter(|word| !word.is_empty()).count();
    Ok(Value::Integer(words as i128))
}

fn center_filter(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [width] = arguments.bind("center", 0, ["width"])?;
    let width = size("the width of center", &width.unwrap_or(Value::Integer(80)))?;
    let Value::Text { text, safe } = soft_text(interpreter, value)? else { unreachable!("a text was made") };
    Ok(Value::Text { text: center(&text, width, ' ', &interpreter.meter)?.into(), safe })
}

fn truncate(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [length, kill_words, end, leeway] = arguments.bind("truncate", 0, ["length", "killwords", "end", "leeway"])?;
    let own = text("what truncate cuts", &value)?;
    let length = integer_or("the length of truncate", &length, 255)?;
    let leeway = match leeway {
        None | Some(Value::None) => 5,
        Some(leeway) => integer("the leeway of truncate", &leeway)?,
    };
    let end = end.unwrap_or(Value::text("..."));
    let end = text("the end of truncate", &end)?;
    let kept = length - end.chars().count() as i128;
    if kept < 0 || leeway < 0 {
        return Err(failed("truncate: the length must not be smaller than the end's, nor the leeway than 0"));
    }
    if own.chars().count() as i128 <= length + leeway {
        return Ok(value);
    }
    interpreter.meter.text(own.len())?;
    let kept: String = own.chars().take(kept as usize).collect();
    let kept =
        if kill_words.is_some_and(|kill| kill.is_true()) { &kept } else { kept.rsplit_once(' ').map_or(&*kept, |(before, _)| before) };
    Ok(Value::text(format!("{kept}{end}")))
}

fn indent(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [width, first, blank] = arguments.bind("indent", 0, ["width", "first", "blank"])?;
    let meter = &interpreter.meter;
    let indentation = match width {
        None => "    ".to_string(),
        Some(Value::Text { text, .. }) => text.to_string(),
        Some(width) => {
            let width = size("the width of indent", &width)?;
            meter.text(width)?;
            " ".repeat(width)
        }
    };
    let own = text("what indent indents", &value)?;
    let is_true = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (first, blank) = (is_true(first), is_true(blank));
    let with_end = format!("{own}\n");
    let lines = split_lines(&with_end, false);
    meter.text(own.len().saturating_add(indentation.len().saturating_mul(lines.len())))?;
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let indented = if index == 0 { first } else { blank || !line.is_empty() };
        if indented {
            out.push_str(&indentation);
        }
        out.push_str(line);
    }
    Ok(Value::Text { text: out.into(), safe: matches!(value, Value::Text { safe: true, .. }) })
}

fn strip_tags(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("striptags")?;
    let text = str_of(&value, &interpreter.meter)?;
    if text.contains(['<', '&']) {
        return Err(failed("striptags of a text with tags or entities is not supported"));
    }
    Ok(Value::text(text.split(super::unicode::is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")))
}

fn url_encode(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("urlencode")?;
    if !matches!(value, Value::Text { .. } | Value::Integer(_) | Value::Bool(_) | Value::None) {
        return Err(failed(format!("urlencode of {} is not supported", value.type_name())));
    }
    let text = str_of(&value, &interpreter.meter)?;
    interpreter.meter.text(text.len().saturating_mul(3))?;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(Value::text(out))
}

fn format(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let arguments = match (arguments.positional.is_empty(), arguments.named.is_empty()) {
        (false, false) => return Err(failed("format takes values by position or by name, not both")),
        (true, false) => {
            let mut dict = Dict::default();
            for (name, value) in arguments.named {
                dict.insert(Value::text(name), value)?;
            }
            Value::dict(dict)?
        }
        _ => Value::tuple(arguments.positional)?,
    };
    let pattern = soft_text(interpreter, value)?;
    percent(&pattern, &arguments, &interpreter.meter)
}

fn int(_: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [default, base] = arguments.bind("int", 0, ["default", "base"])?;
    let base = integer_or("the base of int", &base, 10)?;
    let base = u32::try_from(base)
        .ok()
        .filter(|&base| base == 0 || (2..=36).contains(&base))
        .ok_or_else(|| failed("a base that int does not have"))?;
    let of_float = |real: f64| -> Result<Option<Value>> {
        match real {
            real if !real.is_finite() => Ok(None),
            real if real.abs() >= 1e38 => Err(failed("an integer of more than 128 bits")),
            real => Ok(Some(Value::Integer(real.trunc() as i128))),
        }
    };
    let found = match value.defined()? {
        Value::Bool(truth) => Some(Value::Integer(i128::from(*truth))),
        Value::Integer(_) => Some(value),
        Value::Float(real) => of_float(*real)?,
        Value::Text { text, .. } => {
            if !text.is_ascii() && text.chars().any(|character| !character.is_ascii() && super::unicode::is_decimal(character)) {
                return Err(failed("int of digits other than 0 to 9 is not supported"));
            }
            match (integer_from(text, base), float_from(text)) {
                (Some(integer), _) => Some(Value::Integer(integer)),
                (None, Some(real)) if text.trim().len() < 38 || real.abs() < 1e30 => of_float(real)?,
                (None, Some(_)) => return Err(failed("an integer of more than 128 bits")),
                (None, None) => None,
            }
        }
        _ => None,
    };
    Ok(found.or(default).unwrap_or(Value::Integer(0)))
}

fn float(_: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [default] = arguments.bind("float", 0, ["default"])?;
    let found = match value.defined()? {
        Value::Text { text, .. } => float_from(text),
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
    let method = method.unwrap_or(Value::text("common"));
    let toward: fn(f64) -> f64 = match text("the method of round", &method)? {
        "common" => return rounded(&value, precision),
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        other => return Err(failed(format!("round has no method {other}; it has common, ceil and floor"))),
    };
    let meter = &interpreter.meter;
    let scale = binary(Operator::Power, &Value::Integer(10), &Value::Integer(precision), meter)?;
    let scaled = match binary(Operator::Multiply, &value, &scale, meter)? {
        Value::Float(real) if real.abs() < 1e30 => Value::Integer(toward(real) as i128),
        Value::Float(_) => return Err(failed("round of a number that is too large")),
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
    let meter = &interpreter.meter;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Text { text, .. }) => Some(text.to_string()),
        Some(indent) => {
            let width = size("the indent of tojson", &indent)?;
            meter.text(width)?;
            Some(" ".repeat(width))
        }
    };
    let (item_separator, key_separator) = match separators {
        None | Some(Value::None) => ((if indent.is_some() { "," } else { ", " }).to_string(), ": ".to_string()),
        Some(separators) => {
            let separators = super::sequences::items_of(separators.defined()?, meter)?;
            let [item, key] = &separators[..] else { return Err(failed("tojson: separators must be two strings")) };
            (text("a separator of tojson", item)?.to_string(), text("a separator of tojson", key)?.to_string())
        }
    };
    let is_true = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let style = Style { ensure_ascii: is_true(ensure_ascii), indent, item_separator, key_separator, sort_keys: is_true(sort_keys) };
    json_of(&value, &style, meter).map(Value::text)
}

/// The lower case of a string, by which filters compare unless they are case sensitive.
pub fn without_case(value: Value) -> Result<Value> {
    match value.as_text() {
        Some(text) => Ok(Value::text(cased(text, "lower")?)),
        None => Ok(value),
    }
}
