//! Python's operators. Used by the interpreter, and by filters and tests that compare.

use std::cmp::Ordering;

use super::ast::{Comparison, Operator};
use super::error::{failed, Error, Result};
use super::format::percent;
use super::limits::Meter;
use super::sequences::{contains, items_of};
use super::text::str_of;
use super::value::{Dict, Sequence, Value};

/// Integers above are not all exact as floats.
const EXACT_MAX: i128 = 1 << 53;

fn unsupported(what: &str, left: &Value, right: &Value) -> Error {
    failed(format!("{what} of {} and {} is not defined", left.type_name(), right.type_name()))
}

fn overflow() -> Error {
    failed("an integer of more than 128 bits")
}

/// The operands of arithmetic. A boolean is an integer.
enum Pair {
    Integers(i128, i128),
    Floats(f64, f64),
}

fn integer_of(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(truth) => Some(i128::from(*truth)),
        Value::Integer(integer) => Some(*integer),
        _ => None,
    }
}

pub fn float_of(value: &Value) -> Option<f64> {
    match value {
        Value::Float(real) => Some(*real),
        _ => integer_of(value).map(|integer| integer as f64),
    }
}

fn pair(left: &Value, right: &Value) -> Option<Pair> {
    match (integer_of(left), integer_of(right)) {
        (Some(a), Some(b)) => Some(Pair::Integers(a, b)),
        _ => Some(Pair::Floats(float_of(left)?, float_of(right)?)),
    }
}

pub fn binary(operator: Operator, left: &Value, right: &Value, meter: &Meter) -> Result<Value> {
    left.defined()?;
    right.defined()?;
    match operator {
        Operator::Modulo if left.as_text().is_some() => return percent(left, right, meter),
        Operator::Add => {
            if let Some(joined) = add_sequences(left, right, meter)? {
                return Ok(joined);
            }
        }
        Operator::Multiply => {
            if let Some(repeated) = repeat(left, right, meter)? {
                return Ok(repeated);
            }
        }
        _ => {}
    }
    match pair(left, right) {
        Some(Pair::Integers(a, b)) => integers(operator, a, b),
        Some(Pair::Floats(a, b)) => floats(operator, a, b),
        None => Err(unsupported(name_of(operator), left, right)),
    }
}

fn name_of(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "`+`",
        Operator::Subtract => "`-`",
        Operator::Multiply => "`*`",
        Operator::Divide => "`/`",
        Operator::FloorDivide => "`//`",
        Operator::Modulo => "`%`",
        Operator::Power => "`**`",
    }
}

fn integers(operator: Operator, a: i128, b: i128) -> Result<Value> {
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide if b != 0 => {
            if a.abs() > EXACT_MAX || b.abs() > EXACT_MAX {
                return Err(failed("a division of integers that no float is equal to"));
            }
            return Ok(Value::Float(a as f64 / b as f64));
        }
        Operator::FloorDivide if b != 0 => {
            a.checked_div_euclid(b).map(|quotient| if b < 0 && a.rem_euclid(b) != 0 { quotient - 1 } else { quotient })
        }
        Operator::Modulo if b != 0 => a.checked_rem_euclid(b).map(|rest| if b < 0 && rest != 0 { rest + b } else { rest }),
        Operator::Divide | Operator::FloorDivide | Operator::Modulo => return Err(failed("a division by zero")),
        Operator::Power if b < 0 => return floats(operator, a as f64, b as f64),
        Operator::Power => u32::try_from(b).ok().and_then(|exponent| a.checked_pow(exponent)),
    };
    result.map(Value::Integer).ok_or_else(overflow)
}

fn floats(operator: Operator, a: f64, b: f64) -> Result<Value> {
    Ok(Value::Float(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide | Operator::FloorDivide | Operator::Modulo if b == 0.0 => return Err(failed("a division by zero")),
        Operator::Divide => a / b,
        Operator::FloorDivide => floor_division(a, b).0,
        Operator::Modulo => floor_division(a, b).1,
        Operator::Power if a == 0.0 && b < 0.0 => return Err(failed("a division by zero")),
        Operator::Power if a < 0.0 && b.is_finite() && b.fract() != 0.0 => return Err(failed("a power that is a complex number")),
        Operator::Power => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(failed("a power that is too large"));
            }
            power
        }
    }))
}

