//! The arguments of a call, matched with the parameters of a Python function. Used by filters, tests, functions and methods.

use super::ast::Name;
use super::error::{failed, Result};
use super::limits::Meter;
use super::value::{depth_of, Items, Value};

/// What a named argument takes.
pub const NAMED_BYTES: usize = size_of::<(Name, Value)>();

#[derive(Default)]
pub struct Arguments {
    pub positional: Items,
    pub named: Vec<(Name, Value)>,
}

impl Arguments {
    pub fn one(value: Value, meter: &Meter) -> Result<Self> {
        Ok(Arguments { positional: Items::copy([value], 1, meter)?, named: Vec::new() })
    }

    pub fn copy(&self, meter: &Meter) -> Result<Self> {
        meter.steps(self.named.len())?;
        meter.bytes(self.named.len().saturating_mul(NAMED_BYTES))?;
        let positional = Items::copy(self.positional.iter().cloned(), self.positional.len(), meter)?;
        Ok(Arguments { positional, named: self.named.clone() })
    }

    /// Levels of containers in the values.
    pub fn depth(&self) -> u32 {
        depth_of(self.positional.iter().chain(self.named.iter().map(|(_, value)| value)))
    }

    /// Removes the first argument by position.
    pub fn take_first(&mut self) -> Option<Value> {
        let rest = self.positional.split_off(1);
        std::mem::replace(&mut self.positional, rest).pop()
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
}

/// The integer of an argument that Python takes only as one.
pub fn integer(what: &str, value: &Value) -> Result<i128> {
    value.defined()?.as_integer().ok_or_else(|| failed(format!("{what} must be an integer, not {}", value.type_name())))
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

/// The truth of an argument that is false where the call has none.
pub fn is_true(flag: Option<Value>) -> bool {
    flag.is_some_and(|flag| flag.is_true())
}
