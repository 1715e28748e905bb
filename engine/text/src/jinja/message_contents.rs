//! Whether a template wants the contents of messages as lists of parts, which transformers' users decide by hand for each model. Called by
//! the parser.

use std::collections::HashSet;

use super::ast::{Expression, Kind, Name, Statement, Target, Tree};

/// The template walks over the parts of contents without asking whether a content is a text.
pub fn wants_parts(tree: &Tree) -> bool {
    let mut contents = Contents::default();
    contents.statements(&tree.body.statements);
    tree.blocks.values().for_each(|block| contents.statements(&block.statements));
    contents.are_walked && !contents.are_tested
}

#[derive(Default)]
struct Contents {
    /// Variables that were set to the content of a message.
    variables: HashSet<Name>,
    are_walked: bool,
    are_tested: bool,
}

impl Contents {
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
            if let Kind::Test(_, name, ..) = &part.kind {
                self.are_tested |= matches!(&**name, "string" | "mapping" | "iterable" | "sequence");
            }
        });
    }

    /// `message.content`, or a variable with it.
    fn is_content(&self, value: &Expression) -> bool {
        match &value.kind {
            Kind::Attribute(_, name) => &**name == "content",
            Kind::Item(_, key) => matches!(&key.kind, Kind::Text(name) if &**name == "content"),
            Kind::Name(name) => self.variables.contains(name),
            _ => false,
        }
    }
}