/// CPython's float_divmod.
fn floor_division(a: f64, b: f64) -> (f64, f64) {
    let mut rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 {
        if (b < 0.0) != (rest < 0.0) {
            rest += b;
            quotient -= 1.0;
        }
    } else {
        rest = 0f64.copysign(b);
    }
    if quotient != 0.0 {
        let floor = quotient.floor();
        quotient = if quotient - floor > 0.5 { floor + 1.0 } else { floor };
    } else {
        quotient = 0f64.copysign(a / b);
    }
    (quotient, rest)
}

fn add_sequences(left: &Value, right: &Value, meter: &Meter) -> Result<Option<Value>> {
    let joined = |a: &Sequence, b: &Sequence| -> Result<Vec<Value>> {
        meter.items(a.items.len() + b.items.len())?;
        Ok(a.items.iter().chain(&b.items).cloned().collect())
    };
    Ok(Some(match (left, right) {
        (Value::Text { text: a, safe: safe_a }, Value::Text { text: b, safe: safe_b }) => {
            let safe = *safe_a || *safe_b;
            let part = |text: &str, is_safe: bool| if safe && !is_safe { escaped(text) } else { text.to_string() };
            meter.text(a.len() + b.len())?;
            let text = if safe { part(a, *safe_a) + &part(b, *safe_b) } else { format!("{a}{b}") };
            Value::Text { text: text.into(), safe }
        }
        (Value::List(a), Value::List(b)) => Value::list(joined(a, b)?)?,
        (Value::Tuple(a), Value::Tuple(b)) => Value::tuple(joined(a, b)?)?,
        _ => return Ok(None),
    }))
}

fn repeat(left: &Value, right: &Value, meter: &Meter) -> Result<Option<Value>> {
    let (what, count) = match (integer_of(left), integer_of(right)) {
        (None, Some(count)) => (left, count),
        (Some(count), None) => (right, count),
        _ => return Ok(None),
    };
    let count = usize::try_from(count.max(0)).map_err(|_| failed("a text or list repeated too often"))?;
    let repeated = |sequence: &Sequence| -> Result<Vec<Value>> {
        meter.items(sequence.items.len().saturating_mul(count))?;
        Ok(sequence.items.iter().cycle().take(sequence.items.len() * count).cloned().collect())
    };
    Ok(Some(match what {
        Value::Text { text, safe } => {
            meter.text(text.len().saturating_mul(count))?;
            Value::Text { text: text.repeat(count).into(), safe: *safe }
        }
        Value::List(list) => Value::list(repeated(list)?)?,
        Value::Tuple(tuple) => Value::tuple(repeated(tuple)?)?,
        _ => return Ok(None),
    }))
}

pub fn negative(value: &Value) -> Result<Value> {
    match (integer_of(value), value.defined()?) {
        (Some(integer), _) => integer.checked_neg().map(Value::Integer).ok_or_else(overflow),
        (None, Value::Float(real)) => Ok(Value::Float(-real)),
        (None, other) => Err(failed(format!("{} has no negative", other.type_name()))),
    }
}

pub fn positive(value: &Value) -> Result<Value> {
    match (integer_of(value), value.defined()?) {
        (Some(integer), _) => Ok(Value::Integer(integer)),
        (None, Value::Float(real)) => Ok(Value::Float(*real)),
        (None, other) => Err(failed(format!("{} is not a number", other.type_name()))),
    }
}

/// HTML escapes, as markupsafe writes them.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('>', "&gt;").replace('<', "&lt;").replace('\'', "&#39;").replace('"', "&#34;")
}

/// The operator `~`: the texts of all values. Without autoescape, it escapes nothing.
pub fn concatenated(values: &[Value], meter: &Meter) -> Result<Value> {
    let mut text = String::new();
    for value in values {
        let part = str_of(value, meter)?;
        meter.text(part.len())?;
        text.push_str(&part);
    }
    Ok(Value::text(text))
}

