//! `value.name` and `value[key]`, as jinja2's sandbox looks them up. Called by the interpreter and by filters with attributes.

use std::rc::Rc;

use super::ast::Name;
use super::error::Result;
use super::interpreter::Interpreter;
use super::limits::{Meter, OBJECT_BYTES};
use super::methods::{method_of, Access};
use super::sequences::index_within;
use super::value::{undefined_error, Items, Value};

/// `value.name`: an attribute of the Python object, else an item.
pub fn attribute(interpreter: &mut Interpreter, value: &Value, name: &Name) -> Result<Value> {
    if let Some(found) = own_attribute(interpreter, value, name)? {
        return Ok(found);
    }
    Ok(item_at(value, &Value::shared(name.clone()), interpreter.meter)?.unwrap_or_else(|| Value::undefined(name.clone())))
}

/// `value[key]`: an item, else an attribute of the Python object.
pub fn item(interpreter: &mut Interpreter, value: &Value, key: &Value) -> Result<Value> {
    if let Some(found) = item_at(value.defined()?, key, interpreter.meter)? {
        return Ok(found);
    }
    let Value::Text { text: name, .. } = key else { return Ok(Value::undefined("an item")) };
    Ok(own_attribute(interpreter, value, name)?.unwrap_or_else(|| Value::undefined(name.clone())))
}

fn item_at(value: &Value, key: &Value, meter: &Meter) -> Result<Option<Value>> {
    let within = |length: usize| key.as_integer().and_then(|index| index_within(index, length));
    Ok(match value {
        // A key that no dict can have is only missing.
        Value::Dict(dict) => dict.get(key, meter).ok().flatten().cloned(),
        Value::List(sequence) | Value::Tuple(sequence) => within(sequence.items.len()).map(|at| sequence.items[at].clone()),
        Value::Text { text, safe } if key.as_integer().is_some() => {
            meter.read(text.len().saturating_mul(4))?;
            match within(text.chars().count()).and_then(|at| text.chars().nth(at)) {
                Some(character) => Some(Value::character(character, meter)?.marked(*safe)),
                None => None,
            }
        }
        Value::Range(range) => within(range.length()).map(|at| Value::Integer(range.at(at))),
        _ => None,
    })
}

/// The names with two underscores that Python's dicts have; a dict's item of another name is found.
const DICT_NAMES: [&str; 35] = [
    "__class__",
    "__class_getitem__",
    "__contains__",
    "__delattr__",
    "__delitem__",
    "__dir__",
    "__doc__",
    "__eq__",
    "__format__",
    "__ge__",
    "__getattribute__",
    "__getitem__",
    "__getstate__",
    "__gt__",
    "__hash__",
    "__init__",
    "__init_subclass__",
    "__ior__",
    "__iter__",
    "__le__",
    "__len__",
    "__lt__",
    "__ne__",
    "__new__",
    "__or__",
    "__reduce__",
    "__reduce_ex__",
    "__repr__",
    "__reversed__",
    "__ror__",
    "__setattr__",
    "__setitem__",
    "__sizeof__",
    "__str__",
    "__subclasshook__",
];

/// getattr(value, name) within the sandbox. None: there is no such attribute.
pub fn own_attribute(interpreter: &mut Interpreter, value: &Value, name: &Name) -> Result<Option<Value>> {
    // What the sandbox hides is undefined, and so is everything of Python's own.
    if name.starts_with("__") {
        return Ok(match value {
            Value::Undefined(_) => return Err(undefined_error(name)),
            Value::Dict(_) if !DICT_NAMES.contains(&&**name) => None,
            _ => Some(Value::undefined(name.clone())),
        });
    }
    let found = match value {
        Value::Undefined(undefined) => return Err(undefined_error(undefined)),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => number_attribute(value, name),
        Value::Namespace(id) => interpreter.namespace_get(*id, name),
        Value::Loop(state) => state.attribute(name, interpreter)?,
        Value::Macro(closure) => match &**name {
            "name" => Some(Value::shared(closure.definition.name.clone())),
            "arguments" => {
                let names = closure.definition.parameters.iter().map(|(name, _)| Ok(Value::shared(name.clone())));
                Some(Value::tuple(Items::collect(names, interpreter.meter)?)?)
            }
            "catch_kwargs" => Some(Value::Bool(closure.definition.takes_named)),
            "catch_varargs" => Some(Value::Bool(closure.definition.takes_positional)),
            "caller" => Some(Value::Bool(closure.definition.takes_caller)),
            _ => None,
        },
        Value::Cycler(cycler) if &**name == "current" => Some(cycler.current()),
        Value::Tuple(tuple) if tuple.is_group && &**name == "grouper" => Some(tuple.items[0].clone()),
        Value::Tuple(tuple) if tuple.is_group && &**name == "list" => Some(tuple.items[1].clone()),
        Value::Range(range) => match &**name {
            "start" => Some(Value::Integer(range.start)),
            "stop" => Some(Value::Integer(range.stop)),
            "step" => Some(Value::Integer(range.step)),
            _ => None,
        },
        _ => None,
    };
    match found {
        Some(found) => Ok(Some(found)),
        None => bound_method(value, name, interpreter.meter),
    }
}

/// A method that is not called yet.
fn bound_method(value: &Value, name: &Name, meter: &Meter) -> Result<Option<Value>> {
    Ok(match method_of(value, name) {
        None => None,
        // The sandbox is immutable: a method that changes its object is not there.
        Some(Access::Hidden) => Some(Value::undefined(name.clone())),
        Some(Access::Callable) => {
            meter.bytes(OBJECT_BYTES)?;
            Some(Value::Method(Rc::new((value.clone(), name.clone()))))
        }
    })
}

fn number_attribute(value: &Value, name: &str) -> Option<Value> {
    match (name, value.as_integer(), value) {
        ("real" | "numerator", Some(integer), _) => Some(Value::Integer(integer)),
        ("imag", Some(_), _) => Some(Value::Integer(0)),
        ("denominator", Some(_), _) => Some(Value::Integer(1)),
        ("real", None, Value::Float(real)) => Some(Value::Float(*real)),
        ("imag", None, Value::Float(_)) => Some(Value::Float(0.0)),
        _ => None,
    }
}
