//! The functions that templates can call: Jinja's globals, and those of transformers. Called by the interpreter.

use std::cell::Cell;
use std::ffi::CString;
use std::fmt::Write;
use std::rc::Rc;

use super::arguments::{integer, text, Arguments};
use super::ast::Name;
use super::dict::Dict;
use super::error::{failed, Error, Result};
use super::generators::items_of;
use super::interpreter::Interpreter;
use super::limits::{Meter, OBJECT_BYTES};
use super::text::str_of;
use super::value::{Cycler, Joiner, Range, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
}

pub const FUNCTIONS: [(&str, Function); 7] = [
    ("range", Function::Range),
    ("dict", Function::Dict),
    ("namespace", Function::Namespace),
    ("cycler", Function::Cycler),
    ("joiner", Function::Joiner),
    ("raise_exception", Function::RaiseException),
    ("strftime_now", Function::StrftimeNow),
];

/// The sandbox's limit on the length of a range.
const RANGE_MAX: usize = 100_000;

impl Function {
    pub fn call(self, interpreter: &mut Interpreter, arguments: Arguments) -> Result<Value> {
        let meter = interpreter.meter;
        match self {
            Function::Range => range(arguments, meter),
            Function::Dict => Value::dict(dict(interpreter, arguments)?, meter),
            Function::Namespace => {
                let mut names = Vec::new();
                for (key, value) in dict(interpreter, arguments)?.entries() {
                    names.push((Name::from(text("the name in a namespace", key)?), value.clone()));
                }
                interpreter.new_namespace(names)
            }
            Function::Cycler => {
                if arguments.positional.is_empty() || !arguments.named.is_empty() {
                    return Err(failed("cycler needs items, without names"));
                }
                meter.bytes(OBJECT_BYTES)?;
                let items = Value::sequence(arguments.positional, false)?;
                Ok(Value::Cycler(Rc::new(Cycler { items, position: Cell::new(0) })))
            }
            Function::Joiner => {
                let [separator] = arguments.bind("joiner", 0, ["sep"])?;
                let separator = match &separator {
                    None => ", ",
                    Some(separator) => text("the separator of joiner", separator)?,
                };
                let separator = Value::text(separator, meter)?;
                Ok(Value::Joiner(Rc::new(Joiner { separator, used: Cell::new(false) })))
            }
            Function::RaiseException => {
                let [message] = arguments.bind("raise_exception", 1, ["message"])?;
                Err(Error::raised(str_of(&message.unwrap_or(Value::None), meter)?.to_string()))
            }
            Function::StrftimeNow => {
                let [format] = arguments.bind("strftime_now", 1, ["format"])?;
                Value::text(strftime_now(text("the format of strftime_now", &format.unwrap_or(Value::None))?)?, meter)
            }
        }
    }
}

fn range(arguments: Arguments, meter: &Meter) -> Result<Value> {
    let given = arguments.bind("range", 1, ["_start", "_stop", "_step"])?;
    let mut numbers = Vec::new();
    for value in given.iter().flatten() {
        let number = integer("an argument of range", value)?;
        if number.abs() > 1 << 62 {
            return Err(failed("an argument of range is too large"));
        }
        numbers.push(number);
    }
    let range = match numbers[..] {
        [stop] => Range { start: 0, stop, step: 1 },
        [start, stop] => Range { start, stop, step: 1 },
        [start, stop, step] => Range { start, stop, step },
        _ => return Err(failed("range needs an argument")),
    };
    if range.step == 0 {
        return Err(failed("a range's step cannot be zero"));
    }
    if range.length() > RANGE_MAX {
        return Err(failed(format!("a range has at most {RANGE_MAX} items")));
    }
    Value::range(range, meter)
}

/// dict(mapping or pairs, name=value, ...).
fn dict(interpreter: &mut Interpreter, mut arguments: Arguments) -> Result<Dict> {
    let meter = interpreter.meter;
    let mut dict = Dict::default();
    let named = std::mem::take(&mut arguments.named);
    let [from] = arguments.bind("dict", 0, ["_from"])?;
    match from {
        Some(Value::Dict(other)) => {
            for (key, value) in other.entries() {
                dict.insert(key.clone(), value.clone(), meter)?;
            }
        }
        Some(pairs) => {
            for pair in items_of(pairs.defined()?, interpreter)? {
                let pair = items_of(&pair, interpreter)?;
                let [key, value] = &pair[..] else { return Err(failed("dict needs pairs of a key and a value")) };
                dict.insert(key.clone(), value.clone(), meter)?;
            }
        }
        None => {}
    }
    for (name, value) in named {
        dict.insert(Value::shared(name), value, meter)?;
    }
    Ok(dict)
}

impl Cycler {
    pub fn current(&self) -> Value {
        self.items.items[self.position.get()].clone()
    }

    pub fn next(&self) -> Value {
        let item = self.current();
        self.position.set((self.position.get() + 1) % self.items.items.len());
        item
    }
}

impl Joiner {
    /// Nothing the first time, then the separator.
    pub fn call(&self) -> Value {
        if self.used.replace(true) {
            self.separator.clone()
        } else {
            Value::shared(Name::from(""))
        }
    }
}

/// datetime.now().strftime(format): local time without a time zone, so %z and %Z are empty. %f is microseconds, which libc does not have.
fn strftime_now(format: &str) -> Result<String> {
    let failed = |why: &str| failed(format!("strftime_now: {why}"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(|_| failed("the clock is before 1970"))?;
    let seconds = now.as_secs() as libc::time_t;
    let mut calendar = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and localtime_r fills the structure when it returns one.
    let calendar = unsafe {
        if libc::localtime_r(&seconds, calendar.as_mut_ptr()).is_null() {
            return Err(failed("the time has no calendar form"));
        }
        calendar.assume_init()
    };
    let mut for_libc = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            ('%', Some('f')) => {
                let _ = write!(for_libc, "{:06}", now.subsec_micros());
                characters.next();
            }
            ('%', Some('z' | 'Z')) => {
                characters.next();
            }
            ('%', Some(directive)) if directive.is_ascii_digit() => return Err(failed("a width in the format is not supported")),
            ('%', Some(directive)) => {
                for_libc.extend(['%', directive]);
                characters.next();
            }
            _ => for_libc.push(character),
        }
    }
    if for_libc.len() > 1000 {
        return Err(failed("the format is longer than 1000 bytes"));
    }
    // strftime returns 0 both for an empty result and for one that does not fit; the extra byte makes the result non-empty.
    let for_libc = CString::new(for_libc + "|").map_err(|_| failed("the format contains a NUL byte"))?;
    let mut buffer = vec![0u8; 256 + 64 * for_libc.as_bytes().len()];
    // SAFETY: the buffer, the format (ended by NUL) and the calendar live through the call.
    let length = unsafe { libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), for_libc.as_ptr(), &calendar) };
    if length == 0 {
        return Err(failed("the result is too long"));
    }
    buffer.truncate(length - 1);
    String::from_utf8(buffer).map_err(|_| failed("the locale's names are not UTF-8"))
}
