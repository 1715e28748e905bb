//! The variable `loop`, which looks ahead only when it is asked, as jinja2's LoopContext. Called by the interpreter and lookup.rs.

use std::cell::{Cell, RefCell};

use super::error::{failed, Error, Result};
use super::generators::{rest_of, Cursor};
use super::interpreter::Interpreter;
use super::limits::Meter;
use super::value::{Items, Loop, Recursion, Value};

impl Loop {
    pub fn new(items: Cursor, level: u32, recursion: Option<Recursion>, depth: u32) -> Self {
        Loop {
            rest: RefCell::new(Some(items)),
            length: Cell::new(None),
            previous: RefCell::default(),
            current: RefCell::default(),
            next: RefCell::default(),
            index: Cell::new(0),
            level,
            changed: RefCell::default(),
            recursion,
            depth,
        }
    }

    /// The next item, which becomes the current one.
    pub fn advance(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        let item = match self.next.take() {
            Some(item) => Some(item),
            None => self.taken(interpreter)?,
        };
        if let Some(item) = &item {
            self.previous.replace(self.current.replace(Some(item.clone())));
            self.index.set(self.index.get() + 1);
        }
        Ok(item)
    }

    /// After this, what is not known yet of the items is an error.
    pub fn end(&self) {
        self.rest.replace(None);
    }

    fn with_rest<T>(&self, work: impl FnOnce(&mut Cursor) -> Result<T>) -> Result<T> {
        let ended = || -> Error { failed("the loop has ended, or its items need the loop itself") };
        let mut rest = self.rest.try_borrow_mut().map_err(|_| ended())?;
        work(rest.as_mut().ok_or_else(ended)?)
    }

    fn taken(&self, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        self.with_rest(|rest| rest.next(interpreter))
    }

    fn has_next(&self, interpreter: &mut Interpreter) -> Result<bool> {
        if self.next.borrow().is_none() {
            let next = self.taken(interpreter)?;
            self.next.replace(next);
        }
        Ok(self.next.borrow().is_some())
    }

    /// len(loop). Of a generator, this takes all items.
    pub fn length(&self, interpreter: &mut Interpreter) -> Result<usize> {
        if let Some(length) = self.length.get() {
            return Ok(length);
        }
        let length = self.with_rest(|rest| {
            if let Some(length) = rest.length() {
                return Ok(length);
            }
            let items = rest_of(rest, interpreter)?;
            let length = self.index.get() + usize::from(self.next.borrow().is_some()) + items.len();
            *rest = Cursor::Items(items.into_iter());
            Ok(length)
        })?;
        self.length.set(Some(length));
        Ok(length)
    }

    pub fn attribute(&self, name: &str, interpreter: &mut Interpreter) -> Result<Option<Value>> {
        let index = self.index.get();
        Ok(Some(match name {
            "index" => Value::Integer(index as i128),
            "index0" => Value::Integer(index as i128 - 1),
            "revindex" => Value::Integer(self.length(interpreter)? as i128 - index as i128 + 1),
            "revindex0" => Value::Integer(self.length(interpreter)? as i128 - index as i128),
            "first" => Value::Bool(index == 1),
            "last" => Value::Bool(!self.has_next(interpreter)?),
            "length" => Value::Integer(self.length(interpreter)? as i128),
            "depth" => Value::Integer(i128::from(self.level) + 1),
            "depth0" => Value::Integer(self.level.into()),
            "previtem" if index == 1 => Value::undefined("there is no previous item; loop.previtem"),
            "previtem" => self.previous.borrow().clone().unwrap_or(Value::None),
            "nextitem" if !self.has_next(interpreter)? => Value::undefined("there is no next item; loop.nextitem"),
            "nextitem" => self.next.borrow().clone().unwrap_or(Value::None),
            _ => return Ok(None),
        }))
    }

    /// Whether the values differ from those of the last call. Only plain values, so that a loop cannot hold itself.
    pub fn has_changed(&self, values: Items, meter: &Meter) -> Result<bool> {
        for value in values.iter() {
            if !matches!(
                value,
                Value::None | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text { .. } | Value::Undefined(_)
            ) {
                return Err(failed(format!("loop.changed of {} is not supported", value.type_name())));
            }
        }
        let is_same = match &*self.changed.borrow() {
            Some(last) => super::operators::all_equal(last, &values, meter)?,
            None => false,
        };
        self.changed.replace(Some(values));
        Ok(!is_same)
    }
}
