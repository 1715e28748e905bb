//! Runs a template. One Interpreter lives as long as one rendering. Called by mod.rs; filters and methods call back into it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::arguments::Arguments;
use super::ast::{self, Expression, For, Kind, Name, Statement, Target, Template};
use super::error::{failed, Result};
use super::filters::filter_named;
use super::functions::FUNCTIONS;
use super::limits::Meter;
use super::lookup;
use super::methods::call_method;
use super::operators;
use super::sequences::{items_of, slice};
use super::tests::test_named;
use super::text::str_of;
use super::value::{undefined_error, Closure, Dict, Loop, Recursion, Value};

/// The scope of the template's own variables; its parent has the functions.
const TOP: usize = 1;

pub struct Interpreter<'t> {
    pub meter: Meter,
    template: &'t Template,
    /// Innermost last, except that scopes which a macro needs stay until the end. Values refer to scopes and namespaces by index, so that
    /// no value can hold itself.
    scopes: Vec<Scope>,
    namespaces: Vec<HashMap<Name, Value>>,
    /// The text that Kind::Piped stands for.
    piped: Option<Name>,
}

struct Scope {
    names: HashMap<Name, Value>,
    parent: Option<usize>,
    /// A macro was defined in it or in a scope within.
    is_captured: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Normal,
    Break,
    Continue,
}

pub fn render(template: &Template, variables: &Map<String, Json>) -> Result<String> {
    let functions = FUNCTIONS.iter().map(|&(name, function)| (Name::from(name), Value::Function(function))).collect();
    let mut names = HashMap::new();
    for (name, value) in variables {
        names.insert(Name::from(name.as_str()), Value::from_json(value)?);
    }
    for name in &template.set_later {
        names.insert(name.clone(), Value::undefined(name.clone()));
    }
    let mut interpreter = Interpreter {
        meter: Meter::default(),
        template,
        scopes: vec![Scope { names: functions, parent: None, is_captured: true }, Scope { names, parent: Some(0), is_captured: true }],
        namespaces: Vec::new(),
        piped: None,
    };
    let mut out = String::new();
    interpreter.run(&template.body, TOP, &mut out)?;
    Ok(out)
}

