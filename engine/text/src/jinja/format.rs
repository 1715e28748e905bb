//! printf-style formatting: the operator `%` of a string, and the filter format. Called by operators.rs and filters.rs.

use super::error::{failed, Result};
use super::format_spec::{padded_number, real, Alignment, Layout};
use super::limits::Meter;
use super::operators::{escaped, float_of};
use super::text::{repr_of, str_of};
use super::value::Value;

/// `pattern % values`.
pub fn percent(pattern: &Value, values: &Value, meter: &Meter) -> Result<Value> {
    let Value::Text { text, safe } = pattern else { return Err(failed("`%` needs a string on its left")) };
    let mut formatter = Formatter { values, next: 0, safe: *safe, meter };
    let text = formatter.formatted(text)?;
    Ok(Value::Text { text: text.into(), safe: *safe })
}

struct Formatter<'v> {
    values: &'v Value,
    /// The next of the values, if they are a tuple.
    next: usize,
    safe: bool,
    meter: &'v Meter,
}

impl Formatter<'_> {
    fn formatted(&mut self, pattern: &str) -> Result<String> {
        let mut out = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let (text, length) = self.conversion(&rest[at + 1..])?;
            out.push_str(&text);
            rest = &rest[at + 1 + length..];
        }
        out.push_str(rest);
        self.meter.text(pattern.len())?;
        match self.values {
            Value::Tuple(tuple) if self.next < tuple.items.len() => Err(failed("not all values of `%` were used")),
            Value::Tuple(_) | Value::Dict(_) | Value::List(_) => Ok(out),
            _ if self.next == 0 => Err(failed("not all values of `%` were used")),
            _ => Ok(out),
        }
    }

    fn value(&mut self, key: Option<&str>) -> Result<Value> {
        if let Some(key) = key {
            let Value::Dict(dict) = self.values else { return Err(failed("`%(name)` needs a dict")) };
            self.next += 1;
            return dict.get_text(key).cloned().ok_or_else(|| failed(format!("the dict of `%` has no {key}")));
        }
        self.next += 1;
        match self.values {
            Value::Tuple(tuple) => tuple.items.get(self.next - 1).cloned().ok_or_else(|| failed("`%` has too few values")),
            other if self.next == 1 => Ok(other.clone()),
            _ => Err(failed("`%` has too few values")),
        }
    }

    /// What stands for a conversion, and the length of the conversion after its `%`.
    fn conversion(&mut self, text: &str) -> Result<(String, usize)> {
        let mut rest = text;
        let key = match rest.strip_prefix('(') {
            Some(inner) => {
                let end = inner.find(')').ok_or_else(|| failed("`%(` has no end"))?;
                rest = &inner[end + 1..];
                Some(&inner[..end])
            }
            None => None,
        };
        let flags_length = rest.find(|character| !"-+ #0".contains(character)).unwrap_or(rest.len());
        let (flags, after) = rest.split_at(flags_length);
        rest = after;
        let width = self.size(&mut rest)?.unwrap_or(0);
        let precision = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                Some(self.size(&mut rest)?.unwrap_or(0))
            }
            None => None,
        };
        rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
        let Some(kind) = rest.chars().next() else { return Err(failed("`%` ends within a conversion")) };
        let length = text.len() - rest.len() + kind.len_utf8();
        self.meter.text(width.saturating_add(precision.unwrap_or(0)))?;
        if kind == '%' {
            return Ok(("%".to_string(), length));
        }
        let value = self.value(key)?;
        let layout = Layout {
            fill: if flags.contains('0') && !flags.contains('-') && !"srac".contains(kind) { '0' } else { ' ' },
            alignment: if flags.contains('-') { Alignment::Left } else { Alignment::Right },
            sign: ['+', ' '].into_iter().find(|&sign| flags.contains(sign)),
            alternate: flags.contains('#'),
            width,
        };
        Ok((self.converted(kind, &value, precision, &layout)?, length))
    }

    fn size(&mut self, rest: &mut &str) -> Result<Option<usize>> {
        if rest.starts_with('*') {
            return Err(failed("`*` as a width of `%` is not supported"));
        }
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        *rest = after;
        match number {
            "" => Ok(None),
            _ => number.parse().ok().filter(|&size| size < 1 << 30).map(Some).ok_or_else(|| failed("a width of `%` that is too large")),
        }
    }

    fn converted(&self, kind: char, value: &Value, precision: Option<usize>, layout: &Layout) -> Result<String> {
        let integer = match value.defined()? {
            Value::Bool(truth) => Some(i128::from(*truth)),
            Value::Integer(integer) => Some(*integer),
            _ => None,
        };
        let is_number = float_of(value).is_some();
        let text = match kind {
            's' | 'r' | 'a' if precision.is_some() && self.safe => {
                return Err(failed("a precision in a string marked as safe is not supported"))
            }
            's' => str_of(value, self.meter)?.to_string(),
            'r' => repr_of(value, self.meter)?,
            'c' => match (integer, value.as_text()) {
                (Some(code), _) => {
                    u32::try_from(code).ok().and_then(char::from_u32).ok_or_else(|| failed("`%c` of no character"))?.to_string()
                }
                (None, Some(text)) if text.chars().count() == 1 => text.to_string(),
                _ => return Err(failed("`%c` needs a character or its number")),
            },
            'd' | 'i' | 'u' if is_number => {
                let whole = match (integer, float_of(value)) {
                    (Some(integer), _) => integer,
                    (None, Some(real)) if real.abs() < 1e38 => real.trunc() as i128,
                    _ => return Err(failed("`%d` of a number that is no integer")),
                };
                return Ok(padded_number(whole < 0, "", &digits(whole.unsigned_abs().to_string(), precision), layout));
            }
            'x' | 'X' | 'o' if integer.is_some() => {
                let whole = integer.unwrap_or_default();
                let magnitude = whole.unsigned_abs();
                let (prefix, number) = match kind {
                    'x' => ("0x", format!("{magnitude:x}")),
                    'X' => ("0X", format!("{magnitude:X}")),
                    _ => ("0o", format!("{magnitude:o}")),
                };
                return Ok(padded_number(whole < 0, if layout.alternate { prefix } else { "" }, &digits(number, precision), layout));
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' if is_number => {
                let value = float_of(value).unwrap_or_default();
                return real(value, kind, precision.unwrap_or(6), layout);
            }
            _ => return Err(failed(format!("`%{kind}` of {} is not defined", value.type_name()))),
        };
        let text = match precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        };
        let text = if self.safe && !matches!(value, Value::Text { safe: true, .. }) { escaped(&text) } else { text };
        Ok(layout.padded(&text))
    }
}

/// At least `precision` digits.
fn digits(number: String, precision: Option<usize>) -> String {
    "0".repeat(precision.unwrap_or(0).saturating_sub(number.len())) + &number
}
