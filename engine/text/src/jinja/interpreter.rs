//! Runs a template. One Interpreter lives as long as one rendering. Called by mod.rs; filters and methods call back into it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::arguments::Arguments;
use super::ast::{self, Body, Expression, For, Kind, Name, Statement, Target, Tree};
use super::dict::Dict;
use super::error::{failed, Result};
use super::filters::{filter_named, Filter};
use super::functions::FUNCTIONS;
use super::generators::{items_of, Cursor, Generator};
use super::jinja_tests::{test_named, Test};
use super::limits::{Meter, OBJECT_BYTES};
use super::lookup;
use super::methods::call_method;
use super::operators;
use super::scopes::{Scopes, CONTEXT, TOP};
use super::sequences::sliced;
use super::text::str_of;
use super::value::{undefined_error, Closure, Items, Loop, Recursion, Value};
use super::writer::Writer;

/// What a namespace takes, and each of its attributes.
const NAMESPACE_BYTES: usize = 128;
const ATTRIBUTE_BYTES: usize = 2 * size_of::<(Name, Value)>();

pub struct Interpreter<'t> {
    pub meter: &'t Meter,
    template: &'t Tree,
    scopes: Scopes<'t>,
    /// Values refer to them by index, so that no value can hold itself.
    namespaces: Vec<HashMap<Name, Value>>,
    /// The text that Kind::Piped stands for.
    piped: Option<Name>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Normal,
    Break,
    Continue,
}

pub fn render(template: &Tree, variables: &Map<String, Json>) -> Result<String> {
    let meter = Meter::default();
    let functions = FUNCTIONS.iter().map(|&(name, function)| (Name::from(name), Value::Function(function)));
    let mut given = Vec::with_capacity(variables.len());
    for (name, value) in variables {
        given.push((Name::from(name.as_str()), Value::from_json(value, &meter)?));
    }
    let scopes = Scopes::new(functions, given.into_iter(), &meter);
    let mut interpreter = Interpreter { meter: &meter, template, scopes, namespaces: Vec::new(), piped: None };
    let mut out = Writer::new(&meter);
    interpreter.scopes.hide(TOP, &template.body.set_later)?;
    interpreter.run(&template.body.statements, TOP, &mut out)?;
    Ok(out.string())
}

