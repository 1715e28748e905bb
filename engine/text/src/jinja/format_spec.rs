//! str.format and Python's format specifications. Called by string_methods.rs; format.rs shares how numbers are written.

use super::arguments::Arguments;
use super::error::{failed, shown, Result};
use super::interpreter::Interpreter;
use super::limits::{Meter, DIGITS_PER_STEP};
use super::list_filters::path_key;
use super::lookup;
use super::number::{digits_of, float_text, leading_size};
use super::operators::float_of;
use super::text::{repr_of, str_of};
use super::value::Value;
use super::writer::Writer;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    Left,
    Right,
    Center,
    /// Filled up between the sign and the digits.
    AfterSign,
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
    pub fn pad(&self, text: &str, out: &mut Writer) -> Result<()> {
        let missing = self.width.saturating_sub(text.chars().count());
        let left = match self.alignment {
            Alignment::Left => 0,
            Alignment::Right | Alignment::AfterSign => missing,
            Alignment::Center => missing / 2,
        };
        let fill = self.fill.to_string();
        out.push_repeated(&fill, left)?;
        out.push(text)?;
        out.push_repeated(&fill, missing - left)
    }
}

/// A number with its sign.
pub fn padded_number(negative: bool, prefix: &str, digits: &str, layout: &Layout, out: &mut Writer) -> Result<()> {
    let sign = match (negative, layout.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    if layout.alignment == Alignment::AfterSign {
        out.push(sign)?;
        out.push(prefix)?;
        let width = layout.width.saturating_sub(sign.len() + prefix.len());
        return Layout { width, ..*layout }.pad(digits, out);
    }
    layout.pad(&format!("{sign}{prefix}{digits}"), out)
}

/// A float in one of the formats e, f, g and their capitals.
pub fn real(value: f64, kind: char, precision: usize, layout: &Layout, out: &mut Writer) -> Result<()> {
    let digits = real_digits(value.abs(), kind, precision, layout.alternate, out.meter())?;
    padded_number(value.is_sign_negative() && !value.is_nan(), "", &digits, layout, out)
}

fn real_digits(value: f64, kind: char, precision: usize, alternate: bool, meter: &Meter) -> Result<String> {
    if precision > 500 {
        return Err(failed("a precision of more than 500 digits is not supported"));
    }
    // A large number has some 300 digits before the point.
    meter.steps((precision + value.abs().max(1.0).log10().min(400.0) as usize) / DIGITS_PER_STEP)?;
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
pub fn format_method(interpreter: &mut Interpreter, pattern: &str, arguments: Arguments) -> Result<Value> {
    let mut out = Writer::new(interpreter.meter);
    let mut next = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        interpreter.meter.steps(1)?;
        out.push(&rest[..at])?;
        let brace = &rest[at..at + 1];
        let after = &rest[at + 1..];
        if after.starts_with(brace) {
            out.push(brace)?;
            rest = &after[1..];
            continue;
        }
        let end =
            after.find('}').filter(|_| brace == "{").ok_or_else(|| failed("format: a brace stands alone; write it twice to print it"))?;
        field(interpreter, &after[..end], &arguments, &mut next, &mut out)?;
        rest = &after[end + 1..];
    }
    out.push(rest)?;
    Ok(out.value())
}

/// Writes what stands for `name!r:spec`.
fn field(interpreter: &mut Interpreter, field: &str, arguments: &Arguments, next: &mut usize, out: &mut Writer) -> Result<()> {
    if field.contains('{') {
        return Err(failed("format: fields within fields are not supported"));
    }
    let (field, spec) = field.split_once(':').unwrap_or((field, ""));
    let (path, conversion) = match field.split_once('!') {
        Some((path, conversion)) => (path, Some(conversion)),
        None => (field, None),
    };
    let value = argument(interpreter, path, arguments, next)?;
    let meter = interpreter.meter;
    let value = match conversion {
        None => value,
        Some("s") => Value::shared(str_of(&value, meter)?),
        Some("r") => Value::shared(repr_of(&value, meter)?.into()),
        Some(other) => return Err(failed(format!("format: the conversion !{other} is not supported"))),
    };
    match spec {
        "" => out.push(&str_of(&value, meter)?),
        _ => Spec::of(spec, &value)?.write(&value, out),
    }
}

/// The argument that `0.name[key]` names.
fn argument(interpreter: &mut Interpreter, path: &str, arguments: &Arguments, next: &mut usize) -> Result<Value> {
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
    interpreter.meter.steps(arguments.named.len())?;
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
            let inner = rest.strip_prefix('[').ok_or_else(|| failed("format: the field is not well formed"))?;
            let end = inner.find(']').ok_or_else(|| failed("format: `[` has no end"))?;
            let key = path_key(&inner[..end], interpreter)?;
            value = lookup::item(interpreter, &value, &key)?;
            rest = &inner[end + 1..];
        }
    }
    Ok(value)
}

/// A format specification that was read.
struct Spec<'s> {
    layout: Layout,
    /// The alignment that the specification has, if any.
    alignment: Option<Alignment>,
    comma: bool,
    precision: Option<usize>,
    kind: &'s str,
}