pub fn compare(comparison: Comparison, left: &Value, right: &Value, meter: &Meter) -> Result<bool> {
    let ordered = |wanted: fn(Ordering) -> bool| -> Result<bool> {
        if let Some(Pair::Floats(a, b)) = pair(left, right) {
            if a.is_nan() || b.is_nan() {
                return Ok(false);
            }
        }
        Ok(wanted(order(left, right, meter)?))
    };
    meter.read(left)?;
    meter.read(right)?;
    match comparison {
        Comparison::Equal => equal(left, right, meter),
        Comparison::NotEqual => equal(left, right, meter).map(|same| !same),
        Comparison::Less => ordered(Ordering::is_lt),
        Comparison::LessOrEqual => ordered(Ordering::is_le),
        Comparison::Greater => ordered(Ordering::is_gt),
        Comparison::GreaterOrEqual => ordered(Ordering::is_ge),
        Comparison::In => contains(right, left, meter),
        Comparison::NotIn => contains(right, left, meter).map(|found| !found),
    }
}

/// Numbers compare exactly, also an integer with a float.
fn order_numbers(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    Some(match (integer_of(left), integer_of(right)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => order_mixed(a, float_of(right)?),
        (None, Some(b)) => order_mixed(b, float_of(left)?).map(Ordering::reverse),
        (None, None) => float_of(left)?.partial_cmp(&float_of(right)?),
    })
}

fn order_mixed(integer: i128, real: f64) -> Option<Ordering> {
    if real.is_nan() || real.abs() >= 1e38 {
        return (integer as f64).partial_cmp(&real);
    }
    let whole = real.floor();
    Some(integer.cmp(&(whole as i128)).then(if real > whole { Ordering::Less } else { Ordering::Equal }))
}

/// The operators `<` and `>`; an error for what Python cannot order, NaN included.
pub fn order(left: &Value, right: &Value, meter: &Meter) -> Result<Ordering> {
    meter.steps(1)?;
    left.defined()?;
    right.defined()?;
    match (left, right) {
        (Value::Text { text: a, .. }, Value::Text { text: b, .. }) => Ok(a.cmp(b)),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b, meter)? {
                    return order(a, b, meter);
                }
            }
            Ok(a.items.len().cmp(&b.items.len()))
        }
        _ => order_numbers(left, right).flatten().ok_or_else(|| unsupported("the order", left, right)),
    }
}

pub fn equal(left: &Value, right: &Value, meter: &Meter) -> Result<bool> {
    meter.steps(1)?;
    let all = |a: &[Value], b: &[Value]| -> Result<bool> {
        for (a, b) in a.iter().zip(b) {
            if !equal(a, b, meter)? {
                return Ok(false);
            }
        }
        Ok(a.len() == b.len())
    };
    if let Some(ordering) = order_numbers(left, right) {
        return Ok(ordering == Some(Ordering::Equal));
    }
    match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => Ok(true),
        (Value::Text { text: a, .. }, Value::Text { text: b, .. }) => Ok(a == b),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            Ok(a.items.len() == b.items.len() && all(&a.items, &b.items)?)
        }
        (Value::Dict(a), Value::Dict(b)) => equal_dicts(a, b, meter),
        (Value::Range(_), Value::Range(_)) => all(&items_of(left, meter)?, &items_of(right, meter)?),
        (Value::View(..), Value::View(..)) => Err(failed("views of dicts cannot be compared: make lists of them")),
        (Value::Namespace(a), Value::Namespace(b)) => Ok(a == b),
        (Value::Macro(a), Value::Macro(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
        (Value::Function(a), Value::Function(b)) => Ok(a == b),
        (Value::Iterator(a), Value::Iterator(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
        (Value::Method(a), Value::Method(b)) => Ok(a.1 == b.1 && equal(&a.0, &b.0, meter)?),
        (Value::Loop(a), Value::Loop(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
        _ => Ok(false),
    }
}

fn equal_dicts(a: &Dict, b: &Dict, meter: &Meter) -> Result<bool> {
    if a.entries.len() != b.entries.len() {
        return Ok(false);
    }
    for (key, field) in &a.entries {
        match b.get(key)? {
            Some(other) if equal(field, other, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}
