//! str.format and Python's format specifications. Called by string_methods.rs; format.rs shares how numbers are written.

use super::arguments::Arguments;
use super::error::{failed, Result};
use super::interpreter::Interpreter;
use super::lookup;
use super::operators::float_of;
use super::text::{repr_of, str_of};
use super::value::Value;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    Left,
    Right,
    Center,
}

pub struct Layout {
    pub fill: char,
    pub alignment: Alignment,
    /// What positive numbers begin with.
    pub sign: Option<char>,
    pub alternate: bool,
    pub width: usize,
}

impl Layout {
    pub fn padded(&self, text: &str) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        let fill = |count: usize| self.fill.to_string().repeat(count);
        match self.alignment {
            Alignment::Left => text.to_string() + &fill(missing),
            Alignment::Right => fill(missing) + text,
            Alignment::Center => fill(missing / 2) + text + &fill(missing - missing / 2),
        }
    }
}

/// A number with its sign, filled up between the sign and the digits if the fill is '0'.
pub fn padded_number(negative: bool, prefix: &str, digits: &str, layout: &Layout) -> String {
    let sign = match (negative, layout.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    if layout.fill == '0' && layout.alignment == Alignment::Right {
        let zeros = layout.width.saturating_sub(sign.len() + prefix.len() + digits.len());
        return format!("{sign}{prefix}{}{digits}", "0".repeat(zeros));
    }
    layout.padded(&format!("{sign}{prefix}{digits}"))
}

/// A float in one of the formats e, f, g and their capitals.
pub fn real(value: f64, kind: char, precision: usize, layout: &Layout) -> Result<String> {
    let digits = real_digits(value.abs(), kind, precision, layout.alternate)?;
    Ok(padded_number(value.is_sign_negative() && !value.is_nan(), "", &digits, layout))
}

fn real_digits(value: f64, kind: char, precision: usize, alternate: bool) -> Result<String> {
    if precision > 500 {
        return Err(failed("a precision of more than 500 digits"));
    }
    if alternate {
        return Err(failed("`#` with a float is not supported"));
    }
    let text = match kind {
        _ if value.is_nan() => "nan".to_string(),
        _ if value.is_infinite() => "inf".to_string(),
        'f' | 'F' => format!("{value:.precision$}"),
        'e' | 'E' => exponent_form(value, precision),
        _ => {
            let precision = precision.max(1);
            let scientific = exponent_form(value, precision - 1);
            let exponent: i32 = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
            let without_zeros = |text: &str| match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text.to_string(),
            };
            if exponent < -4 || exponent >= precision as i32 {
                let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
                format!("{}e{exponent}", without_zeros(digits))
            } else {
                without_zeros(&format!("{value:.*}", (precision as i32 - 1 - exponent) as usize))
            }
        }
    };
    Ok(if kind.is_ascii_uppercase() { text.to_uppercase() } else { text })
}

/// 1.5e+03, where Rust writes 1.5e3.
fn exponent_form(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// pattern.format(...).
pub fn format_method(interpreter: &mut Interpreter, pattern: &str, arguments: Arguments) -> Result<String> {
    let mut out = String::new();
    let mut next = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..at + 1];
        let after = &rest[at + 1..];
        if after.starts_with(brace) {
            out.push_str(brace);
            rest = &after[1..];
            continue;
        }
        let end = after.find('}').filter(|_| brace == "{").ok_or_else(|| failed("format: a single brace; write it twice to print it"))?;
        let text = field(interpreter, &after[..end], &arguments, &mut next)?;
        interpreter.meter.text(text.len())?;
        out.push_str(&text);
        rest = &after[end + 1..];
    }
    interpreter.meter.text(rest.len())?;
    Ok(out + rest)
}

/// What stands for `name!r:spec`.
fn field(interpreter: &Interpreter, field: &str, arguments: &Arguments, next: &mut usize) -> Result<String> {
    if field.contains('{') {
        return Err(failed("format: fields within fields are not supported"));
    }
    let (field, spec) = field.split_once(':').unwrap_or((field, ""));
    let (path, conversion) = match field.split_once('!') {
        Some((path, conversion)) => (path, Some(conversion)),
        None => (field, None),
    };
    let value = argument(interpreter, path, arguments, next)?;
    let meter = &interpreter.meter;
    let value = match conversion {
        None => value,
        Some("s") => Value::text(str_of(&value, meter)?),
        Some("r") => Value::text(repr_of(&value, meter)?),
        Some(other) => return Err(failed(format!("format: the conversion !{other} is not supported"))),
    };
    formatted(interpreter, &value, spec)
}

/// The argument that `0.name[key]` names.
fn argument(interpreter: &Interpreter, path: &str, arguments: &Arguments, next: &mut usize) -> Result<Value> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (name, mut rest) = path.split_at(end);
    let positional = match name {
        "" => {
            *next += 1;
            Some(*next - 1)
        }
        _ if name.bytes().all(|byte| byte.is_ascii_digit()) => {
            if *next > 0 {
                return Err(failed("format: numbered and unnumbered fields cannot be mixed"));
            }
            name.parse().ok()
        }
        _ => None,
    };
    let found = match positional {
        Some(at) => arguments.positional.get(at),
        None => arguments.named.iter().find(|(other, _)| &**other == name).map(|(_, value)| value),
    };
    let mut value = found.cloned().ok_or_else(|| failed(format!("format: there is no argument {name}")))?;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('.') {
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            value = lookup::attribute(interpreter, &value, &inner[..end].into())?;
            rest = &inner[end..];
        } else {
            let inner = rest.strip_prefix('[').ok_or_else(|| failed("format: a field that is not well formed"))?;
            let end = inner.find(']').ok_or_else(|| failed("format: `[` has no end"))?;
            let key = inner[..end].parse().map_or_else(|_| Value::text(&inner[..end]), Value::Integer);
            value = lookup::item(interpreter, &value, &key)?;
            rest = &inner[end + 1..];
        }
        value.defined()?;
    }
    Ok(value)
}