impl<'s> Spec<'s> {
    /// The value decides where zeros go.
    fn of(spec: &'s str, value: &Value) -> Result<Self> {
        let mut rest = spec;
        let alignment_of = |character: char| match character {
            '<' => Some(Alignment::Left),
            '>' => Some(Alignment::Right),
            '^' => Some(Alignment::Center),
            '=' => Some(Alignment::AfterSign),
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
        let is_text = value.as_text().is_some();
        if flag(&['0']).is_some() && fill.is_none() {
            fill = Some('0');
            alignment = alignment.or(Some(if is_text { Alignment::Left } else { Alignment::AfterSign }));
        }
        let width = leading_size(&mut rest)?.unwrap_or(0);
        let comma = rest.strip_prefix(',').map(|after| rest = after).is_some();
        let precision = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                Some(leading_size(&mut rest)?.ok_or_else(|| failed("format: `.` without a precision"))?)
            }
            None => None,
        };
        let default = if is_text { Alignment::Left } else { Alignment::Right };
        let layout = Layout { fill: fill.unwrap_or(' '), alignment: alignment.unwrap_or(default), sign, alternate, width };
        Ok(Spec { layout, alignment, comma, precision, kind: rest })
    }

    /// format(value, spec).
    fn write(&self, value: &Value, out: &mut Writer) -> Result<()> {
        let Spec { layout, alignment, comma, precision, kind } = self;
        let letter = kind.chars().next().unwrap_or('d');
        match (value.defined()?, *kind) {
            (Value::Text { text, .. }, "" | "s")
                if layout.sign.is_none() && !layout.alternate && !comma && *alignment != Some(Alignment::AfterSign) =>
            {
                let end = precision.and_then(|precision| text.char_indices().nth(precision)).map_or(text.len(), |(end, _)| end);
                layout.pad(&text[..end], out)
            }
            (Value::Integer(_) | Value::Bool(_), "d" | "x" | "X" | "o" | "b" | "") if precision.is_none() => {
                self.write_integer(value.as_integer().unwrap_or_default(), letter, out)
            }
            (Value::Integer(_) | Value::Float(_) | Value::Bool(_), "e" | "E" | "f" | "F" | "g" | "G" | "%") => {
                self.write_real(float_of(value).unwrap_or_default(), letter, out)
            }
            (Value::Float(real), "") if precision.is_none() && !comma && !layout.alternate => {
                let text = float_text(real.abs(), ["nan", "inf", "inf"]);
                padded_number(real.is_sign_negative() && !real.is_nan(), "", &text, layout, out)
            }
            (value, kind) => Err(failed(format!("format: the type {} for {} is not supported", shown(kind), value.type_name()))),
        }
    }

    fn write_integer(&self, integer: i128, kind: char, out: &mut Writer) -> Result<()> {
        let layout = &self.layout;
        let (prefix, digits) = digits_of(integer.unsigned_abs(), kind);
        let digits = match (self.comma, prefix) {
            (false, _) => digits,
            (true, "") => {
                with_commas(&digits, layout, usize::from(integer < 0 || layout.sign.is_some_and(|sign| sign != '-')), out.meter())?
            }
            _ => return Err(failed("format: a comma together with this type is not supported")),
        };
        padded_number(integer < 0, if layout.alternate { prefix } else { "" }, &digits, layout, out)
    }

    fn write_real(&self, value: f64, kind: char, out: &mut Writer) -> Result<()> {
        let layout = &self.layout;
        let precision = self.precision.unwrap_or(6);
        let negative = value.is_sign_negative() && !value.is_nan();
        let mut digits = match kind {
            '%' => real_digits(value.abs() * 100.0, 'f', precision, layout.alternate, out.meter())? + "%",
            _ => real_digits(value.abs(), kind, precision, layout.alternate, out.meter())?,
        };
        if self.comma {
            if !matches!(kind, 'f' | 'F') || !value.is_finite() {
                return Err(failed("format: a comma together with this type is not supported"));
            }
            let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
            let sign = usize::from(negative || layout.sign.is_some_and(|sign| sign != '-'));
            digits = with_commas(whole, layout, sign + fraction.len(), out.meter())? + fraction;
        }
        padded_number(negative, "", &digits, layout, out)
    }
}

/// Digits in groups of three. Zeros that fill the width up, of which the rest of the number takes `taken`, are grouped too.
fn with_commas(digits: &str, layout: &Layout, taken: usize, meter: &Meter) -> Result<String> {
    let width = layout.width.saturating_sub(taken);
    // `count` digits have (count - 1) / 3 commas; a width that would begin with a comma becomes one longer.
    let filled = if width % 4 == 0 { width / 4 * 3 + usize::from(width > 0) } else { width / 4 * 3 + width % 4 };
    let with_zeros = layout.alignment == Alignment::AfterSign && layout.fill == '0';
    let count = if with_zeros { digits.len().max(filled) } else { digits.len() };
    let mut text = Writer::new(meter);
    for (index, digit) in std::iter::repeat_n('0', count - digits.len()).chain(digits.chars()).enumerate() {
        if index > 0 && (count - index) % 3 == 0 {
            text.push(",")?;
        }
        text.push_char(digit)?;
    }
    Ok(text.string())
}