impl Interpreter<'_> {
    pub fn new_namespace(&mut self, names: Vec<(Name, Value)>) -> Value {
        self.namespaces.push(names.into_iter().collect());
        Value::Namespace(self.namespaces.len() - 1)
    }

    pub fn namespace_get(&self, id: usize, name: &Name) -> Option<Value> {
        self.namespaces[id].get(name).cloned()
    }

    /// Runs `work` with a new scope within `parent`.
    fn scoped<T>(&mut self, parent: usize, work: impl FnOnce(&mut Self, usize) -> Result<T>) -> Result<T> {
        self.scopes.push(Scope { names: HashMap::new(), parent: Some(parent), is_captured: false });
        let scope = self.scopes.len() - 1;
        let result = work(self, scope);
        if !self.scopes[scope].is_captured && self.scopes.len() == scope + 1 {
            self.scopes.pop();
        }
        result
    }

    fn set(&mut self, scope: usize, name: &Name, value: Value) {
        self.scopes[scope].names.insert(name.clone(), value);
    }

    fn get(&self, scope: usize, name: &Name) -> Option<&Value> {
        let mut next = Some(scope);
        while let Some(scope) = next {
            let scope = &self.scopes[scope];
            if let Some(value) = scope.names.get(name) {
                return Some(value);
            }
            next = scope.parent;
        }
        None
    }

    fn closure(&mut self, definition: &Arc<ast::Macro>, scope: usize) -> Value {
        let mut next = Some(scope);
        while let Some(scope) = next.filter(|&scope| !self.scopes[scope].is_captured) {
            self.scopes[scope].is_captured = true;
            next = self.scopes[scope].parent;
        }
        Value::Macro(Rc::new(Closure { definition: definition.clone(), scope }))
    }

    fn run(&mut self, body: &[Statement], scope: usize, out: &mut String) -> Result<Flow> {
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
    fn run_nested(&mut self, body: &[Statement], scope: usize, out: &mut String) -> Result<Flow> {
        self.deeper(|interpreter| interpreter.run(body, scope, out))
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.meter.enter()?;
        let result = work(self);
        self.meter.leave();
        result
    }

    fn statement(&mut self, statement: &Statement, scope: usize, out: &mut String) -> Result<Flow> {
        match statement {
            Statement::Text(text) => self.write(text, out)?,
            Statement::Output(value) => {
                let line = value.line;
                let value = self.eval(value, scope)?;
                str_of(&value, &self.meter).and_then(|text| self.write(&text, out)).map_err(|error| error.at(line))?;
            }
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
            Statement::With { bindings, body } => {
                let mut values = Vec::with_capacity(bindings.len());
                for (_, value) in bindings {
                    values.push(self.eval(value, scope)?);
                }
                return self.scoped(scope, |interpreter, inner| {
                    for ((target, _), value) in bindings.iter().zip(values) {
                        interpreter.assign(target, value, inner)?;
                    }
                    interpreter.run_nested(body, inner, out)
                });
            }
            Statement::Macro(definition) => {
                let closure = self.closure(definition, scope);
                self.set(scope, &definition.name, closure);
            }
            Statement::Call { call, caller } => {
                let Kind::Call(function, arguments) = &call.kind else { return Err(failed("call needs a call")) };
                let text = self.call_block(function, arguments, caller, scope).map_err(|error| error.at(call.line))?;
                self.write(&text, out)?;
            }
            Statement::Block { name, scoped } => {
                let template: &Template = self.template;
                let parent = if *scoped { scope } else { TOP };
                return self.scoped(parent, |interpreter, inner| interpreter.run_nested(&template.blocks[name], inner, out));
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Normal)
    }

    fn write(&self, text: &str, out: &mut String) -> Result<()> {
        self.meter.text(text.len())?;
        out.push_str(text);
        Ok(())
    }

    fn capture(
        &mut self,
        target: Option<&Target>,
        filter: Option<&Expression>,
        body: &[Statement],
        scope: usize,
        out: &mut String,
    ) -> Result<Flow> {
        let mut text = String::new();
        let flow = self.scoped(scope, |interpreter, inner| interpreter.run_nested(body, inner, &mut text))?;
        if flow != Flow::Normal {
            return Ok(flow);
        }
        let value = match filter {
            Some(filter) => {
                self.piped = Some(text.into());
                self.eval(filter, scope)?
            }
            None => Value::text(text),
        };
        match target {
            Some(target) => self.assign(target, value, scope)?,
            None => {
                let text = str_of(&value, &self.meter)?;
                self.write(&text, out)?;
            }
        }
        Ok(Flow::Normal)
    }

    fn assign(&mut self, target: &Target, value: Value, scope: usize) -> Result<()> {
        match target {
            Target::Name(name) => self.set(scope, name, value),
            Target::Attribute(name, attribute) => match self.get(scope, name) {
                Some(&Value::Namespace(id)) => {
                    self.namespaces[id].insert(attribute.clone(), value);
                }
                _ => return Err(failed(format!("{name} is not a namespace: its attributes cannot be set"))),
            },
            Target::Tuple(targets) => {
                let items = items_of(value.defined()?, &self.meter)?;
                if items.len() != targets.len() {
                    return Err(failed(format!("{} values cannot be set to {} names", items.len(), targets.len())));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
            }
        }
        Ok(())
    }

    fn for_statement(&mut self, statement: &Arc<For>, scope: usize, out: &mut String) -> Result<Flow> {
        let line = statement.items.line;
        let items = self.eval(&statement.items, scope)?;
        self.deeper(|interpreter| interpreter.for_loop(statement, items, scope, 0, out)).map_err(|error| error.at(line))
    }

    fn for_loop(&mut self, statement: &Arc<For>, items: Value, scope: usize, level: u32, out: &mut String) -> Result<Flow> {
        let mut items = items_of(&items, &self.meter)?;
        if let Some(filter) = &statement.filter {
            let mut kept = Vec::new();
            for item in items {
                let keep = self.scoped(scope, |interpreter, inner| {
                    interpreter.assign(&statement.target, item.clone(), inner)?;
                    Ok(interpreter.eval(filter, inner)?.is_true())
                })?;
                if keep {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            return self.scoped(scope, |interpreter, inner| interpreter.run(&statement.otherwise, inner, out));
        }
        let recursion = statement.recursive.then(|| Recursion { statement: statement.clone(), scope });
        let state = Rc::new(Loop { items, index: Cell::new(0), level, changed: RefCell::new(None), recursion });
        for index in 0..state.items.len() {
            self.meter.steps(1)?;
            state.index.set(index);
            let flow = self.scoped(scope, |interpreter, inner| {
                interpreter.set(inner, &Name::from("loop"), Value::Loop(state.clone()));
                interpreter.assign(&statement.target, state.items[index].clone(), inner)?;
                interpreter.run(&statement.body, inner, out)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Normal)
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
            Kind::Text(text) => Ok(Value::text(text.clone())),
            Kind::Name(name) => Ok(self.get(scope, name).cloned().unwrap_or_else(|| Value::undefined(name.clone()))),
            Kind::Piped => Ok(Value::text(self.piped.take().unwrap_or_else(|| "".into()))),
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
                self.meter.read(&value)?;
                self.meter.read(&key)?;
                lookup::item(self, &value, &key)
            }
            Kind::Slice(value, bounds) => self.eval_slice(value, bounds, scope),
            Kind::Call(function, arguments) => self.eval_call(function, arguments, scope),
            Kind::Filter(value, name, filter, arguments) => {
                let filter = filter.ok_or_else(|| failed(format!("filter {name} is unknown")))?;
                let value = self.eval(value, scope)?;
                let arguments = self.eval_arguments(arguments, scope)?;
                self.meter.read(&value)?;
                filter(self, value, arguments)
            }
            Kind::Test(value, name, test, arguments) => {
                let test = test.ok_or_else(|| failed(format!("test {name} is unknown")))?;
                let value = self.eval(value, scope)?;
                let arguments = self.eval_arguments(arguments, scope)?;
                self.meter.read(&value)?;
                test(self, &value, arguments).map(Value::Bool)
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
                operators::binary(*operator, &left, &right, &self.meter)
            }
            Kind::Concatenation(parts) => {
                let parts = self.eval_all(parts, scope)?;
                operators::concatenated(&parts, &self.meter)
            }
            Kind::Comparison(first, rest) => {
                let mut left = self.eval(first, scope)?;
                for (comparison, right) in rest {
                    let right = self.eval(right, scope)?;
                    if !operators::compare(*comparison, &left, &right, &self.meter)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            _ => unreachable!("value_of has the other kinds"),
        }
    }

    fn eval_all(&mut self, items: &[Expression], scope: usize) -> Result<Vec<Value>> {
        items.iter().map(|item| self.eval(item, scope)).collect()
    }

    fn eval_dict(&mut self, items: &[(Expression, Expression)], scope: usize) -> Result<Value> {
        let mut dict = Dict::default();
        for (key, value) in items {
            let key = self.eval(key, scope)?;
            dict.insert(key, self.eval(value, scope)?)?;
        }
        Value::dict(dict)
    }

    fn eval_slice(&mut self, value: &Expression, bounds: &[Option<ast::Boxed>; 3], scope: usize) -> Result<Value> {
        let value = self.eval(value, scope)?;
        let mut given = [Value::None, Value::None, Value::None];
        for (slot, bound) in given.iter_mut().zip(bounds) {
            if let Some(bound) = bound {
                *slot = self.eval(bound, scope)?;
            }
        }
        slice(&value, given, &self.meter)
    }

    fn eval_arguments(&mut self, arguments: &ast::Arguments, scope: usize) -> Result<Arguments> {
        let mut positional = self.eval_all(&arguments.positional, scope)?;
        let mut named = Vec::with_capacity(arguments.named.len());
        for (name, value) in &arguments.named {
            named.push((name.clone(), self.eval(value, scope)?));
        }
        if let Some(star) = &arguments.star {
            let star = self.eval(star, scope)?;
            positional.extend(items_of(star.defined()?, &self.meter)?);
        }
        if let Some(star) = &arguments.double_star {
            let Value::Dict(more) = self.eval(star, scope)? else { return Err(failed("`**` needs a dict")) };
            self.meter.steps(more.entries.len())?;
            for (key, value) in &more.entries {
                let name = key.as_text().ok_or_else(|| failed("the keys after `**` must be strings"))?;
                if named.iter().any(|(other, _)| &**other == name) {
                    return Err(failed(format!("two values for {name}")));
                }
                named.push((name.into(), value.clone()));
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
        let caller = self.closure(caller, scope);
        arguments.named.push(("caller".into(), caller));
        let value = self.call(&function, arguments)?;
        str_of(&value, &self.meter)
    }

    pub fn call(&mut self, function: &Value, arguments: Arguments) -> Result<Value> {
        match function {
            Value::Function(function) => function.call(self, arguments),
            Value::Method(method) => call_method(self, &method.0, &method.1, arguments),
            Value::Macro(closure) => self.call_macro(closure, arguments),
            Value::Joiner(joiner) => {
                arguments.none("joiner")?;
                Ok(joiner.call())
            }
            Value::Loop(state) => {
                let Some(recursion) = &state.recursion else { return Err(failed("loop is called, but the loop is not recursive")) };
                let [items] = arguments.bind("loop", 1, ["iterable"])?;
                let mut text = String::new();
                let (items, level) = (items.unwrap_or(Value::None), state.level + 1);
                self.deeper(|interpreter| interpreter.for_loop(&recursion.statement, items, recursion.scope, level, &mut text))?;
                Ok(Value::text(text))
            }
            Value::Undefined(name) => Err(undefined_error(name)),
            other => Err(failed(format!("{} cannot be called", other.type_name()))),
        }
    }

    fn call_macro(&mut self, closure: &Closure, arguments: Arguments) -> Result<Value> {
        let definition = &closure.definition;
        let mut text = String::new();
        self.deeper(|interpreter| {
            interpreter.scoped(closure.scope, |interpreter, scope| {
                interpreter.bind_parameters(definition, arguments, scope)?;
                interpreter.run(&definition.body, scope, &mut text)
            })
        })?;
        Ok(Value::text(text))
    }

    /// Sets the parameters in `scope`. A default may use the parameters before it; those after it are undefined unless they are given.
    fn bind_parameters(&mut self, definition: &ast::Macro, mut arguments: Arguments, scope: usize) -> Result<()> {
        let name = &definition.name;
        let more = arguments.positional.split_off(arguments.positional.len().min(definition.parameters.len()));
        let mut given = arguments.positional.into_iter();
        let mut missing = Vec::new();
        let mut named = Arguments { positional: Vec::new(), named: arguments.named };
        for (parameter, default) in &definition.parameters {
            let value = given.next().or_else(|| named.take(parameter)).unwrap_or_else(|| {
                missing.extend(default.as_ref().map(|default| (parameter, default)));
                Value::undefined(parameter.clone())
            });
            self.set(scope, parameter, value);
        }
        for (parameter, default) in missing {
            let value = self.eval(default, scope)?;
            self.set(scope, parameter, value);
        }
        if definition.takes_caller && !definition.parameters.iter().any(|(parameter, _)| &**parameter == "caller") {
            let caller = named.take("caller").unwrap_or_else(|| Value::undefined("caller"));
            self.set(scope, &"caller".into(), caller);
        }
        if definition.takes_named {
            let mut kwargs = Dict::default();
            for (name, value) in named.named {
                kwargs.insert(Value::text(name), value)?;
            }
            self.set(scope, &"kwargs".into(), Value::dict(kwargs)?);
        } else if let Some((unknown, _)) = named.named.first() {
            return Err(failed(format!("macro {name} has no parameter {unknown}, or two values for it")));
        }
        if definition.takes_positional {
            self.set(scope, &"varargs".into(), Value::tuple(more)?);
        } else if !more.is_empty() {
            return Err(failed(format!("macro {name} takes at most {} arguments", definition.parameters.len())));
        }
        Ok(())
    }

    pub fn filter(&mut self, name: &str, value: Value, arguments: Arguments) -> Result<Value> {
        match filter_named(name) {
            Some(filter) => self.deeper(|interpreter| filter(interpreter, value, arguments)),
            None => Err(failed(format!("filter {name} is unknown"))),
        }
    }

    pub fn test(&mut self, name: &str, value: &Value, arguments: Arguments) -> Result<bool> {
        match test_named(name) {
            Some(test) => test(self, value, arguments),
            None => Err(failed(format!("test {name} is unknown"))),
        }
    }
}
