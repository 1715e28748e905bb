//! The methods of Python's objects. A name that is not in these lists is no method; string_methods.rs has those of strings. Called by
//! lookup.rs and the interpreter.

use super::arguments::Arguments;
use super::dict::Dict;
use super::error::{failed, Result};
use super::functions::Function;
use super::generators::items_of;
use super::interpreter::Interpreter;
use super::limits::Meter;
use super::operators::equal_items;
use super::string_methods::{call_string_method, STRING_METHODS};
use super::value::{Range, Value, View};

/// What the immutable sandbox lets a template do with a method.
pub enum Access {
    Callable,
    Hidden,
}

const LIST_CHANGES: [&str; 8] = ["append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"];
const DICT_CHANGES: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];

pub fn method_of(value: &Value, name: &str) -> Option<Access> {
    let (methods, changes): (&[&str], &[&str]) = match value {
        Value::Text { .. } => (&STRING_METHODS, &[]),
        Value::List(_) => (&["copy", "count", "index"], &LIST_CHANGES),
        Value::Tuple(_) | Value::Range(_) => (&["count", "index"], &[]),
        Value::Function(Function::Dict) => (&["fromkeys"], &[]),
        Value::Dict(_) => (&["copy", "fromkeys", "get", "items", "keys", "values"], &DICT_CHANGES),
        Value::View(View::Keys | View::Items, _) => (&["isdisjoint", "mapping"], &[]),
        Value::View(View::Values, _) => (&["mapping"], &[]),
        Value::Bool(_) | Value::Integer(_) => {
            (&["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"], &[])
        }
        Value::Float(_) => (&["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"], &[]),
        Value::Iterator(_) => (&["close", "send", "throw"], &[]),
        Value::Loop(_) => (&["changed", "cycle"], &[]),
        Value::Cycler(_) => (&["next", "reset"], &[]),
        _ => (&[], &[]),
    };
    if changes.contains(&name) {
        Some(Access::Hidden)
    } else {
        methods.contains(&name).then_some(Access::Callable)
    }
}

pub fn call_method(interpreter: &mut Interpreter, value: &Value, name: &str, arguments: Arguments) -> Result<Value> {
    match (value, name) {
        (Value::Text { text, safe }, _) => call_string_method(interpreter, text, *safe, name, arguments),
        (Value::List(sequence) | Value::Tuple(sequence), "index" | "count") => search(&sequence.items, name, arguments, interpreter.meter),
        (Value::List(_), "copy") => {
            arguments.none("copy")?;
            Ok(value.clone())
        }
        (Value::Range(range), "index" | "count") => search_range(range, name, arguments),
        (Value::Dict(dict), "get") => {
            let [key, default] = arguments.bind("get", 1, ["_key", "_default"])?;
            let found = dict.get(&key.unwrap_or(Value::None), interpreter.meter)?.cloned();
            Ok(found.or(default).unwrap_or(Value::None))
        }
        (Value::Dict(dict), "keys" | "values" | "items" | "copy") => {
            arguments.none(name)?;
            Ok(match name {
                "keys" => Value::View(View::Keys, dict.clone()),
                "values" => Value::View(View::Values, dict.clone()),
                "items" => Value::View(View::Items, dict.clone()),
                _ => value.clone(),
            })
        }
        (Value::Dict(_) | Value::Function(Function::Dict), "fromkeys") => {
            let [keys, value] = arguments.bind("fromkeys", 1, ["_iterable", "_value"])?;
            let value = value.unwrap_or(Value::None);
            let mut dict = Dict::default();
            for key in items_of(keys.unwrap_or(Value::None).defined()?, interpreter)? {
                dict.insert(key, value.clone(), interpreter.meter)?;
            }
            Value::dict(dict, interpreter.meter)
        }
        (Value::Float(real), "is_integer") => {
            arguments.none(name)?;
            Ok(Value::Bool(real.is_finite() && real.fract() == 0.0))
        }
        (Value::Integer(integer), "bit_length") => {
            arguments.none(name)?;
            Ok(Value::Integer((128 - integer.unsigned_abs().leading_zeros()).into()))
        }
        (Value::Loop(state), "cycle") => match arguments.positional.len() {
            0 => Err(failed("loop.cycle needs items")),
            count if arguments.named.is_empty() => Ok(arguments.positional[(state.index.get() - 1) % count].clone()),
            _ => Err(failed("loop.cycle has no named arguments")),
        },
        (Value::Loop(state), "changed") if arguments.named.is_empty() => {
            state.has_changed(arguments.positional, interpreter.meter).map(Value::Bool)
        }
        (Value::Cycler(cycler), "next") => {
            arguments.none(name)?;
            Ok(cycler.next())
        }
        (Value::Cycler(cycler), "reset") => {
            arguments.none(name)?;
            cycler.position.set(0);
            Ok(Value::None)
        }
        _ => Err(failed(format!("method {name} of {} is not supported", value.type_name()))),
    }
}

/// list.index and list.count.
fn search(items: &[Value], name: &str, arguments: Arguments, meter: &Meter) -> Result<Value> {
    let [wanted] = arguments.bind(name, 1, ["_value"])?;
    let wanted = wanted.unwrap_or(Value::None);
    let mut count = 0;
    for (index, item) in items.iter().enumerate() {
        if equal_items(item, &wanted, meter)? {
            if name == "index" {
                return found(name, Some(index), 1);
            }
            count += 1;
        }
    }
    found(name, None, count)
}

fn search_range(range: &Range, name: &str, arguments: Arguments) -> Result<Value> {
    let [wanted] = arguments.bind(name, 1, ["_value"])?;
    let integer = match wanted.unwrap_or(Value::None) {
        Value::Float(real) if real.fract() == 0.0 && real.abs() < 1e38 => Some(real as i128),
        other => other.as_integer(),
    };
    let position = integer.and_then(|integer| range.position(integer));
    found(name, position, i128::from(position.is_some()))
}

fn found(name: &str, position: Option<usize>, count: i128) -> Result<Value> {
    match (name, position) {
        ("index", Some(position)) => Ok(Value::Integer(position as i128)),
        ("index", None) => Err(failed("index: the value is not in the list")),
        _ => Ok(Value::Integer(count)),
    }
}
