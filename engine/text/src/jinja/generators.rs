//! Iteration as Python does it: one item at a time, so that what is not asked for is not computed and stays in a generator. Used by loops,
//! filters and operators.

use std::cell::RefCell;
use std::rc::Rc;

use super::ast::Name;
use super::dict::Dict;
use super::error::{failed, Result};
use super::interpreter::Interpreter;
use super::limits::{Meter, OBJECT_BYTES};
use super::value::{checked, Items, Range, Sequence, Value, View};

type Next = Box<dyn FnMut(&mut Interpreter) -> Result<Option<Value>>>;

/// What gives items when they are asked for. What was taken is gone.
pub struct Generator {
    /// None when there are no more.
    next: RefCell<Option<Next>>,
    depth: u32,
}

impl Generator {
    /// `depth`: that of the values within `next`.
    pub fn new(depth: u32, meter: &Meter, next: impl FnMut(&mut Interpreter) -> Result<Option<Value>> + 'static) -> Result<Rc<Generator>> {
        meter.bytes(OBJECT_BYTES + size_of_val(&next))?;
        Ok(Rc::new(Generator { next: RefCell::new(Some(Box::new(next))), depth: checked(depth)? }))
    }

    /// Of items that are there.
    pub fn of_items(items: Items, meter: &Meter) -> Result<Value> {
        let depth = super::value::depth_of(items.iter());
        let mut items = items.into_iter();
        Generator::new(depth, meter, move |_| Ok(items.next())).map(Value::Iterator)
    }

    pub fn depth(&self) -> u32 {
        self.depth
    }

    pub fn next(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        let Ok(mut next) = self.next.try_borrow_mut() else { return Err(failed("a generator needs its own items")) };
        let Some(work) = &mut *next else { return Ok(None) };
        let item = interpreter.deeper(work)?;
        if item.is_none() {
            *next = None;
        }
        Ok(item)
    }
}

/// A position in what has items.
pub enum Cursor {
    Empty,
    Sequence(Rc<Sequence>, usize),
    /// The position in bytes.
    Text(Name, usize),
    Entries(View, Rc<Dict>, usize),
    Range(Rc<Range>, usize),
    Generator(Rc<Generator>),
    Items(std::vec::IntoIter<Value>),
}

impl Cursor {
    /// iter(value).
    pub fn of(value: &Value) -> Result<Self> {
        Ok(match value {
            Value::Undefined(_) => Cursor::Empty,
            Value::List(sequence) | Value::Tuple(sequence) => Cursor::Sequence(sequence.clone(), 0),
            Value::Text { text, .. } => Cursor::Text(text.clone(), 0),
            Value::Dict(dict) => Cursor::Entries(View::Keys, dict.clone(), 0),
            Value::View(view, dict) => Cursor::Entries(*view, dict.clone(), 0),
            Value::Range(range) => Cursor::Range(range.clone(), 0),
            Value::Iterator(generator) => Cursor::Generator(generator.clone()),
            other => return Err(failed(format!("{} has no items", other.type_name()))),
        })
    }

    /// len() of what the cursor goes through, from its start. None for generators.
    pub fn length(&self) -> Option<usize> {
        match self {
            Cursor::Empty => Some(0),
            Cursor::Sequence(sequence, _) => Some(sequence.items.len()),
            Cursor::Text(text, _) => Some(text.chars().count()),
            Cursor::Entries(_, dict, _) => Some(dict.entries().len()),
            Cursor::Range(range, _) => Some(range.length()),
            Cursor::Generator(_) | Cursor::Items(_) => None,
        }
    }

    pub fn next(&mut self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        interpreter.meter.steps(1)?;
        match self {
            Cursor::Generator(generator) => generator.next(interpreter),
            other => other.next_plain(interpreter.meter),
        }
    }

    /// For all but generators, which run the template's code.
    fn next_plain(&mut self, meter: &Meter) -> Result<Option<Value>> {
        Ok(match self {
            Cursor::Empty | Cursor::Generator(_) => None,
            Cursor::Sequence(sequence, at) => {
                *at += 1;
                sequence.items.get(*at - 1).cloned()
            }
            Cursor::Text(text, at) => match text[*at..].chars().next() {
                Some(character) => {
                    *at += character.len_utf8();
                    Some(Value::character(character, meter)?)
                }
                None => None,
            },
            Cursor::Entries(view, dict, at) => {
                *at += 1;
                match (dict.entries().get(*at - 1), view) {
                    (Some((key, _)), View::Keys) => Some(key.clone()),
                    (Some((_, field)), View::Values) => Some(field.clone()),
                    (Some((key, field)), View::Items) => Some(Value::pair(key.clone(), field.clone(), meter)?),
                    (None, _) => None,
                }
            }
            Cursor::Range(range, at) => {
                *at += 1;
                (*at <= range.length()).then(|| Value::Integer(range.at(*at - 1)))
            }
            Cursor::Items(items) => items.next(),
        })
    }
}

/// list(value). Of a generator, this takes all items.
pub fn items_of(value: &Value, interpreter: &mut Interpreter) -> Result<Items> {
    match value {
        Value::List(sequence) | Value::Tuple(sequence) => {
            Items::copy(sequence.items.iter().cloned(), sequence.items.len(), interpreter.meter)
        }
        _ => rest_of(&mut Cursor::of(value)?, interpreter),
    }
}

/// The items of a value that is not a generator.
pub fn plain_items_of(value: &Value, meter: &Meter) -> Result<Items> {
    if matches!(value, Value::Iterator(_)) {
        return Err(failed("a generator has no text: make a list of it"));
    }
    let mut cursor = Cursor::of(value)?;
    Items::collect(std::iter::from_fn(|| cursor.next_plain(meter).transpose()), meter)
}

/// The items that a cursor has not given yet.
pub fn rest_of(cursor: &mut Cursor, interpreter: &mut Interpreter) -> Result<Items> {
    let meter = interpreter.meter;
    Items::collect(std::iter::from_fn(|| cursor.next(interpreter).transpose()), meter)
}
