//! What Python does with things that have items: iteration, len, in, slices, sorting. Used by the interpreter, filters and methods.

use std::cmp::Ordering;

use super::error::{failed, Result};
use super::limits::Meter;
use super::operators::equal;
use super::value::{Range, Value, View};

/// list(value). Of a generator, this takes all items.
pub fn items_of(value: &Value, meter: &Meter) -> Result<Vec<Value>> {
    meter.read(value)?;
    if let Ok(length) = length_of(value) {
        meter.items(length)?;
    }
    Ok(match value {
        Value::Undefined(_) => Vec::new(),
        Value::Text { text, .. } => text.chars().map(|character| Value::text(character.to_string())).collect(),
        Value::List(sequence) | Value::Tuple(sequence) => sequence.items.clone(),
        Value::Dict(dict) | Value::View(View::Keys, dict) => dict.entries.iter().map(|(key, _)| key.clone()).collect(),
        Value::View(View::Values, dict) => dict.entries.iter().map(|(_, field)| field.clone()).collect(),
        Value::View(View::Items, dict) => {
            dict.entries.iter().map(|(key, field)| Value::tuple(vec![key.clone(), field.clone()])).collect::<Result<_>>()?
        }
        Value::Range(range) => range.items().collect(),
        Value::Iterator(generator) => {
            let items: Vec<Value> = generator.items.borrow_mut().drain(..).collect();
            meter.items(items.len())?;
            items
        }
        other => return Err(failed(format!("{} has no items", other.type_name()))),
    })
}

pub fn is_iterable(value: &Value) -> bool {
    length_of(value).is_ok() || matches!(value, Value::Iterator(_) | Value::Loop(_))
}

/// len(value).
pub fn length_of(value: &Value) -> Result<usize> {
    Ok(match value {
        Value::Undefined(_) => 0,
        Value::Text { text, .. } => text.chars().count(),
        Value::List(sequence) | Value::Tuple(sequence) => sequence.items.len(),
        Value::Dict(dict) | Value::View(_, dict) => dict.entries.len(),
        Value::Range(range) => range.length(),
        Value::Loop(state) => state.items.len(),
        other => return Err(failed(format!("{} has no length", other.type_name()))),
    })
}

/// item in value.
pub fn contains(value: &Value, item: &Value, meter: &Meter) -> Result<bool> {
    match value {
        Value::Text { text, .. } => match item.defined()?.as_text() {
            Some(part) => Ok(text.contains(part)),
            None => Err(failed(format!("a string cannot contain {}", item.type_name()))),
        },
        Value::Dict(dict) | Value::View(View::Keys, dict) => Ok(dict.get(item)?.is_some()),
        _ => {
            for other in items_of(value, meter)? {
                if equal(&other, item, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// The index of an item counted from the start, or from the end if it is negative.
pub fn index_within(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 { index + length as i128 } else { index };
    usize::try_from(index).ok().filter(|&index| index < length)
}

fn bound(value: &Value) -> Result<Option<i128>> {
    match value {
        Value::None => Ok(None),
        Value::Bool(truth) => Ok(Some(i128::from(*truth))),
        Value::Integer(integer) => Ok(Some(*integer)),
        other => Err(failed(format!("a slice's bound must be an integer, not {}", other.type_name()))),
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
    Ok(Range { start: start.map_or(first, clamp), stop: stop.map_or(last, clamp), step: step.clamp(-length - 1, length + 1) })
}

/// value[start:stop:step].
pub fn slice(value: &Value, bounds: [Value; 3], meter: &Meter) -> Result<Value> {
    let bounds = [bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?];
    match value.defined()? {
        Value::Text { text, safe } => {
            meter.text(text.len())?;
            let characters: Vec<char> = text.chars().collect();
            let text: String = indices(slice_range(bounds, characters.len())?).map(|index| characters[index]).collect();
            Ok(Value::Text { text: text.into(), safe: *safe })
        }
        Value::List(list) => Value::list(picked(&list.items, bounds, meter)?),
        Value::Tuple(tuple) => Value::tuple(picked(&tuple.items, bounds, meter)?),
        Value::Range(range) => {
            let part = slice_range(bounds, range.length())?;
            let at = |index: i128| range.start + index * range.step;
            Ok(Value::Range(Range { start: at(part.start), stop: at(part.stop), step: part.step * range.step }))
        }
        other => Err(failed(format!("{} has no slices", other.type_name()))),
    }
}

fn indices(range: Range) -> impl Iterator<Item = usize> {
    (0..range.length()).map(move |index| (range.start + index as i128 * range.step) as usize)
}

fn picked(items: &[Value], bounds: [Option<i128>; 3], meter: &Meter) -> Result<Vec<Value>> {
    let range = slice_range(bounds, items.len())?;
    meter.items(range.length())?;
    Ok(indices(range).map(|index| items[index].clone()).collect())
}

/// A stable sort by an order that can fail.
pub fn sort_by<T>(items: &mut [T], order: impl Fn(&T, &T) -> Result<Ordering>) -> Result<()> {
    let mut error = None;
    items.sort_by(|a, b| {
        if error.is_some() {
            return Ordering::Equal;
        }
        order(a, b).unwrap_or_else(|failure| {
            error = Some(failure);
            Ordering::Equal
        })
    });
    error.map_or(Ok(()), Err)
}