impl Interpreter<'_> {
    pub fn new_namespace(&mut self, names: Vec<(Name, Value)>) -> Result<Value> {
        self.meter.bytes(NAMESPACE_BYTES)?;
        self.namespaces.push(HashMap::new());
        let id = self.namespaces.len() - 1;
        for (name, value) in names {
            self.namespace_set(id, name, value)?;
        }
        Ok(Value::Namespace(id))
    }

    /// transformers' namespaces take no name that could be one of Python's own.
    fn namespace_set(&mut self, id: usize, name: Name, value: Value) -> Result<()> {
        if name.starts_with('_') {
            return Err(failed(format!("a namespace cannot have the attribute {name}: names that begin with `_` are Python's own")));
        }
        if self.namespaces[id].insert(name, value).is_none() {
            self.meter.bytes(ATTRIBUTE_BYTES)?;
        }
        Ok(())
    }

    pub fn namespace_get(&self, id: usize, name: &Name) -> Option<Value> {
        self.namespaces[id].get(name).cloned()
    }

    /// Runs `work` with a new scope within `parent`, in which `set_later` are not there yet.
    fn scoped<T>(&mut self, parent: usize, set_later: &[Name], work: impl FnOnce(&mut Self, usize) -> Result<T>) -> Result<T> {
        // A scope takes the time of some steps.
        self.meter.steps(3)?;
        let scope = self.scopes.enter(parent);
        self.scopes.hide(scope, set_later)?;
        let result = work(self, scope)?;
        self.scopes.leave(scope)?;
        Ok(result)
    }

    fn closure(&mut self, definition: &Arc<ast::Macro>, scope: usize) -> Result<Value> {
        self.meter.bytes(OBJECT_BYTES)?;
        self.scopes.capture(scope);
        Ok(Value::Macro(Rc::new(Closure { definition: definition.clone(), scope })))
    }

    fn run(&mut self, body: &[Statement], scope: usize, out: &mut Writer) -> Result<Flow> {
        for statement in body {
            self.meter.steps(1)?;
            let flow = self.statement(statement, scope, out)?;
            if flow != Flow::Normal {
                return Ok(flow);
            }
        }
        Ok(Flow::Normal)
    }

    /// Runs a body deeper than its statement.
    fn run_nested(&mut self, body: &[Statement], scope: usize, out: &mut Writer) -> Result<Flow> {
        self.deeper(|interpreter| interpreter.run(body, scope, out))
    }

    pub fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.meter.enter()?;
        let result = work(self);
        self.meter.leave();
        result
    }

    fn statement(&mut self, statement: &Statement, scope: usize, out: &mut Writer) -> Result<Flow> {
        match statement {
            Statement::Text(text) => out.push(text)?,
            Statement::Output(value) => self.output(value, scope, out)?,
            Statement::For(statement) => return self.for_statement(statement, scope, out),
            Statement::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if self.eval(condition, scope)?.is_true() {
                        return self.run_nested(body, scope, out);
                    }
                }
                return self.run_nested(otherwise, scope, out);
            }
            Statement::Set { target, value } => {
                let line = value.line;
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope).map_err(|error| error.at(line))?;
            }
            Statement::Capture { target, filter, body } => return self.capture(target.as_ref(), filter.as_ref(), body, scope, out),
            Statement::With { bindings, body } => return self.with(bindings, body, scope, out),
            Statement::Macro(definition) => {
                let closure = self.closure(definition, scope)?;
                self.scopes.set(scope, &definition.name, closure);
            }
            Statement::Call { call, caller } => {
                let Kind::Call(function, arguments) = &call.kind else { return Err(failed("the tag call needs a call")) };
                let text = self.call_block(function, arguments, caller, scope).map_err(|error| error.at(call.line))?;
                out.push(&text)?;
            }
            Statement::Generation(body) => {
                let text = self.call_macro(body, scope, Arguments::default())?;
                out.push(&str_of(&text, self.meter)?)?;
            }
            Statement::Block { name, scoped } => {
                let template: &Tree = self.template;
                let body = &template.blocks[name];
                return self.scoped(CONTEXT, &[], |interpreter, inner| {
                    if *scoped {
                        interpreter.scopes.copy(scope, inner)?;
                    }
                    interpreter.scopes.hide(inner, &body.set_later)?;
                    interpreter.run_nested(&body.statements, inner, out)
                });
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Normal)
    }

    fn output(&mut self, value: &Expression, scope: usize, out: &mut Writer) -> Result<()> {
        let line = value.line;
        let value = self.eval(value, scope)?;
        str_of(&value, self.meter).and_then(|text| out.push(&text)).map_err(|error| error.at(line))
    }

    fn with(&mut self, bindings: &[(Target, Expression)], body: &Body, scope: usize, out: &mut Writer) -> Result<Flow> {
        let mut values = Vec::with_capacity(bindings.len());
        for (_, value) in bindings {
            values.push(self.eval(value, scope)?);
        }
        self.scoped(scope, &body.set_later, |interpreter, inner| {
            for ((target, _), value) in bindings.iter().zip(values) {
                interpreter.assign(target, value, inner)?;
            }
            interpreter.run_nested(&body.statements, inner, out)
        })
    }

    fn capture(
        &mut self,
        target: Option<&Target>,
        filter: Option<&Expression>,
        body: &Body,
        scope: usize,
        out: &mut Writer,
    ) -> Result<Flow> {
        let mut text = Writer::new(self.meter);
        // The filter's arguments see what the body has set.
        let (flow, value) = self.scoped(scope, &body.set_later, |interpreter, inner| {
            let flow = interpreter.run_nested(&body.statements, inner, &mut text)?;
            Ok(match filter {
                Some(filter) if flow == Flow::Normal => {
                    interpreter.piped = Some(text.text());
                    (flow, interpreter.eval(filter, inner)?)
                }
                _ => (flow, text.value()),
            })
        })?;
        if flow != Flow::Normal {
            return Ok(flow);
        }
        match target {
            Some(target) => self.assign(target, value, scope)?,
            None => out.push(&str_of(&value, self.meter)?)?,
        }
        Ok(Flow::Normal)
    }

    fn assign(&mut self, target: &Target, value: Value, scope: usize) -> Result<()> {
        match target {
            Target::Name(name) => self.scopes.set(scope, name, value),
            Target::Attribute(name, attribute) => match self.scopes.get(scope, name)? {
                Some(&Value::Namespace(id)) => self.namespace_set(id, attribute.clone(), value)?,
                _ => return Err(failed(format!("{name} is not a namespace: its attributes cannot be set"))),
            },
            Target::Tuple(targets) => {
                let items = items_of(value.defined()?, self)?;
                if items.len() != targets.len() {
                    return Err(failed(format!("{} values cannot be unpacked into {} names", items.len(), targets.len())));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
            }
        }
        Ok(())
    }

    fn for_statement(&mut self, statement: &Arc<For>, scope: usize, out: &mut Writer) -> Result<Flow> {
        let line = statement.items.line;
        let items = self.eval(&statement.items, scope)?;
        self.deeper(|interpreter| interpreter.for_loop(statement, items, scope, 0, out)).map_err(|error| error.at(line))
    }

    fn for_loop(&mut self, statement: &Arc<For>, items: Value, scope: usize, level: u32, out: &mut Writer) -> Result<Flow> {
        let mut cursor = Cursor::of(&items)?;
        if statement.filter.is_some() {
            cursor = self.filtered(statement, cursor, items.depth(), scope)?;
        }
        let recursion = statement.recursive.then(|| Recursion { statement: statement.clone(), scope });
        self.meter.bytes(size_of::<Loop>())?;
        let state = Rc::new(Loop::new(cursor, level, recursion, items.depth().saturating_add(1)));
        let loop_name = Name::from("loop");
        while let Some(item) = state.advance(self)? {
            let flow = self.scoped(scope, &statement.body.set_later, |interpreter, inner| {
                interpreter.scopes.set(inner, &loop_name, Value::Loop(state.clone()));
                interpreter.assign(&statement.target, item, inner)?;
                interpreter.run(&statement.body.statements, inner, out)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        state.end();
        if state.index.get() == 0 {
            let body = &statement.otherwise;
            return self.scoped(scope, &body.set_later, |interpreter, inner| interpreter.run(&body.statements, inner, out));
        }
        Ok(Flow::Normal)
    }

    /// The items for which the loop's filter is true.
    fn filtered(&mut self, statement: &Arc<For>, mut items: Cursor, depth: u32, scope: usize) -> Result<Cursor> {
        let statement = statement.clone();
        let next = move |interpreter: &mut Interpreter| -> Result<Option<Value>> {
            while let (Some(item), Some(filter)) = (items.next(interpreter)?, &statement.filter) {
                let is_kept = interpreter.scoped(scope, &[], |interpreter, inner| {
                    interpreter.assign(&statement.target, item.clone(), inner)?;
                    Ok(interpreter.eval(filter, inner)?.is_true())
                })?;
                if is_kept {
                    return Ok(Some(item));
                }
            }
            Ok(None)
        };
        Generator::new(depth, self.meter, next).map(Cursor::Generator)
    }

    pub fn eval(&mut self, expression: &Expression, scope: usize) -> Result<Value> {
        self.meter.steps(1)?;
        self.deeper(|interpreter| interpreter.value_of(expression, scope)).map_err(|error| error.at(expression.line))
    }

    fn value_of(&mut self, expression: &Expression, scope: usize) -> Result<Value> {
        match &expression.kind {
            Kind::None => Ok(Value::None),
            Kind::Bool(truth) => Ok(Value::Bool(*truth)),
            Kind::Integer(integer) => Ok(Value::Integer(*integer)),
            Kind::Float(real) => Ok(Value::Float(*real)),
            Kind::Text(text) => Ok(Value::shared(text.clone())),
            Kind::Name(name) => Ok(self.scopes.get(scope, name)?.cloned().unwrap_or_else(|| Value::undefined(name.clone()))),
            Kind::Piped => Ok(Value::shared(self.piped.take().unwrap_or_else(|| "".into()))),
            Kind::List(items) => Value::list(self.eval_all(items, scope)?),
            Kind::Tuple(items) => Value::tuple(self.eval_all(items, scope)?),
            Kind::Dict(items) => self.eval_dict(items, scope),
            Kind::Attribute(value, name) => {
                let value = self.eval(value, scope)?;
                lookup::attribute(self, &value, name)
            }
            Kind::Item(value, key) => {
                let value = self.eval(value, scope)?;
                let key = self.eval(key, scope)?;
                lookup::item(self, &value, &key)
            }
            Kind::Slice(value, bounds) => self.eval_slice(value, bounds, scope),
            Kind::Call(function, arguments) => self.eval_call(function, arguments, scope),
            Kind::Filter(value, name, filter, arguments) => {
                let filter = filter.ok_or_else(|| failed(format!("filter {name} is unknown")))?;
                let value = self.eval(value, scope)?;
                let arguments = self.eval_arguments(arguments, scope)?;
                self.apply_filter(filter, value, arguments)
            }
            Kind::Test(value, name, test, arguments) => {
                let test = test.ok_or_else(|| failed(format!("test {name} is unknown")))?;
                let value = self.eval(value, scope)?;
                let arguments = self.eval_arguments(arguments, scope)?;
                self.apply_test(test, &value, arguments).map(Value::Bool)
            }
            Kind::If { condition, then, otherwise } => {
                if self.eval(condition, scope)?.is_true() {
                    self.eval(then, scope)
                } else if let Some(otherwise) = otherwise {
                    self.eval(otherwise, scope)
                } else {
                    Ok(Value::undefined("the other case of an `if` without `else`"))
                }
            }
            _ => self.operation(expression, scope),
        }
    }

    fn operation(&mut self, expression: &Expression, scope: usize) -> Result<Value> {
        match &expression.kind {
            Kind::Negative(value) => operators::negative(&self.eval(value, scope)?),
            Kind::Positive(value) => operators::positive(&self.eval(value, scope)?),
            Kind::Not(value) => Ok(Value::Bool(!self.eval(value, scope)?.is_true())),
            Kind::And(left, right) => {
                let left = self.eval(left, scope)?;
                if left.is_true() {
                    self.eval(right, scope)
                } else {
                    Ok(left)
                }
            }
            Kind::Or(left, right) => {
                let left = self.eval(left, scope)?;
                if left.is_true() {
                    Ok(left)
                } else {
                    self.eval(right, scope)
                }
            }
            Kind::Binary(operator, left, right) => {
                let left = self.eval(left, scope)?;
                let right = self.eval(right, scope)?;
                operators::binary(*operator, &left, &right, self.meter)
            }
            Kind::Concatenation(parts) => {
                let parts = self.eval_all(parts, scope)?;
                operators::concatenated(&parts, self.meter)
            }
            Kind::Comparison(first, rest) => {
                let mut left = self.eval(first, scope)?;
                for (comparison, right) in rest {
                    let right = self.eval(right, scope)?;
                    if !operators::compare(*comparison, &left, &right, self)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            _ => unreachable!("value_of has the other kinds"),
        }
    }

    fn eval_all(&mut self, items: &[Expression], scope: usize) -> Result<Items> {
        let meter = self.meter;
        Items::collect(items.iter().map(|item| self.eval(item, scope)), meter)
    }

    fn eval_dict(&mut self, items: &[(Expression, Expression)], scope: usize) -> Result<Value> {
        let mut dict = Dict::default();
        for (key, value) in items {
            let key = self.eval(key, scope)?;
            dict.insert(key, self.eval(value, scope)?, self.meter)?;
        }
        Value::dict(dict, self.meter)
    }

    fn eval_slice(&mut self, value: &Expression, bounds: &[Option<ast::Boxed>; 3], scope: usize) -> Result<Value> {
        let value = self.eval(value, scope)?;
        let mut given = [Value::None, Value::None, Value::None];
        for (slot, bound) in given.iter_mut().zip(bounds) {
            if let Some(bound) = bound {
                *slot = self.eval(bound, scope)?;
            }
        }
        sliced(&value, given, self.meter)
    }

    fn eval_arguments(&mut self, arguments: &ast::Arguments, scope: usize) -> Result<Arguments> {
        let mut positional = self.eval_all(&arguments.positional, scope)?;
        let mut named = Vec::with_capacity(arguments.named.len());
        for (name, value) in &arguments.named {
            named.push((name.clone(), self.eval(value, scope)?));
        }
        if let Some(star) = &arguments.star {
            let star = self.eval(star, scope)?;
            for item in items_of(star.defined()?, self)? {
                positional.push(item, self.meter)?;
            }
        }
        if let Some(star) = &arguments.double_star {
            let Value::Dict(more) = self.eval(star, scope)? else { return Err(failed("`**` needs a dict")) };
            let mut names: HashSet<Name> = named.iter().map(|(name, _)| name.clone()).collect();
            for (key, value) in more.entries() {
                self.meter.steps(1)?;
                self.meter.bytes(ATTRIBUTE_BYTES)?;
                let Value::Text { text: name, .. } = key else { return Err(failed("the keys after `**` must be strings")) };
                if !names.insert(name.clone()) {
                    return Err(failed(format!("two values for {name}")));
                }
                named.push((name.clone(), value.clone()));
            }
        }
        Ok(Arguments { positional, named })
    }

    fn eval_call(&mut self, function: &Expression, arguments: &ast::Arguments, scope: usize) -> Result<Value> {
        let function = self.eval(function, scope)?;
        let arguments = self.eval_arguments(arguments, scope)?;
        self.call(&function, arguments)
    }

    fn call_block(&mut self, function: &Expression, arguments: &ast::Arguments, caller: &Arc<ast::Macro>, scope: usize) -> Result<Name> {
        let function = self.eval(function, scope)?;
        let mut arguments = self.eval_arguments(arguments, scope)?;
        let caller = self.closure(caller, scope)?;
        arguments.named.push(("caller".into(), caller));
        let value = self.call(&function, arguments)?;
        str_of(&value, self.meter)
    }

    pub fn call(&mut self, function: &Value, arguments: Arguments) -> Result<Value> {
        self.begin_call(function, &arguments)?;
        match function {
            Value::Function(function) => function.call(self, arguments),
            Value::Method(method) => call_method(self, &method.0, &method.1, arguments),
            Value::Macro(closure) => self.call_macro(&closure.definition, closure.scope, arguments),
            Value::Joiner(joiner) => {
                arguments.none("joiner")?;
                Ok(joiner.call())
            }
            Value::Loop(state) => {
                let Some(recursion) = &state.recursion else { return Err(failed("loop is called, but the loop is not recursive")) };
                let [items] = arguments.bind("loop", 1, ["iterable"])?;
                if state.rest.try_borrow().is_ok_and(|rest| rest.is_none()) {
                    return Err(failed("loop is called, but the loop has ended"));
                }
                let mut text = Writer::new(self.meter);
                let (items, level) = (items.unwrap_or(Value::None), state.level + 1);
                self.deeper(|interpreter| interpreter.for_loop(&recursion.statement, items, recursion.scope, level, &mut text))?;
                Ok(text.value())
            }
            Value::Undefined(name) => Err(undefined_error(name)),
            other => Err(failed(format!("{} cannot be called", other.type_name()))),
        }
    }

    /// What a call takes for its arguments, however it uses them.
    fn begin_call(&self, value: &Value, arguments: &Arguments) -> Result<()> {
        let all = arguments.positional.iter().chain(arguments.named.iter().map(|(_, value)| value));
        self.meter.steps(arguments.positional.len() + arguments.named.len())?;
        self.meter.read([value].into_iter().chain(all).map(Value::text_length).sum())
    }

    fn call_macro(&mut self, definition: &Arc<ast::Macro>, scope: usize, arguments: Arguments) -> Result<Value> {
        let mut text = Writer::new(self.meter);
        self.deeper(|interpreter| {
            interpreter.scoped(scope, &definition.body.set_later, |interpreter, scope| {
                interpreter.bind_parameters(definition, arguments, scope)?;
                interpreter.run(&definition.body.statements, scope, &mut text)
            })
        })?;
        Ok(text.value())
    }

    /// Sets the parameters in `scope`. A default may use the parameters before it; those after it are undefined unless they are given.
    fn bind_parameters(&mut self, definition: &ast::Macro, mut arguments: Arguments, scope: usize) -> Result<()> {
        let name = &definition.name;
        let more = arguments.positional.split_off(definition.parameters.len());
        let mut given = arguments.positional.into_iter();
        let order: Vec<Name> = arguments.named.iter().map(|(name, _)| name.clone()).collect();
        let mut named: HashMap<Name, Value> = arguments.named.into_iter().collect();
        let mut missing = Vec::new();
        for (parameter, default) in &definition.parameters {
            let value = given.next().or_else(|| named.remove(parameter)).unwrap_or_else(|| {
                missing.extend(default.as_ref().map(|default| (parameter, default)));
                Value::undefined(parameter.clone())
            });
            self.scopes.set(scope, parameter, value);
        }
        for (parameter, default) in missing {
            let value = self.eval(default, scope)?;
            self.scopes.set(scope, parameter, value);
        }
        if definition.takes_caller && !definition.parameters.iter().any(|(parameter, _)| &**parameter == "caller") {
            let caller = named.remove("caller").unwrap_or_else(|| Value::undefined("caller"));
            self.scopes.set(scope, &"caller".into(), caller);
        }
        if definition.takes_named {
            let mut kwargs = Dict::default();
            for name in order {
                if let Some(value) = named.remove(&name) {
                    kwargs.insert(Value::shared(name), value, self.meter)?;
                }
            }
            self.scopes.set(scope, &"kwargs".into(), Value::dict(kwargs, self.meter)?);
        } else if let Some(unknown) = named.keys().next() {
            return Err(failed(format!("macro {name} has no parameter {unknown}, or two values for it")));
        }
        if definition.takes_positional {
            self.scopes.set(scope, &"varargs".into(), Value::tuple(more)?);
        } else if !more.is_empty() {
            return Err(failed(format!("macro {name} takes at most {} arguments", definition.parameters.len())));
        }
        Ok(())
    }

    pub fn apply_filter(&mut self, filter: Filter, value: Value, arguments: Arguments) -> Result<Value> {
        self.begin_call(&value, &arguments)?;
        self.deeper(|interpreter| filter(interpreter, value, arguments))
    }

    pub fn apply_test(&mut self, test: Test, value: &Value, arguments: Arguments) -> Result<bool> {
        self.begin_call(value, &arguments)?;
        test(self, value, arguments)
    }

    pub fn filter(&mut self, name: &str, value: Value, arguments: Arguments) -> Result<Value> {
        match filter_named(name) {
            Some(filter) => self.apply_filter(filter, value, arguments),
            None => Err(failed(format!("filter {name} is unknown"))),
        }
    }

    pub fn test(&mut self, name: &str, value: &Value, arguments: Arguments) -> Result<bool> {
        match test_named(name) {
            Some(test) => self.apply_test(test, value, arguments),
            None => Err(failed(format!("test {name} is unknown"))),
        }
    }
}
