//! What a template takes as the content of a message: a text, a list of parts, or both. Called by the parser.
//!
//! A template takes parts if it walks over a content: over `.content`, or over a variable or macro parameter that has it. It takes texts as
//! well only if each walk is reached for contents alone that are not texts. `is sequence` and `is iterable` hold for texts, too. When in
//! doubt, it takes parts only: then the walk finds the text. A variable that is also set to another member of a message, such as
//! `tool_calls`, is no content: Mistral's older messages have their calls in `content`.

use std::collections::{HashMap, HashSet};

use super::ast::{Arguments, Contents, Expression, Kind, Macro, Name, Statement, Target, Tree};

/// Rounds over a template, so that its time stays small: one for each macro that a content passes through before its definition is read.
const ROUNDS_MAX: usize = 8;

/// As in vLLM, a variable of this name is a content, except a macro's parameter, which needs a call with one.
const CONTENT: &str = "content";

pub fn contents_of(tree: &Tree) -> Contents {
    let mut uses = Uses { variables: HashSet::from([Name::from(CONTENT)]), ..Uses::default() };
    for _ in 0..ROUNDS_MAX {
        let known = uses.known();
        (uses.are_walked, uses.texts_are_walked) = (false, false);
        uses.statements(&tree.body.statements);
        tree.blocks.values().for_each(|block| uses.statements(&block.statements));
        if uses.known() == known {
            break;
        }
    }
    match (uses.are_walked, uses.texts_are_walked) {
        (false, _) => Contents::Text,
        (true, true) => Contents::Parts,
        (true, false) => Contents::Both,
    }
}

/// What the template does with contents.
#[derive(Default)]
struct Uses {
    /// Variables with the content of a message.
    variables: HashSet<Name>,
    /// Variables with another member of a message.
    others: HashSet<Name>,
    /// The parameters of each macro.
    macros: HashMap<Name, Vec<Name>>,
    /// Parameters that get a content, by macro.
    passed: HashMap<Name, HashSet<Name>>,
    /// Paths of values that are not texts here, because conditions say so.
    not_texts: HashSet<String>,
    are_walked: bool,
    /// A walk is reached for texts, too.
    texts_are_walked: bool,
}

