//! What a template takes as the content of a message: a text, a list of parts, or both. Called by the parser.

use std::collections::HashSet;

use super::ast::{Contents, Expression, Kind, Name, Statement, Target, Tree};

pub fn contents_of(tree: &Tree) -> Contents {
    // Macros that take a content call it so.
    let mut uses = Uses { variables: HashSet::from([Name::from("content")]), are_walked: false, are_tested: false };
    uses.statements(&tree.body.statements);
    tree.blocks.values().for_each(|block| uses.statements(&block.statements));
    match (uses.are_walked, uses.are_tested) {
        (false, _) => Contents::Text,
        (true, false) => Contents::Parts,
        (true, true) => Contents::Both,
    }
}

/// What the template does with contents.
struct Uses {
    /// Variables with the content of a message.
    variables: HashSet<Name>,
    are_walked: bool,
    are_tested: bool,
}

impl Uses {
    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Text(_) | Statement::Block { .. } | Statement::Break | Statement::Continue => {}
                Statement::Output(value) => self.expression(value),
                Statement::For(statement) => {
                    self.expression(&statement.items);
                    statement.filter.iter().for_each(|filter| self.expression(filter));
                    self.are_walked |= self.is_content(&statement.items);
                    self.statements(&statement.body.statements);
                    self.statements(&statement.otherwise.statements);
                }
                Statement::If { branches, otherwise } => {
                    for (condition, body) in branches {
                        self.expression(condition);
                        self.statements(body);
                    }
                    self.statements(otherwise);
                }
                Statement::Set { target, value } => {
                    self.expression(value);
                    if let (Target::Name(name), true) = (target, self.is_content(value)) {
                        self.variables.insert(name.clone());
                    }
                }
                Statement::Capture { filter, body, .. } => {
                    filter.iter().for_each(|filter| self.expression(filter));
                    self.statements(&body.statements);
                }
                Statement::With { bindings, body } => {
                    bindings.iter().for_each(|(_, value)| self.expression(value));
                    self.statements(&body.statements);
                }
                Statement::Call { call, caller } => {
                    self.expression(call);
                    self.statements(&caller.body.statements);
                }
                Statement::Macro(definition) | Statement::Generation(definition) => {
                    definition.parameters.iter().filter_map(|(_, default)| default.as_ref()).for_each(|default| self.expression(default));
                    self.statements(&definition.body.statements);
                }
            }
        }
    }

    fn expression(&mut self, expression: &Expression) {
        expression.walk(&mut |part| {
            if let Kind::Test(value, name, ..) = &part.kind {
                self.are_tested |= matches!(&**name, "string" | "mapping" | "iterable" | "sequence") && self.is_content(value);
            }
        });
    }

    /// `message.content`, or a variable with it, perhaps sliced or filtered.
    fn is_content(&self, value: &Expression) -> bool {
        match &value.kind {
            Kind::Attribute(_, name) => &**name == "content",
            Kind::Item(_, key) => matches!(&key.kind, Kind::Text(name) if &**name == "content"),
            Kind::Name(name) => self.variables.contains(name),
            Kind::Slice(value, ..) | Kind::Filter(value, ..) => self.is_content(value),
            _ => false,
        }
    }
}
