//! What Python does with things that have items: len, in, slices, sorting. Used by the interpreter, filters and methods.

use std::cmp::Ordering;

use super::error::{failed, Result};
use super::generators::Cursor;
use super::interpreter::Interpreter;
use super::limits::Meter;
use super::operators::equal_items;
use super::value::{Items, Range, Value, View};
use super::writer::Writer;

pub fn is_iterable(value: &Value) -> bool {
    Cursor::of(value).is_ok() || matches!(value, Value::Loop(_))
}

/// len(value).
pub fn length_of(value: &Value, interpreter: &mut Interpreter) -> Result<usize> {
    if let Value::Loop(state) = value {
        return state.length(interpreter);
    }
    let length = Cursor::of(value).ok().and_then(|cursor| cursor.length());
    length.ok_or_else(|| failed(format!("{} has no length", value.type_name())))
}

/// item in value. Of a generator, this takes the items up to the one that is found.
pub fn contains(value: &Value, item: &Value, interpreter: &mut Interpreter) -> Result<bool> {
    match value {
        Value::Text { text, .. } => match item.defined()?.as_text() {
            Some(part) => Ok(text.contains(part)),
            None => Err(failed(format!("a string cannot contain {}", item.type_name()))),
        },
        Value::Dict(dict) | Value::View(View::Keys, dict) => Ok(dict.get(item, interpreter.meter)?.is_some()),
        _ => {
            let mut cursor = Cursor::of(value)?;
            while let Some(other) = cursor.next(interpreter)? {
                if equal_items(&other, item, interpreter.meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// The index of an item counted from the start, or from the end if it is negative.
pub fn index_within(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(length as i128)? } else { index };
    usize::try_from(index).ok().filter(|&index| index < length)
}

fn bound(value: &Value) -> Result<Option<i128>> {
    match (value, value.as_integer()) {
        (Value::None, _) => Ok(None),
        (_, Some(integer)) => Ok(Some(integer)),
        (other, None) => Err(failed(format!("a slice's bound must be an integer, not {}", other.type_name()))),
    }
}

/// The indices that a slice takes of `length` items: Python's slice.indices.
fn slice_range([start, stop, step]: [Option<i128>; 3], length: usize) -> Result<Range> {
    let length = length as i128;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(failed("a slice's step cannot be zero"));
    }
    let (lowest, highest) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let clamp = |index: i128| if index < 0 { index.saturating_add(length).max(lowest) } else { index.min(highest) };
    let (first, last) = if step < 0 { (highest, lowest) } else { (lowest, highest) };
    Ok(Range { start: start.map_or(first, clamp), stop: stop.map_or(last, clamp), step })
}

/// value[start:stop:step].
pub fn sliced(value: &Value, bounds: [Value; 3], meter: &Meter) -> Result<Value> {
    let bounds = [bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?];
    match value.defined()? {
        Value::Text { text, safe } => sliced_text(text, bounds, meter).map(|text| text.marked(*safe)),
        Value::List(list) => Value::list(picked(&list.items, bounds, meter)?),
        Value::Tuple(tuple) => Value::tuple(picked(&tuple.items, bounds, meter)?),
        Value::Range(range) => {
            let part = slice_range(bounds, range.length())?;
            let at = |index: i128| range.step.checked_mul(index).and_then(|distance| distance.checked_add(range.start));
            match (at(part.start), at(part.stop), part.step.checked_mul(range.step)) {
                (Some(start), Some(stop), Some(step)) => Value::range(Range { start, stop, step }, meter),
                _ => Err(failed("integers of more than 128 bits are not supported")),
            }
        }
        other => Err(failed(format!("{} has no slices", other.type_name()))),
    }
}

fn sliced_text(text: &str, bounds: [Option<i128>; 3], meter: &Meter) -> Result<Value> {
    meter.read(text.len().saturating_mul(4))?;
    let range = slice_range(bounds, text.chars().count())?;
    if range.step == 1 {
        let byte = |position: i128| text.char_indices().nth(position as usize).map_or(text.len(), |(at, _)| at);
        return Value::text(text.get(byte(range.start)..byte(range.stop)).unwrap_or_default(), meter);
    }
    meter.bytes(text.len().saturating_mul(4))?;
    let characters: Vec<char> = text.chars().collect();
    let mut out = Writer::new(meter);
    for index in 0..range.length() {
        out.push_char(characters[range.at(index) as usize])?;
    }
    Ok(out.value())
}

fn picked(items: &[Value], bounds: [Option<i128>; 3], meter: &Meter) -> Result<Items> {
    let range = slice_range(bounds, items.len())?;
    let count = range.length();
    Items::copy((0..count).map(|index| items[range.at(index) as usize].clone()), count, meter)
}

/// A stable sort by an order that can fail.
pub fn sorted<T>(mut items: Vec<T>, order: &impl Fn(&T, &T) -> Result<Ordering>) -> Result<Vec<T>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let right = items.split_off(items.len() / 2);
    let mut left = sorted(items, order)?.into_iter().peekable();
    let mut right = sorted(right, order)?.into_iter().peekable();
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        merged.extend(if order(b, a)?.is_lt() { right.next() } else { left.next() });
    }
    merged.extend(left.chain(right));
    Ok(merged)
}