impl Uses {
    /// Grows as long as a round finds another variable, macro or parameter.
    fn known(&self) -> usize {
        self.variables.len() + self.others.len() + self.macros.len() + self.passed.values().map(HashSet::len).sum::<usize>()
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Text(_) | Statement::Block { .. } | Statement::Break | Statement::Continue => {}
                Statement::Output(value) => self.expression(value),
                Statement::For(statement) => {
                    self.expression(&statement.items);
                    statement.filter.iter().for_each(|filter| self.expression(filter));
                    self.walk(&statement.items);
                    self.statements(&statement.body.statements);
                    self.statements(&statement.otherwise.statements);
                }
                Statement::If { branches, otherwise } => self.branches(branches, otherwise),
                Statement::Set { target, value } => {
                    self.expression(value);
                    self.set(target, value);
                }
                Statement::Capture { filter, body, .. } => {
                    filter.iter().for_each(|filter| self.expression(filter));
                    self.statements(&body.statements);
                }
                Statement::With { bindings, body } => {
                    for (target, value) in bindings {
                        self.expression(value);
                        self.set(target, value);
                    }
                    self.statements(&body.statements);
                }
                Statement::Call { call, caller } => {
                    self.expression(call);
                    self.definition(caller);
                }
                Statement::Macro(definition) => {
                    let parameters = definition.parameters.iter().map(|(name, _)| name.clone()).collect();
                    self.macros.insert(definition.name.clone(), parameters);
                    self.definition(definition);
                }
                Statement::Generation(definition) => self.definition(definition),
            }
        }
    }

    /// In a branch, its condition holds and those before it do not.
    fn branches(&mut self, branches: &[(Expression, Vec<Statement>)], otherwise: &[Statement]) {
        let mut before = Vec::new();
        for (condition, body) in branches {
            self.expression(condition);
            let within = self.assume(condition, true);
            self.statements(body);
            self.forget(within);
            before.extend(self.assume(condition, false));
        }
        self.statements(otherwise);
        self.forget(before);
    }

    /// Returns the paths that this adds to those of values that are not texts.
    fn assume(&mut self, condition: &Expression, holds: bool) -> Vec<String> {
        let mut paths = Vec::new();
        add_not_texts(condition, holds, &mut paths);
        paths.retain(|path| self.not_texts.insert(path.clone()));
        paths
    }

    fn forget(&mut self, paths: Vec<String>) {
        paths.iter().for_each(|path| {
            self.not_texts.remove(path);
        });
    }

    /// Of the macro's parameters, those that calls pass a content to are contents in its body.
    fn definition(&mut self, definition: &Macro) {
        definition.parameters.iter().filter_map(|(_, default)| default.as_ref()).for_each(|default| self.expression(default));
        let names = || definition.parameters.iter().map(|(name, _)| name);
        let around: Vec<Name> = names().filter_map(|name| self.variables.take(name)).collect();
        let not_texts = std::mem::take(&mut self.not_texts);
        if let Some(passed) = self.passed.get(&definition.name) {
            self.variables.extend(names().filter(|&name| passed.contains(name)).cloned());
        }
        self.statements(&definition.body.statements);
        self.not_texts = not_texts;
        names().for_each(|name| {
            self.variables.remove(name);
        });
        self.variables.extend(around);
    }

    fn walk(&mut self, items: &Expression) {
        if self.is_content(items) {
            self.are_walked = true;
            self.texts_are_walked |= path_of(items).is_none_or(|path| !self.not_texts.contains(&path));
        }
    }

    fn set(&mut self, target: &Target, value: &Expression) {
        let Target::Name(name) = target else { return };
        if self.is_content(value) {
            self.variables.insert(name.clone());
        } else if **name != *CONTENT && matches!(value.kind, Kind::Attribute(..) | Kind::Item(..)) {
            self.others.insert(name.clone());
        }
    }

    fn expression(&mut self, expression: &Expression) {
        expression.walk(&mut |part| {
            if let Kind::Call(called, arguments) = &part.kind {
                if let Kind::Name(name) = &called.kind {
                    self.call(name, arguments);
                }
            }
        });
    }

    fn call(&mut self, name: &Name, arguments: &Arguments) {
        let Some(parameters) = self.macros.get(name) else { return };
        let positional = parameters.iter().zip(&arguments.positional);
        let named = arguments.named.iter().map(|(parameter, value)| (parameter, value));
        let contents = positional.chain(named).filter(|(_, value)| self.is_content(value)).map(|(parameter, _)| parameter.clone());
        let contents: Vec<Name> = contents.collect();
        self.passed.entry(name.clone()).or_default().extend(contents);
    }

    /// `message.content`, or a variable with it, perhaps sliced, filtered or with an alternative.
    fn is_content(&self, value: &Expression) -> bool {
        match &value.kind {
            Kind::Attribute(_, name) => &**name == CONTENT,
            Kind::Item(_, key) => matches!(&key.kind, Kind::Text(name) if &**name == CONTENT),
            Kind::Name(name) => self.variables.contains(name) && !self.others.contains(name),
            Kind::Slice(value, ..) | Kind::Filter(value, ..) => self.is_content(value),
            Kind::Call(called, arguments) => {
                matches!(&called.kind, Kind::Attribute(_, method) if &**method == "get")
                    && matches!(arguments.positional.first().map(|key| &key.kind), Some(Kind::Text(name)) if &**name == CONTENT)
            }
            Kind::Or(left, right) => self.is_content(left) || self.is_content(right),
            Kind::If { then, otherwise, .. } => {
                self.is_content(then) || otherwise.as_ref().is_some_and(|otherwise| self.is_content(otherwise))
            }
            _ => false,
        }
    }
}

/// Adds the paths of values that are not texts where the condition has this value.
fn add_not_texts(condition: &Expression, holds: bool, paths: &mut Vec<String>) {
    match &condition.kind {
        Kind::Test(value, name, ..) if &**name == "string" && !holds => paths.extend(path_of(value)),
        Kind::Not(value) => add_not_texts(value, !holds, paths),
        Kind::And(left, right) if holds => [left, right].into_iter().for_each(|side| add_not_texts(side, true, paths)),
        Kind::Or(left, right) if !holds => [left, right].into_iter().for_each(|side| add_not_texts(side, false, paths)),
        _ => {}
    }
}

/// A variable and its members, so that `m.content`, `m['content']` and `m.content | list` are the same.
fn path_of(value: &Expression) -> Option<String> {
    match &value.kind {
        Kind::Name(name) => Some(name.to_string()),
        Kind::Attribute(value, name) => Some(format!("{}.{name}", path_of(value)?)),
        Kind::Item(value, key) => match &key.kind {
            Kind::Text(name) => Some(format!("{}.{name}", path_of(value)?)),
            Kind::Integer(index) => Some(format!("{}[{index}]", path_of(value)?)),
            _ => None,
        },
        Kind::Slice(value, ..) | Kind::Filter(value, ..) => path_of(value),
        _ => None,
    }
}
