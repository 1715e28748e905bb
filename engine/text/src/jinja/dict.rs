//! Python's dict: entries in the order of their first insertion. Used by value.rs and all that look keys up.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::sync::Arc;

use super::ast::Name;
use super::error::{failed, Result};
use super::limits::Meter;
use super::value::Value;

/// Items in the tuples within one key.
const KEY_ITEMS_MAX: usize = 1000;
/// What an entry takes: key and value, and a place in the index, of which up to half is free.
const ENTRY_BYTES: usize = 2 * size_of::<Value>() + 2 * size_of::<(Key, usize)>();

#[derive(Default)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<Key, usize>,
    /// Levels of containers below.
    depth: u32,
}

/// What makes two keys the same: 1, 1.0 and True are.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    None,
    Text(Name),
    Integer(i128),
    Float(u64),
    Tuple(Vec<Key>),
}

impl Dict {
    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// None if the dict has no such key; an error if no dict can have it.
    pub fn get(&self, key: &Value, meter: &Meter) -> Result<Option<&Value>> {
        if matches!(key, Value::Undefined(_)) {
            return Ok(None);
        }
        Ok(self.index.get(&key_of(key, meter)?).map(|&at| &self.entries[at].1))
    }

    pub fn get_text(&self, key: &str, meter: &Meter) -> Result<Option<&Value>> {
        meter.read(key.len())?;
        Ok(self.index.get(&Key::Text(Arc::from(key))).map(|&at| &self.entries[at].1))
    }

    pub fn insert(&mut self, key: Value, value: Value, meter: &Meter) -> Result<()> {
        meter.steps(1)?;
        self.depth = self.depth.max(value.depth()).max(key.depth());
        match self.index.entry(key_of(&key, meter)?) {
            Entry::Occupied(found) => self.entries[*found.get()].1 = value,
            Entry::Vacant(free) => {
                meter.bytes(ENTRY_BYTES)?;
                free.insert(self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }
}

fn key_of(value: &Value, meter: &Meter) -> Result<Key> {
    let mut left = KEY_ITEMS_MAX;
    key_within(value, &mut left, meter)
}

/// `left`: how many more items the key may have.
fn key_within(value: &Value, left: &mut usize, meter: &Meter) -> Result<Key> {
    *left = left.checked_sub(1).ok_or_else(|| failed(format!("a key has at most {KEY_ITEMS_MAX} items")))?;
    Ok(match value {
        Value::None => Key::None,
        Value::Bool(truth) => Key::Integer(i128::from(*truth)),
        Value::Integer(integer) => Key::Integer(*integer),
        Value::Float(real) if real.fract() == 0.0 && real.abs() < 1e38 => Key::Integer(*real as i128),
        Value::Float(real) if !real.is_nan() => Key::Float(real.to_bits()),
        Value::Text { text, .. } => {
            // Hashing takes longer than reading.
            meter.read(text.len().saturating_mul(4))?;
            Key::Text(text.clone())
        }
        Value::Tuple(tuple) => {
            meter.steps(tuple.items.len())?;
            meter.bytes(tuple.items.len().saturating_mul(size_of::<Key>()))?;
            Key::Tuple(tuple.items.iter().map(|item| key_within(item, left, meter)).collect::<Result<_>>()?)
        }
        other => return Err(failed(format!("{} cannot be a key", other.type_name()))),
    })
}
