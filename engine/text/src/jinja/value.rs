//! The values of a template: those of JSON, and the Python objects that templates make of them. They live as long as one rendering, in one
//! thread. Used by all files that run a template.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::ast::{For, Macro, Name};
use super::dict::Dict;
use super::error::{failed, Result};
use super::functions::Function;
use super::generators::{Cursor, Generator};
use super::limits::{Meter, NESTING_MAX, OBJECT_BYTES};

/// What a text takes besides its bytes: counters of references and the allocator's part.
const TEXT_BYTES: usize = 40;

#[derive(Clone)]
pub enum Value {
    /// A name or attribute that is not there, and how it was spelled.
    Undefined(Name),
    None,
    Bool(bool),
    Integer(i128),
    Float(f64),
    /// A safe text is Python's Markup: what joins it is HTML-escaped.
    Text {
        text: Name,
        safe: bool,
    },
    List(Rc<Sequence>),
    Tuple(Rc<Sequence>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range(Rc<Range>),
    Iterator(Rc<Generator>),
    /// An index into the interpreter's namespaces.
    Namespace(usize),
    Macro(Rc<Closure>),
    Function(Function),
    /// A method of a value, not yet called.
    Method(Rc<(Value, Name)>),
    Loop(Rc<Loop>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
}

/// Values of which each was charged, for a new list or tuple.
#[derive(Default)]
pub struct Items(Vec<Value>);

impl Items {
    pub fn collect(items: impl IntoIterator<Item = Result<Value>>, meter: &Meter) -> Result<Self> {
        meter.bytes(OBJECT_BYTES)?;
        let mut made = Items::default();
        for item in items {
            made.push(item?, meter)?;
        }
        Ok(made)
    }

    /// A copy of items that are there.
    pub fn copy(items: impl IntoIterator<Item = Value>, count: usize, meter: &Meter) -> Result<Self> {
        meter.steps(count)?;
        meter.bytes(OBJECT_BYTES.saturating_add(count.saturating_mul(size_of::<Value>())))?;
        Ok(Items(items.into_iter().take(count).collect()))
    }

    pub fn push(&mut self, item: Value, meter: &Meter) -> Result<()> {
        meter.steps(1)?;
        meter.bytes(size_of::<Value>())?;
        self.0.push(item);
        Ok(())
    }

    pub fn pop(&mut self) -> Option<Value> {
        self.0.pop()
    }

    /// The items after the first `count`, which stay.
    pub fn split_off(&mut self, count: usize) -> Items {
        Items(self.0.split_off(count.min(self.0.len())))
    }
}

impl Deref for Items {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl DerefMut for Items {
    fn deref_mut(&mut self) -> &mut [Value] {
        &mut self.0
    }
}

impl IntoIterator for Items {
    type Item = Value;
    type IntoIter = std::vec::IntoIter<Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

pub struct Sequence {
    pub items: Items,
    /// Levels of containers, this one included.
    depth: u32,
    /// A tuple of the filter groupby, whose items are also named grouper and list.
    pub is_group: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    Keys,
    Values,
    Items,
}

pub struct Range {
    pub start: i128,
    pub stop: i128,
    /// Not 0.
    pub step: i128,
}

/// A macro and the scope that it was defined in.
pub struct Closure {
    pub definition: Arc<Macro>,
    pub scope: usize,
}

/// The variable `loop`. Its methods are in loops.rs.
pub struct Loop {
    /// None when the loop has ended.
    pub rest: RefCell<Option<Cursor>>,
    /// None until it is known: a generator must be taken for it.
    pub length: Cell<Option<usize>>,
    /// Items before, at and after the index, the last if it was looked at.
    pub previous: RefCell<Option<Value>>,
    pub current: RefCell<Option<Value>>,
    pub next: RefCell<Option<Value>>,
    pub index: Cell<usize>,
    pub level: u32,
    /// The arguments of the last call of loop.changed.
    pub changed: RefCell<Option<Items>>,
    /// The loop and its scope, if it is recursive.
    pub recursion: Option<Recursion>,
    pub depth: u32,
}

pub struct Recursion {
    pub statement: Arc<For>,
    pub scope: usize,
}

pub struct Cycler {
    pub items: Rc<Sequence>,
    pub position: Cell<usize>,
}

pub struct Joiner {
    pub separator: Value,
    pub used: Cell<bool>,
}

impl Range {
    pub fn length(&self) -> usize {
        let (from, to) = if self.step > 0 { (self.start, self.stop) } else { (self.stop, self.start) };
        match to > from {
            true => usize::try_from((to.abs_diff(from) - 1) / self.step.unsigned_abs()).map_or(usize::MAX, |steps| steps.saturating_add(1)),
            false => 0,
        }
    }

    /// The item at an index below the length.
    pub fn at(&self, index: usize) -> i128 {
        self.start + index as i128 * self.step
    }

    /// Where the range has this integer.
    pub fn position(&self, integer: i128) -> Option<usize> {
        let is_within =
            if self.step > 0 { (self.start..self.stop).contains(&integer) } else { self.stop < integer && integer <= self.start };
        let distance = integer.abs_diff(self.start);
        (is_within && distance % self.step.unsigned_abs() == 0).then(|| (distance / self.step.unsigned_abs()) as usize)
    }
}

pub fn checked(depth: u32) -> Result<u32> {
    if depth >= NESTING_MAX {
        return Err(failed(format!("values of more than {NESTING_MAX} levels are not supported")));
    }
    Ok(depth + 1)
}

pub fn depth_of<'v>(items: impl IntoIterator<Item = &'v Value>) -> u32 {
    items.into_iter().map(Value::depth).max().unwrap_or(0)
}

impl Value {
    pub fn text(text: impl Into<Name>, meter: &Meter) -> Result<Value> {
        let text = text.into();
        meter.bytes(TEXT_BYTES + text.len())?;
        Ok(Value::shared(text))
    }

    /// A text that was charged, or that the program has.
    pub fn shared(text: Name) -> Value {
        Value::Text { text, safe: false }
    }

    pub fn character(character: char, meter: &Meter) -> Result<Value> {
        Value::text(&*character.encode_utf8(&mut [0; 4]), meter)
    }

    /// The text with the mark of another one.
    pub fn marked(self, safe: bool) -> Value {
        match self {
            Value::Text { text, .. } => Value::Text { text, safe },
            other => other,
        }
    }

    pub fn undefined(name: impl Into<Name>) -> Value {
        Value::Undefined(name.into())
    }

    pub fn sequence(mut items: Items, is_group: bool) -> Result<Rc<Sequence>> {
        // What is charged is what the items take.
        items.0.shrink_to_fit();
        let depth = checked(depth_of(items.iter()))?;
        Ok(Rc::new(Sequence { items, depth, is_group }))
    }

    pub fn list(items: Items) -> Result<Value> {
        Value::sequence(items, false).map(Value::List)
    }

    pub fn tuple(items: Items) -> Result<Value> {
        Value::sequence(items, false).map(Value::Tuple)
    }

    pub fn pair(first: Value, second: Value, meter: &Meter) -> Result<Value> {
        Value::tuple(Items::copy([first, second], 2, meter)?)
    }

    pub fn group(grouper: Value, items: Items, meter: &Meter) -> Result<Value> {
        Value::sequence(Items::copy([grouper, Value::list(items)?], 2, meter)?, true).map(Value::Tuple)
    }

    pub fn dict(dict: Dict, meter: &Meter) -> Result<Value> {
        meter.bytes(OBJECT_BYTES)?;
        checked(dict.depth())?;
        Ok(Value::Dict(Rc::new(dict)))
    }

    pub fn range(range: Range, meter: &Meter) -> Result<Value> {
        meter.bytes(OBJECT_BYTES)?;
        Ok(Value::Range(Rc::new(range)))
    }

    pub fn depth(&self) -> u32 {
        match self {
            Value::List(sequence) | Value::Tuple(sequence) => sequence.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth() + 1,
            Value::Iterator(generator) => generator.depth(),
            Value::Method(method) => method.0.depth(),
            Value::Cycler(cycler) => cycler.items.depth,
            Value::Loop(state) => state.depth,
            _ => 0,
        }
    }

    /// The integer of an integer or a boolean.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Value::Bool(truth) => Some(i128::from(*truth)),
            Value::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    /// The bytes of a text, 0 for other values.
    pub fn text_length(&self) -> usize {
        self.as_text().map_or(0, str::len)
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// bool(value).
    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(truth) => *truth,
            Value::Integer(integer) => *integer != 0,
            Value::Float(real) => *real != 0.0,
            Value::Text { text, .. } => !text.is_empty(),
            Value::List(sequence) | Value::Tuple(sequence) => !sequence.items.is_empty(),
            Value::Dict(dict) | Value::View(_, dict) => !dict.entries().is_empty(),
            Value::Range(range) => range.length() > 0,
            _ => true,
        }
    }

    /// Whether the value is a text that is marked as safe.
    pub fn is_safe(&self) -> bool {
        matches!(self, Value::Text { safe: true, .. })
    }

    /// The value's type with its article, for errors.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "an undefined value",
            Value::None => "none",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Text { .. } => "a string",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Dict(_) => "a dict",
            Value::View(..) => "a view of a dict",
            Value::Range(_) => "a range",
            Value::Iterator(_) => "a generator",
            Value::Namespace(_) => "a namespace",
            Value::Macro(_) => "a macro",
            Value::Function(_) => "a function",
            Value::Method(_) => "a method",
            Value::Loop(_) => "a loop",
            Value::Cycler(_) => "a cycler",
            Value::Joiner(_) => "a joiner",
        }
    }

    /// An error if the value is undefined: nearly all of Python's operations fail on jinja2's Undefined.
    pub fn defined(&self) -> Result<&Value> {
        match self {
            Value::Undefined(name) => Err(undefined_error(name)),
            _ => Ok(self),
        }
    }

    pub fn from_json(json: &Json, meter: &Meter) -> Result<Value> {
        Ok(match json {
            Json::Null => Value::None,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(integer), _) => Value::Integer(integer.into()),
                (_, Some(integer)) => Value::Integer(integer.into()),
                _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::text(text.as_str(), meter)?,
            Json::Array(items) => Value::list(Items::collect(items.iter().map(|item| Value::from_json(item, meter)), meter)?)?,
            Json::Object(fields) => {
                let mut dict = Dict::default();
                for (key, field) in fields {
                    dict.insert(Value::text(key.as_str(), meter)?, Value::from_json(field, meter)?, meter)?;
                }
                Value::dict(dict, meter)?
            }
        })
    }
}

pub fn undefined_error(name: &str) -> super::error::Error {
    failed(format!("undefined value: {name} is not defined"))
}
