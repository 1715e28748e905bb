//! The arguments of a call, matched with the parameters of a Python function. Used by filters, tests, functions and methods.

use super::ast::Name;
use super::error::{failed, Result};
use super::value::Value;

#[derive(Default, Clone)]
pub struct Arguments {
    pub positional: Vec<Value>,
    pub named: Vec<(Name, Value)>,
}

impl Arguments {
    pub fn of(positional: Vec<Value>) -> Self {
        Arguments { positional, named: Vec::new() }
    }

    /// The value of each parameter, None where the call has none; the first `required` parameters must have one. Parameters that begin with
    /// `_` are given by position only.
    pub fn bind<const N: usize>(self, what: &str, required: usize, parameters: [&str; N]) -> Result<[Option<Value>; N]> {
        if self.positional.len() > N {
            return Err(failed(format!("{what} takes at most {N} arguments, not {}", self.positional.len())));
        }
        let mut values = [const { None }; N];
        for (slot, value) in values.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            let Some(at) = parameters.iter().position(|&parameter| parameter == &*name && !parameter.starts_with('_')) else {
                return Err(failed(format!("{what} has no argument named {name}")));
            };
            if values[at].replace(value).is_some() {
                return Err(failed(format!("{what} has two values for {name}")));
            }
        }
        match values[..required].iter().position(Option::is_none) {
            Some(missing) => Err(failed(format!("{what} needs the argument {}", parameters[missing].trim_start_matches('_')))),
            None => Ok(values),
        }
    }

    pub fn none(self, what: &str) -> Result<()> {
        self.bind::<0>(what, 0, []).map(|_| ())
    }

    /// Removes a named argument.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.named.iter().position(|(other, _)| &**other == name)?;
        Some(self.named.remove(at).1)
    }
}

/// The integer of an argument that Python takes only as one.
pub fn integer(what: &str, value: &Value) -> Result<i128> {
    match value.defined()? {
        Value::Bool(truth) => Ok(i128::from(*truth)),
        Value::Integer(integer) => Ok(*integer),
        other => Err(failed(format!("{what} must be an integer, not {}", other.type_name()))),
    }
}

pub fn integer_or(what: &str, value: &Option<Value>, default: i128) -> Result<i128> {
    value.as_ref().map_or(Ok(default), |value| integer(what, value))
}

/// A number of characters or items; negative ones are 0.
pub fn size(what: &str, value: &Value) -> Result<usize> {
    let size = integer(what, value)?.max(0);
    usize::try_from(size).ok().filter(|&size| size <= 1 << 40).ok_or_else(|| failed(format!("{what} is too large")))
}

pub fn text<'v>(what: &str, value: &'v Value) -> Result<&'v str> {
    match value.defined()?.as_text() {
        Some(text) => Ok(text),
        None => Err(failed(format!("{what} must be a string, not {}", value.type_name()))),
    }
}
