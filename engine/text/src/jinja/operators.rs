//! Python's operators. Used by the interpreter, and by filters and tests that compare.

use std::cmp::Ordering;
use std::rc::Rc;

use super::ast::{Comparison, Operator};
use super::dict::Dict;
use super::error::{failed, Error, Result};
use super::format::percent;
use super::interpreter::Interpreter;
use super::limits::Meter;
use super::sequences::contains;
use super::text::str_of;
use super::value::{Items, Range, Sequence, Value};
use super::writer::Writer;

/// Integers above are not all exact as floats.
const EXACT_MAX: i128 = 1 << 53;

fn unsupported(what: &str, left: &Value, right: &Value) -> Error {
    failed(format!("{what} of {} and {} is not defined", left.type_name(), right.type_name()))
}

fn overflow() -> Error {
    failed("integers of more than 128 bits are not supported")
}

/// The operands of arithmetic. A boolean is an integer.
enum Pair {
    Integers(i128, i128),
    Floats(f64, f64),
}

pub fn float_of(value: &Value) -> Option<f64> {
    match value {
        Value::Float(real) => Some(*real),
        _ => value.as_integer().map(|integer| integer as f64),
    }
}

fn pair(left: &Value, right: &Value) -> Option<Pair> {
    match (left.as_integer(), right.as_integer()) {
        (Some(a), Some(b)) => Some(Pair::Integers(a, b)),
        _ => Some(Pair::Floats(float_of(left)?, float_of(right)?)),
    }
}

pub fn binary(operator: Operator, left: &Value, right: &Value, meter: &Meter) -> Result<Value> {
    left.defined()?;
    if operator == Operator::Modulo && left.as_text().is_some() {
        return percent(left, right, meter);
    }
    right.defined()?;
    match operator {
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
                return Err(failed("division of integers beyond 2^53 is not supported"));
            }
            return Ok(Value::Float(a as f64 / b as f64));
        }
        Operator::FloorDivide if b != 0 => {
            a.checked_div_euclid(b).map(|quotient| if b < 0 && a.rem_euclid(b) != 0 { quotient - 1 } else { quotient })
        }
        Operator::Modulo if b != 0 => a.checked_rem_euclid(b).map(|rest| if b < 0 && rest != 0 { rest + b } else { rest }),
        Operator::Divide | Operator::FloorDivide | Operator::Modulo => return Err(failed("division by zero")),
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
        Operator::Divide | Operator::FloorDivide | Operator::Modulo if b == 0.0 => return Err(failed("division by zero")),
        Operator::Divide => a / b,
        Operator::FloorDivide => floor_division(a, b).0,
        Operator::Modulo => floor_division(a, b).1,
        Operator::Power if a == 0.0 && b < 0.0 => return Err(failed("division by zero")),
        Operator::Power if a < 0.0 && b.is_finite() && b.fract() != 0.0 => {
            return Err(failed("the power of a negative number with a fraction is not supported"))
        }
        Operator::Power => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(failed("the power is too large"));
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
    let joined =
        |a: &Sequence, b: &Sequence| Items::copy(a.items.iter().chain(b.items.iter()).cloned(), a.items.len() + b.items.len(), meter);
    Ok(Some(match (left, right) {
        (Value::Text { text: a, safe: safe_a }, Value::Text { text: b, safe: safe_b }) => {
            // What is not marked as safe is escaped if the other is.
            let safe = *safe_a || *safe_b;
            let mut out = Writer::new(meter);
            for (text, is_safe) in [(a, safe_a), (b, safe_b)] {
                if safe && !is_safe {
                    out.push_escaped(text)?;
                } else {
                    out.push(text)?;
                }
            }
            out.value().marked(safe)
        }
        (Value::List(a), Value::List(b)) => Value::list(joined(a, b)?)?,
        (Value::Tuple(a), Value::Tuple(b)) => Value::tuple(joined(a, b)?)?,
        _ => return Ok(None),
    }))
}

fn repeat(left: &Value, right: &Value, meter: &Meter) -> Result<Option<Value>> {
    let (what, count) = match (left.as_integer(), right.as_integer()) {
        (None, Some(count)) => (left, count),
        (Some(count), None) => (right, count),
        _ => return Ok(None),
    };
    let count = usize::try_from(count.max(0)).map_err(|_| failed("the text or list is repeated too often"))?;
    let repeated = |sequence: &Sequence| {
        let length = sequence.items.len().saturating_mul(count);
        Items::copy(sequence.items.iter().cycle().cloned(), length, meter)
    };
    Ok(Some(match what {
        Value::Text { text, safe } => {
            let mut out = Writer::new(meter);
            out.push_repeated(text, count)?;
            out.value().marked(*safe)
        }
        Value::List(list) => Value::list(repeated(list)?)?,
        Value::Tuple(tuple) => Value::tuple(repeated(tuple)?)?,
        _ => return Ok(None),
    }))
}

