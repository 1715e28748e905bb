//! Jinja's tests: what follows `is`. Called by the parser, which looks them up, and by the interpreter.

use super::arguments::Arguments;
use super::ast::{Comparison, Operator};
use super::error::{failed, Result};
use super::filters::is_filter;
use super::interpreter::Interpreter;
use super::operators::{binary, compare, equal};
use super::sequences::is_iterable;
use super::string_methods::call_string_method;
use super::text::str_of;
use super::value::Value;

pub type Test = fn(&mut Interpreter, &Value, Arguments) -> Result<bool>;

const TESTS: [(&str, Test); 39] = [
    ("defined", |_, value, arguments| plain(arguments, !matches!(value, Value::Undefined(_)))),
    ("undefined", |_, value, arguments| plain(arguments, matches!(value, Value::Undefined(_)))),
    ("none", |_, value, arguments| plain(arguments, matches!(value, Value::None))),
    ("boolean", |_, value, arguments| plain(arguments, matches!(value, Value::Bool(_)))),
    ("true", |_, value, arguments| plain(arguments, matches!(value, Value::Bool(true)))),
    ("false", |_, value, arguments| plain(arguments, matches!(value, Value::Bool(false)))),
    ("integer", |_, value, arguments| plain(arguments, matches!(value, Value::Integer(_)))),
    ("float", |_, value, arguments| plain(arguments, matches!(value, Value::Float(_)))),
    ("number", |_, value, arguments| plain(arguments, matches!(value, Value::Bool(_) | Value::Integer(_) | Value::Float(_)))),
    ("string", |_, value, arguments| plain(arguments, value.as_text().is_some())),
    ("mapping", |_, value, arguments| plain(arguments, matches!(value, Value::Dict(_)))),
    ("sequence", |_, value, arguments| plain(arguments, is_sequence(value))),
    ("iterable", |_, value, arguments| plain(arguments, is_iterable(value))),
    ("callable", |_, value, arguments| plain(arguments, is_callable(value))),
    ("escaped", |_, value, arguments| plain(arguments, matches!(value, Value::Text { safe: true, .. }))),
    ("filter", |_, value, arguments| plain(arguments, value.as_text().map_or(Ok(false), is_filter)?)),
    ("test", |_, value, arguments| plain(arguments, value.as_text().is_some_and(|name| test_named(name).is_some()))),
    ("odd", |interpreter, value, arguments| remainder_is(interpreter, value, arguments, 1)),
    ("even", |interpreter, value, arguments| remainder_is(interpreter, value, arguments, 0)),
    ("divisibleby", |interpreter, value, arguments| {
        let [number] = arguments.bind("divisibleby", 1, ["num"])?;
        let rest = binary(Operator::Modulo, value, &number.unwrap_or(Value::None), interpreter.meter)?;
        equal(&rest, &Value::Integer(0), interpreter.meter)
    }),
    ("lower", |interpreter, value, arguments| is_case(interpreter, value, "islower", arguments)),
    ("upper", |interpreter, value, arguments| is_case(interpreter, value, "isupper", arguments)),
    ("sameas", same_as),
    ("in", |interpreter, value, arguments| compared(interpreter, value, Comparison::In, arguments)),
    ("==", |interpreter, value, arguments| compared(interpreter, value, Comparison::Equal, arguments)),
    ("eq", |interpreter, value, arguments| compared(interpreter, value, Comparison::Equal, arguments)),
    ("equalto", |interpreter, value, arguments| compared(interpreter, value, Comparison::Equal, arguments)),
    ("!=", |interpreter, value, arguments| compared(interpreter, value, Comparison::NotEqual, arguments)),
    ("ne", |interpreter, value, arguments| compared(interpreter, value, Comparison::NotEqual, arguments)),
    (">", |interpreter, value, arguments| compared(interpreter, value, Comparison::Greater, arguments)),
    ("gt", |interpreter, value, arguments| compared(interpreter, value, Comparison::Greater, arguments)),
    ("greaterthan", |interpreter, value, arguments| compared(interpreter, value, Comparison::Greater, arguments)),
    (">=", |interpreter, value, arguments| compared(interpreter, value, Comparison::GreaterOrEqual, arguments)),
    ("ge", |interpreter, value, arguments| compared(interpreter, value, Comparison::GreaterOrEqual, arguments)),
    ("<", |interpreter, value, arguments| compared(interpreter, value, Comparison::Less, arguments)),
    ("lt", |interpreter, value, arguments| compared(interpreter, value, Comparison::Less, arguments)),
    ("lessthan", |interpreter, value, arguments| compared(interpreter, value, Comparison::Less, arguments)),
    ("<=", |interpreter, value, arguments| compared(interpreter, value, Comparison::LessOrEqual, arguments)),
    ("le", |interpreter, value, arguments| compared(interpreter, value, Comparison::LessOrEqual, arguments)),
];

pub fn test_named(name: &str) -> Option<Test> {
    TESTS.iter().find(|(other, _)| *other == name).map(|&(_, test)| test)
}

fn plain(arguments: Arguments, truth: bool) -> Result<bool> {
    arguments.none("the test").map(|()| truth)
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::Undefined(_) | Value::Text { .. } | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Range(_))
}

fn is_callable(value: &Value) -> bool {
    matches!(value, Value::Undefined(_) | Value::Macro(_) | Value::Function(_) | Value::Method(_) | Value::Loop(_) | Value::Joiner(_))
}

fn remainder_is(interpreter: &Interpreter, value: &Value, arguments: Arguments, wanted: i128) -> Result<bool> {
    arguments.none("the test")?;
    let rest = binary(Operator::Modulo, value, &Value::Integer(2), interpreter.meter)?;
    equal(&rest, &Value::Integer(wanted), interpreter.meter)
}

fn is_case(interpreter: &mut Interpreter, value: &Value, method: &str, arguments: Arguments) -> Result<bool> {
    let text = str_of(value, interpreter.meter)?;
    call_string_method(interpreter, &text, false, method, arguments).map(|truth| truth.is_true())
}

fn compared(interpreter: &mut Interpreter, value: &Value, comparison: Comparison, arguments: Arguments) -> Result<bool> {
    let [other] = arguments.bind("the test", 1, ["_other"])?;
    compare(comparison, value, &other.unwrap_or(Value::None), interpreter)
}

/// Whether two values are one Python object, as far as that does not depend on Python's memory.
fn same_as(interpreter: &mut Interpreter, value: &Value, arguments: Arguments) -> Result<bool> {
    let [other] = arguments.bind("sameas", 1, ["other"])?;
    let other = other.unwrap_or(Value::None);
    if value.type_name() != other.type_name() {
        return Ok(false);
    }
    match value {
        Value::None | Value::Bool(_) | Value::Integer(-5..=256) => equal(value, &other, interpreter.meter),
        other => Err(failed(format!("the test sameas of {} is not supported: use ==", other.type_name()))),
    }
}
