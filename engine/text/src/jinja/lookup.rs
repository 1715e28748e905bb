//! `value.name` and `value[key]`, as jinja2's sandbox looks them up. Called by the interpreter and by filters with attributes.

use std::rc::Rc;

use super::ast::Name;
use super::error::Result;
use super::interpreter::Interpreter;
use super::methods::method_of;
use super::sequences::index_within;
use super::value::{undefined_error, Value};

/// `value.name`: an attribute of the Python object, else an item.
pub fn attribute(interpreter: &Interpreter, value: &Value, name: &Name) -> Result<Value> {
    if let Some(found) = own_attribute(interpreter, value, name)? {
        return Ok(found);
    }
    Ok(item_at(value, &Value::Text { text: name.clone(), safe: false })?.unwrap_or_else(|| Value::undefined(name.clone())))
}

/// `value[key]`: an item, else an attribute of the Python object.
pub fn item(interpreter: &Interpreter, value: &Value, key: &Value) -> Result<Value> {
    if let Some(found) = item_at(value.defined()?, key)? {
        return Ok(found);
    }
    let Value::Text { text: name, .. } = key else { return Ok(Value::undefined("an item")) };
    Ok(own_attribute(interpreter, value, name)?.unwrap_or_else(|| Value::undefined(name.clone())))
}

fn item_at(value: &Value, key: &Value) -> Result<Option<Value>> {
    let index = match key {
        Value::Bool(truth) => Some(i128::from(*truth)),
        Value::Integer(integer) => Some(*integer),
        _ => None,
    };
    let within = |length: usize| index.and_then(|index| index_within(index, length));
    Ok(match value {
        // A key that no dict can have is only missing.
        Value::Dict(dict) => dict.get(key).ok().flatten().cloned(),
        Value::List(sequence) | Value::Tuple(sequence) => within(sequence.items.len()).map(|at| sequence.items[at].clone()),
        Value::Text { text, safe } => match index {
            // ASCII needs no walk over the characters.
            Some(_) if text.is_ascii() => within(text.len()).map(|at| Value::Text { text: text[at..at + 1].into(), safe: *safe }),
            Some(_) => within(text.chars().count())
                .and_then(|at| text.chars().nth(at))
                .map(|character| Value::Text { text: character.to_string().into(), safe: *safe }),
            None => None,
        },
        Value::Range(range) => within(range.length()).map(|at| Value::Integer(range.start + at as i128 * range.step)),
        _ => None,
    })
}

/// getattr(value, name) within the sandbox. None: there is no such attribute.
pub fn own_attribute(interpreter: &Interpreter, value: &Value, name: &Name) -> Result<Option<Value>> {
    // What the sandbox hides is undefined, and so is everything of Python's own.
    if name.starts_with("__") {
        return Ok(match value {
            Value::Undefined(_) => return Err(undefined_error(name)),
            _ => Some(Value::undefined(name.clone())),
        });
    }
    Ok(match value {
        Value::Undefined(undefined) => return Err(undefined_error(undefined)),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => number_attribute(value, name),
        Value::Namespace(id) => interpreter.namespace_get(*id, name),
        Value::Loop(state) => match &**name {
            "index" => Some(Value::Integer(state.index.get() as i128 + 1)),
            "index0" => Some(Value::Integer(state.index.get() as i128)),
            "revindex" => Some(Value::Integer((state.items.len() - state.index.get()) as i128)),
            "revindex0" => Some(Value::Integer((state.items.len() - state.index.get()) as i128 - 1)),
            "first" => Some(Value::Bool(state.index.get() == 0)),
            "last" => Some(Value::Bool(state.index.get() + 1 == state.items.len())),
            "length" => Some(Value::Integer(state.items.len() as i128)),
            "depth" => Some(Value::Integer(i128::from(state.level) + 1)),
            "depth0" => Some(Value::Integer(state.level.into())),
            "previtem" => Some(match state.index.get().checked_sub(1) {
                Some(at) => state.items[at].clone(),
                None => Value::undefined("there is no previous item; loop.previtem"),
            }),
            "nextitem" => {
                let next = state.items.get(state.index.get() + 1).cloned();
                Some(next.unwrap_or_else(|| Value::undefined("there is no next item; loop.nextitem")))
            }
            _ => None,
        },
        Value::Macro(closure) => match &**name {
            "name" => Some(Value::text(closure.definition.name.clone())),
            "arguments" => Some(Value::tuple(closure.definition.parameters.iter().map(|(name, _)| Value::text(name.clone())).collect())?),
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
    }
    .or_else(|| bound_method(value, name)))
}

fn bound_method(value: &Value, name: &Name) -> Option<Value> {
    match method_of(value, name)? {
        // The sandbox is immutable: a method that changes its object is not there.
        super::methods::Access::Hidden => Some(Value::undefined(name.clone())),
        super::methods::Access::Callable => Some(Value::Method(Rc::new((value.clone(), name.clone())))),
    }
}

fn number_attribute(value: &Value, name: &str) -> Option<Value> {
    let integer = match value {
        Value::Bool(truth) => Some(i128::from(*truth)),
        Value::Integer(integer) => Some(*integer),
        _ => None,
    };
    match (name, integer, value) {
        ("real" | "numerator", Some(integer), _) => Some(Value::Integer(integer)),
        ("imag", Some(_), _) => Some(Value::Integer(0)),
        ("denominator", Some(_), _) => Some(Value::Integer(1)),
        ("real", None, Value::Float(real)) => Some(Value::Float(*real)),
        ("imag", None, Value::Float(_)) => Some(Value::Float(0.0)),
        _ => None,
    }
}