pub fn negative(value: &Value) -> Result<Value> {
    match (value.as_integer(), value.defined()?) {
        (Some(integer), _) => integer.checked_neg().map(Value::Integer).ok_or_else(overflow),
        (None, Value::Float(real)) => Ok(Value::Float(-real)),
        (None, other) => Err(failed(format!("{} has no negative", other.type_name()))),
    }
}

pub fn positive(value: &Value) -> Result<Value> {
    match (value.as_integer(), value.defined()?) {
        (Some(integer), _) => Ok(Value::Integer(integer)),
        (None, Value::Float(real)) => Ok(Value::Float(*real)),
        (None, other) => Err(failed(format!("{} is not a number", other.type_name()))),
    }
}

/// The operator `~`: the texts of all values. Without autoescape, it escapes nothing.
pub fn concatenated(values: &[Value], meter: &Meter) -> Result<Value> {
    let mut out = Writer::new(meter);
    for value in values {
        out.push(&str_of(value, meter)?)?;
    }
    Ok(out.value())
}

pub fn compare(comparison: Comparison, left: &Value, right: &Value, interpreter: &mut Interpreter) -> Result<bool> {
    let meter = interpreter.meter;
    let ordered = |wanted: fn(Ordering) -> bool| -> Result<bool> {
        if let Some(Pair::Floats(a, b)) = pair(left, right) {
            if a.is_nan() || b.is_nan() {
                return Ok(false);
            }
        }
        Ok(wanted(order(left, right, meter)?))
    };
    match comparison {
        Comparison::Equal => equal(left, right, meter),
        Comparison::NotEqual => equal(left, right, meter).map(|same| !same),
        Comparison::Less => ordered(Ordering::is_lt),
        Comparison::LessOrEqual => ordered(Ordering::is_le),
        Comparison::Greater => ordered(Ordering::is_gt),
        Comparison::GreaterOrEqual => ordered(Ordering::is_ge),
        Comparison::In | Comparison::NotIn => {
            meter.read(left.text_length() + right.text_length())?;
            contains(right, left, interpreter).map(|found| found == (comparison == Comparison::In))
        }
    }
}

/// Numbers compare exactly, also an integer with a float.
fn order_numbers(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    Some(match (left.as_integer(), right.as_integer()) {
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
        (Value::Text { text: a, .. }, Value::Text { text: b, .. }) => {
            meter.read(a.len().min(b.len()))?;
            Ok(a.cmp(b))
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            for (a, b) in a.items.iter().zip(b.items.iter()) {
                if !equal_items(a, b, meter)? {
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
    if let Some(ordering) = order_numbers(left, right) {
        return Ok(ordering == Some(Ordering::Equal));
    }
    match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => Ok(true),
        (Value::Text { text: a, .. }, Value::Text { text: b, .. }) => {
            meter.read(if a.len() == b.len() { a.len() } else { 0 })?;
            Ok(a == b)
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => all_equal(&a.items, &b.items, meter),
        (Value::Dict(a), Value::Dict(b)) => equal_dicts(a, b, meter),
        (Value::Range(a), Value::Range(b)) => Ok(equal_ranges(a, b)),
        (Value::View(..), Value::View(..)) => Err(failed("views of dicts cannot be compared: make lists of them")),
        (Value::Namespace(a), Value::Namespace(b)) => Ok(a == b),
        (Value::Macro(a), Value::Macro(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Function(a), Value::Function(b)) => Ok(a == b),
        (Value::Iterator(a), Value::Iterator(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Method(_), Value::Method(_)) => Err(failed("methods cannot be compared: call them")),
        (Value::Loop(a), Value::Loop(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Cycler(a), Value::Cycler(b)) => Ok(Rc::ptr_eq(a, b)),
        (Value::Joiner(a), Value::Joiner(b)) => Ok(Rc::ptr_eq(a, b)),
        _ => Ok(false),
    }
}

/// Equality within lists, where Python takes an object for equal to itself. Whether a NaN is the same object is not known here.
pub fn equal_items(left: &Value, right: &Value, meter: &Meter) -> Result<bool> {
    match (left, right) {
        (Value::Float(a), Value::Float(b)) if a.is_nan() && b.is_nan() => Err(failed("a NaN within a list cannot be compared")),
        _ => equal(left, right, meter),
    }
}

pub fn all_equal(a: &[Value], b: &[Value], meter: &Meter) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter().zip(b) {
        if !equal_items(a, b, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_dicts(a: &Dict, b: &Dict, meter: &Meter) -> Result<bool> {
    if a.entries().len() != b.entries().len() {
        return Ok(false);
    }
    for (key, field) in a.entries() {
        match b.get(key, meter)? {
            Some(other) if equal_items(field, other, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Ranges are equal if their items are.
fn equal_ranges(a: &Range, b: &Range) -> bool {
    let length = a.length();
    length == b.length() && (length == 0 || a.start == b.start) && (length < 2 || a.step == b.step)
}