/// format(value, spec).
fn formatted(interpreter: &Interpreter, value: &Value, spec: &str) -> Result<String> {
    let meter = &interpreter.meter;
    if spec.is_empty() {
        return Ok(str_of(value, meter)?.to_string());
    }
    let mut rest = spec;
    let alignment_of = |character: char| match character {
        '<' => Some(Alignment::Left),
        '>' => Some(Alignment::Right),
        '^' => Some(Alignment::Center),
        _ => None,
    };
    let mut characters = spec.chars();
    let (first, second) = (characters.next().unwrap_or_default(), characters.next().unwrap_or_default());
    let mut fill = None;
    let mut alignment = alignment_of(second);
    if alignment.is_some() {
        fill = Some(first);
        rest = &rest[first.len_utf8() + 1..];
    } else if let Some(found) = alignment_of(first) {
        alignment = Some(found);
        rest = &rest[1..];
    }
    let mut flag = |flags: &[char]| -> Option<char> {
        let found = rest.chars().next().filter(|character| flags.contains(character))?;
        rest = &rest[1..];
        Some(found)
    };
    let sign = flag(&['+', '-', ' ']);
    let alternate = flag(&['#']).is_some();
    if flag(&['0']).is_some() && fill.is_none() {
        fill = Some('0');
        alignment = alignment.or(match value {
            Value::Text { .. } => Some(Alignment::Left),
            _ => Some(Alignment::Right),
        });
    }
    let width = number(&mut rest)?;
    let comma = rest.strip_prefix(',').map(|after| rest = after).is_some();
    let precision = match rest.strip_prefix('.') {
        Some(after) => {
            rest = after;
            Some(number(&mut rest)?.ok_or_else(|| failed("format: `.` without a precision"))?)
        }
        None => None,
    };
    let width = width.unwrap_or(0);
    meter.text(width)?;
    let layout = |default: Alignment| Layout { fill: fill.unwrap_or(' '), alignment: alignment.unwrap_or(default), sign, alternate, width };
    match (value.defined()?, rest) {
        (Value::Text { text, .. }, "" | "s") if sign.is_none() && !alternate && !comma => {
            let text: String = text.chars().take(precision.unwrap_or(usize::MAX)).collect();
            Ok(layout(Alignment::Left).padded(&text))
        }
        (Value::Integer(_) | Value::Bool(_), "d" | "x" | "X" | "o" | "b") | (Value::Integer(_), "") if precision.is_none() => {
            let integer = super::arguments::integer("format", value)?;
            integer_formatted(integer, rest, comma, &layout(Alignment::Right))
        }
        (Value::Integer(_) | Value::Float(_) | Value::Bool(_), "e" | "E" | "f" | "F" | "g" | "G" | "%") => {
            let value = float_of(value).unwrap_or_default();
            real_formatted(value, rest, precision.unwrap_or(6), comma, &layout(Alignment::Right))
        }
        (Value::Float(_), "") if precision.is_none() && !comma && !alternate => {
            let text = str_of(value, meter)?;
            let digits = text.trim_start_matches('-');
            Ok(padded_number(digits.len() < text.len(), "", digits, &layout(Alignment::Right)))
        }
        _ => Err(failed(format!("format: {spec:?} for {} is not supported", value.type_name()))),
    }
}

fn number(rest: &mut &str) -> Result<Option<usize>> {
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (number, after) = rest.split_at(digits);
    *rest = after;
    match number {
        "" => Ok(None),
        _ => number.parse().ok().filter(|&size| size < 1 << 30).map(Some).ok_or_else(|| failed("format: a number that is too large")),
    }
}

fn integer_formatted(integer: i128, kind: &str, comma: bool, layout: &Layout) -> Result<String> {
    let magnitude = integer.unsigned_abs();
    let (prefix, digits) = match kind {
        "x" => ("0x", format!("{magnitude:x}")),
        "X" => ("0X", format!("{magnitude:X}")),
        "o" => ("0o", format!("{magnitude:o}")),
        "b" => ("0b", format!("{magnitude:b}")),
        _ => ("", magnitude.to_string()),
    };
    let digits = match (comma, prefix) {
        (false, _) => digits,
        (true, "") if layout.fill != '0' => with_commas(&digits),
        _ => return Err(failed("format: a comma together with this format is not supported")),
    };
    Ok(padded_number(integer < 0, if layout.alternate { prefix } else { "" }, &digits, layout))
}

fn real_formatted(value: f64, kind: &str, precision: usize, comma: bool, layout: &Layout) -> Result<String> {
    let letter = kind.chars().next().unwrap_or('f');
    let mut digits = match letter {
        '%' => real_digits(value.abs() * 100.0, 'f', precision, layout.alternate)? + "%",
        _ => real_digits(value.abs(), letter, precision, layout.alternate)?,
    };
    if comma {
        if !matches!(letter, 'f' | 'F') || layout.fill == '0' {
            return Err(failed("format: a comma together with this format is not supported"));
        }
        let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
        digits = with_commas(whole) + fraction;
    }
    Ok(padded_number(value.is_sign_negative() && !value.is_nan(), "", &digits, layout))
}

fn with_commas(digits: &str) -> String {
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
