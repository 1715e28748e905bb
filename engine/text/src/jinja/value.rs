//! The values of a template: those of JSON, and the Python objects that templates make of them. They live as long as one rendering, in one
//! thread. Used by all files that run a template.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::ast::{For, Macro, Name};
use super::error::{failed, Result};
use super::functions::Function;
use super::limits::NESTING_MAX;

/// Items in the tuples within one key of a dict.
const KEY_ITEMS_MAX: usize = 1000;

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
    Range(Range),
    /// A generator: what was taken is gone.
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

pub struct Sequence {
    pub items: Vec<Value>,
    /// Levels of containers, this one included.
    depth: u32,
    /// A tuple of the filter groupby, whose items are also named grouper and list.
    pub is_group: bool,
}

#[derive(Default)]
pub struct Dict {
    pub entries: Vec<(Value, Value)>,
    index: HashMap<Key, usize>,
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

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    Keys,
    Values,
    Items,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub start: i128,
    pub stop: i128,
    pub step: i128,
}

pub struct Generator {
    pub items: RefCell<VecDeque<Value>>,
    depth: u32,
}

/// A macro and the scope that it was defined in.
pub struct Closure {
    pub definition: Arc<Macro>,
    pub scope: usize,
}

/// The variable `loop`.
pub struct Loop {
    pub items: Vec<Value>,
    pub index: std::cell::Cell<usize>,
    pub level: u32,
    /// The arguments of the last call of loop.changed.
    pub changed: RefCell<Option<Vec<Value>>>,
    /// The loop and its scope, if it is recursive.
    pub recursion: Option<Recursion>,
}

pub struct Recursion {
    pub statement: Arc<For>,
    pub scope: usize,
}

pub struct Cycler {
    pub items: Vec<Value>,
    pub position: std::cell::Cell<usize>,
}

pub struct Joiner {
    pub separator: Name,
    pub used: std::cell::Cell<bool>,
}

impl Range {
    pub fn length(&self) -> usize {
        let span = if self.step > 0 { self.stop - self.start } else { self.start - self.stop };
        let step = self.step.abs();
        usize::try_from((span + step - 1).div_euclid(step)).unwrap_or(0)
    }

    pub fn items(self) -> impl DoubleEndedIterator<Item = Value> {
        (0..self.length()).map(move |index| Value::Integer(self.start + index as i128 * self.step))
    }
}

impl Dict {
    /// None if the dict has no such key; an error if no dict can have it.
    pub fn get(&self, key: &Value) -> Result<Option<&Value>> {
        if matches!(key, Value::Undefined(_)) {
            return Ok(None);
        }
        Ok(self.index.get(&key_of(key)?).map(|&at| &self.entries[at].1))
    }

    pub fn get_text(&self, key: &str) -> Option<&Value> {
        self.index.get(&Key::Text(Arc::from(key))).map(|&at| &self.entries[at].1)
    }

    pub fn insert(&mut self, key: Value, value: Value) -> Result<()> {
        self.depth = self.depth.max(value.depth()).max(key.depth());
        match self.index.entry(key_of(&key)?) {
            std::collections::hash_map::Entry::Occupied(found) => self.entries[*found.get()].1 = value,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }
}

fn key_of(value: &Value) -> Result<Key> {
    key_within(value, &mut KEY_ITEMS_MAX.clone())
}

/// `left`: how many more items the key may have.
fn key_within(value: &Value, left: &mut usize) -> Result<Key> {
    *left = left.checked_sub(1).ok_or_else(|| failed(format!("a key of more than {KEY_ITEMS_MAX} items")))?;
    Ok(match value {
        Value::None => Key::None,
        Value::Bool(truth) => Key::Integer(i128::from(*truth)),
        Value::Integer(integer) => Key::Integer(*integer),
        Value::Float(real) if real.fract() == 0.0 && real.abs() < 1e38 => Key::Integer(*real as i128),
        Value::Float(real) if !real.is_nan() => Key::Float(real.to_bits()),
        Value::Text { text, .. } => Key::Text(text.clone()),
        Value::Tuple(tuple) => Key::Tuple(tuple.items.iter().map(|item| key_within(item, left)).collect::<Result<_>>()?),
        other => return Err(failed(format!("{} cannot be a key", other.type_name()))),
    })
}

fn checked(depth: u32) -> Result<u32> {
    if depth >= NESTING_MAX {
        return Err(failed(format!("values of more than {NESTING_MAX} levels")));
    }
    Ok(depth + 1)
}

fn depth_of(items: &[Value]) -> u32 {
    items.iter().map(Value::depth).max().unwrap_or(0)
}

impl Value {
    pub fn text(text: impl Into<Name>) -> Value {
        Value::Text { text: text.into(), safe: false }
    }

    pub fn safe_text(text: impl Into<Name>) -> Value {
        Value::Text { text: text.into(), safe: true }
    }

    pub fn undefined(name: impl Into<Name>) -> Value {
        Value::Undefined(name.into())
    }

    pub fn list(items: Vec<Value>) -> Result<Value> {
        let depth = checked(depth_of(&items))?;
        Ok(Value::List(Rc::new(Sequence { items, depth, is_group: false })))
    }

    pub fn tuple(items: Vec<Value>) -> Result<Value> {
        let depth = checked(depth_of(&items))?;
        Ok(Value::Tuple(Rc::new(Sequence { items, depth, is_group: false })))
    }

    pub fn group(grouper: Value, items: Vec<Value>) -> Result<Value> {
        let items = vec![grouper, Value::list(items)?];
        let depth = checked(depth_of(&items))?;
        Ok(Value::Tuple(Rc::new(Sequence { items, depth, is_group: true })))
    }

    pub fn dict(mut dict: Dict) -> Result<Value> {
        dict.depth = checked(dict.depth)?;
        Ok(Value::Dict(Rc::new(dict)))
    }

    pub fn generator(items: Vec<Value>) -> Result<Value> {
        let depth = checked(depth_of(&items))?;
        Ok(Value::Iterator(Rc::new(Generator { items: RefCell::new(items.into()), depth })))
    }

    fn depth(&self) -> u32 {
        match self {
            Value::List(sequence) | Value::Tuple(sequence) => sequence.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth,
            Value::Iterator(generator) => generator.depth,
            Value::Method(method) => method.0.depth(),
            Value::Cycler(cycler) => depth_of(&cycler.items).saturating_add(1),
            Value::Loop(state) => depth_of(&state.items).saturating_add(1),
            _ => 0,
        }
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
            Value::Dict(dict) | Value::View(_, dict) => !dict.entries.is_empty(),
            Value::Range(range) => range.length() > 0,
            _ => true,
        }
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

    pub fn from_json(json: &Json) -> Result<Value> {
        Ok(match json {
            Json::Null => Value::None,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(integer), _) => Value::Integer(integer.into()),
                (_, Some(integer)) => Value::Integer(integer.into()),
                _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::text(text.as_str()),
            Json::Array(items) => Value::list(items.iter().map(Value::from_json).collect::<Result<_>>()?)?,
            Json::Object(fields) => {
                let mut dict = Dict::default();
                for (key, field) in fields {
                    dict.insert(Value::text(key.as_str()), Value::from_json(field)?)?;
                }
                Value::dict(dict)?
            }
        })
    }
}

pub fn undefined_error(name: &str) -> super::error::Error {
    failed(format!("undefined value: {name} is not defined"))
}
