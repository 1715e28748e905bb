//! printf-style formatting: the operator `%` of a string, and the filter format. Called by operators.rs and filters.rs.

use super::ast::Name;
use super::error::{failed, Result};
use super::format_spec::{padded_number, real, Alignment, Layout};
use super::limits::Meter;
use super::number::{digits_of, leading_size, truncated};
use super::operators::float_of;
use super::text::{repr_of, str_of};
use super::value::Value;
use super::writer::Writer;

/// `pattern % values`.
pub fn percent(pattern: &Value, values: &Value, meter: &Meter) -> Result<Value> {
    let Value::Text { text, safe } = pattern else { return Err(failed("`%` needs a string on its left")) };
    let mut formatter = Formatter { values, next: 0, safe: *safe, meter };
    formatter.formatted(text).map(|text| text.marked(*safe))
}

struct Formatter<'v> {
    values: &'v Value,
    /// The next of the values, if they are a tuple.
    next: usize,
    safe: bool,
    meter: &'v Meter,
}

impl Formatter<'_> {
    fn formatted(&mut self, pattern: &str) -> Result<Value> {
        let mut out = Writer::new(self.meter);
        let mut rest = pattern;
        while let Some(at) = rest.find('%') {
            self.meter.steps(1)?;
            out.push(&rest[..at])?;
            let length = self.conversion(&rest[at + 1..], &mut out)?;
            rest = &rest[at + 1 + length..];
        }
        out.push(rest)?;
        match self.values {
            Value::Tuple(tuple) if self.next < tuple.items.len() => Err(failed("not all values of `%` were used")),
            // Python does not ask for all values of what could be a mapping.
            Value::Tuple(_) | Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_) => Ok(out.value()),
            _ if self.next == 0 => Err(failed("not all values of `%` were used")),
            _ => Ok(out.value()),
        }
    }

    fn value(&mut self, key: Option<&str>) -> Result<Value> {
        if let Some(key) = key {
            let Value::Dict(dict) = self.values else { return Err(failed("`%(name)` needs a dict")) };
            self.next += 1;
            return dict.get_text(key, self.meter)?.cloned().ok_or_else(|| failed(format!("the dict of `%` has no {key}")));
        }
        self.next += 1;
        match self.values {
            Value::Tuple(tuple) => tuple.items.get(self.next - 1).cloned().ok_or_else(|| failed("`%` has too few values")),
            other if self.next == 1 => Ok(other.clone()),
            _ => Err(failed("`%` has too few values")),
        }
    }

    /// Writes what stands for a conversion. Returns the length of the conversion after its `%`.
    fn conversion(&mut self, text: &str, out: &mut Writer) -> Result<usize> {
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
        let width = width_of(&mut rest)?.unwrap_or(0);
        let precision = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                Some(width_of(&mut rest)?.unwrap_or(0))
            }
            None => None,
        };
        rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
        let Some(kind) = rest.chars().next() else { return Err(failed("`%` ends within a conversion")) };
        let length = text.len() - rest.len() + kind.len_utf8();
        if kind == '%' {
            out.push("%")?;
            return Ok(length);
        }
        let value = self.value(key)?;
        let layout = Layout {
            fill: if flags.contains('0') && !flags.contains('-') && !"srac".contains(kind) { '0' } else { ' ' },
            alignment: match (flags.contains('-'), flags.contains('0')) {
                (true, _) => Alignment::Left,
                (false, true) => Alignment::AfterSign,
                (false, false) => Alignment::Right,
            },
            sign: ['+', ' '].into_iter().find(|&sign| flags.contains(sign)),
            alternate: flags.contains('#'),
            width,
        };
        self.convert(kind, &value, precision, &layout, out)?;
        Ok(length)
    }

    fn convert(&self, kind: char, value: &Value, precision: Option<usize>, layout: &Layout, out: &mut Writer) -> Result<()> {
        if kind != 's' && kind != 'r' {
            value.defined()?;
        }
        let integer = value.as_integer();
        let text: Name = match (kind, float_of(value)) {
            ('s' | 'r', _) if precision.is_some() && self.safe => {
                return Err(failed("a precision in a string marked as safe is not supported"))
            }
            ('s', _) => str_of(value, self.meter)?,
            ('r', _) => repr_of(value, self.meter)?.into(),
            ('c', _) => match (integer.map(u32::try_from), value.as_text()) {
                (Some(code), _) => {
                    code.ok().and_then(char::from_u32).ok_or_else(|| failed("`%c`: no character has this number"))?.to_string().into()
                }
                (None, Some(text)) if text.chars().count() == 1 => text.into(),
                _ => return Err(failed("`%c` needs a character or its number")),
            },
            ('d' | 'i' | 'u', Some(real)) => {
                let whole = integer.map_or_else(|| truncated(real), |integer| Ok(Some(integer)))?;
                let whole = whole.ok_or_else(|| failed("`%d` needs a finite number"))?;
                return self.integer(whole, 'd', precision, layout, out);
            }
            ('x' | 'X' | 'o', Some(_)) if integer.is_some() => {
                return self.integer(integer.unwrap_or_default(), kind, precision, layout, out);
            }
            ('e' | 'E' | 'f' | 'F' | 'g' | 'G', Some(value)) => return real(value, kind, precision.unwrap_or(6), layout, out),
            _ => return Err(failed(format!("`%{kind}` of {} is not supported", value.type_name()))),
        };
        let text = match precision.and_then(|precision| text.char_indices().nth(precision)) {
            Some((end, _)) => &text[..end],
            None => &text,
        };
        if self.safe && !value.is_safe() {
            let mut escaped = Writer::new(self.meter);
            escaped.push_escaped(text)?;
            return layout.pad(&escaped.text(), out);
        }
        layout.pad(text, out)
    }

    /// An integer of at least `precision` digits.
    fn integer(&self, integer: i128, kind: char, precision: Option<usize>, layout: &Layout, out: &mut Writer) -> Result<()> {
        let (prefix, number) = digits_of(integer.unsigned_abs(), kind);
        let mut digits = Writer::new(self.meter);
        digits.push_repeated("0", precision.unwrap_or(0).saturating_sub(number.len()))?;
        digits.push(&number)?;
        padded_number(integer < 0, if layout.alternate { prefix } else { "" }, &digits.text(), layout, out)
    }
}

fn width_of(rest: &mut &str) -> Result<Option<usize>> {
    if rest.starts_with('*') {
        return Err(failed("`*` as a width of `%` is not supported"));
    }
    leading_size(rest)
}
