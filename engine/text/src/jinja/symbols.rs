//! Finds the variables that a scope sets and that are missing in it until then, as jinja2's compiler does (its module idtracking): a scope
//! has a variable of its own, and does not see one of that name outside, if it sets the variable before it reads it, outside of `if`, and
//! no scope around it knows the name. Called by the parser when the whole template is read, because scopes see what those around them read
//! later.

use std::collections::HashSet;
use std::sync::Arc;

use super::ast::{Body, Expression, Kind, Macro, Name, Statement, Target, Tree};

pub fn find_set_later(tree: &mut Tree) {
    scope(&mut tree.body, Symbols::default(), &mut Vec::new());
    // A block sees the variables that the template has set, but is not within its scope.
    for block in tree.blocks.values_mut() {
        scope(block, Symbols::default(), &mut Vec::new());
    }
}

/// The names that a scope knows.
#[derive(Default)]
struct Symbols {
    known: HashSet<Name>,
    set_later: Vec<Name>,
    /// `if` around the current statement.
    conditions: u32,
}

impl Symbols {
    fn read(&mut self, expression: &Expression, around: &[HashSet<Name>]) {
        expression.walk(&mut |part| {
            if let Kind::Name(name) = &part.kind {
                self.read_name(name, around);
            }
        });
    }

    fn read_name(&mut self, name: &Name, around: &[HashSet<Name>]) {
        if !around.iter().any(|names| names.contains(name)) {
            self.known.insert(name.clone());
        }
    }

    fn set(&mut self, name: &Name, around: &[HashSet<Name>]) {
        let is_new = self.known.insert(name.clone());
        if is_new && self.conditions == 0 && !around.iter().any(|names| names.contains(name)) {
            self.set_later.push(name.clone());
        }
    }

    fn set_target(&mut self, target: &Target, around: &[HashSet<Name>]) {
        match target {
            Target::Name(name) => self.set(name, around),
            Target::Attribute(name, _) => self.read_name(name, around),
            Target::Tuple(targets) => targets.iter().for_each(|target| self.set_target(target, around)),
        }
    }

    /// What has a value when the scope begins.
    fn begin_with(&mut self, target: &Target) {
        match target {
            Target::Name(name) | Target::Attribute(name, _) => drop(self.known.insert(name.clone())),
            Target::Tuple(targets) => targets.iter().for_each(|target| self.begin_with(target)),
        }
    }

    /// Statements without the scopes within them.
    fn statements(&mut self, statements: &[Statement], around: &[HashSet<Name>]) {
        for statement in statements {
            match statement {
                Statement::Output(value) => self.read(value, around),
                Statement::For(statement) => self.read(&statement.items, around),
                Statement::If { branches, otherwise } => {
                    for (index, (condition, body)) in branches.iter().enumerate() {
                        self.conditions += u32::from(index > 0);
                        self.read(condition, around);
                        self.conditions += u32::from(index == 0);
                        self.statements(body, around);
                    }
                    self.statements(otherwise, around);
                    self.conditions -= branches.len() as u32;
                }
                Statement::Set { target, value } => {
                    self.read(value, around);
                    self.set_target(target, around);
                }
                Statement::Capture { target: Some(target), .. } => self.set_target(target, around),
                Statement::Capture { target: None, filter, .. } => filter.iter().for_each(|filter| self.read(filter, around)),
                Statement::With { bindings, .. } => bindings.iter().for_each(|(_, value)| self.read(value, around)),
                Statement::Macro(definition) => self.set(&definition.name, around),
                Statement::Call { call, .. } => self.read(call, around),
                Statement::Text(_) | Statement::Generation(_) | Statement::Block { .. } | Statement::Break | Statement::Continue => {}
            }
        }
    }
}

/// Sets set_later of a scope and of those within.
fn scope(body: &mut Body, mut symbols: Symbols, around: &mut Vec<HashSet<Name>>) {
    symbols.statements(&body.statements, around);
    body.set_later = symbols.set_later;
    around.push(symbols.known);
    inner_scopes(&mut body.statements, around);
    around.pop();
}

fn inner_scopes(statements: &mut [Statement], around: &mut Vec<HashSet<Name>>) {
    for statement in statements {
        match statement {
            Statement::For(statement) => {
                let statement = Arc::get_mut(statement).expect("only the tree has the loop");
                let mut symbols = Symbols::default();
                symbols.known.insert("loop".into());
                symbols.begin_with(&statement.target);
                scope(&mut statement.body, symbols, around);
                scope(&mut statement.otherwise, Symbols::default(), around);
            }
            Statement::If { branches, otherwise } => {
                branches.iter_mut().for_each(|(_, body)| inner_scopes(body, around));
                inner_scopes(otherwise, around);
            }
            Statement::Capture { body, .. } => scope(body, Symbols::default(), around),
            Statement::With { bindings, body } => {
                let mut symbols = Symbols::default();
                bindings.iter().for_each(|(target, _)| symbols.begin_with(target));
                scope(body, symbols, around);
            }
            Statement::Macro(definition) | Statement::Call { caller: definition, .. } | Statement::Generation(definition) => {
                macro_scope(Arc::get_mut(definition).expect("only the tree has the macro"), around);
            }
            _ => {}
        }
    }
}

fn macro_scope(definition: &mut Macro, around: &mut Vec<HashSet<Name>>) {
    let mut symbols = Symbols::default();
    let special = [("caller", definition.takes_caller), ("kwargs", definition.takes_named), ("varargs", definition.takes_positional)];
    symbols.known.extend(special.into_iter().filter(|(_, taken)| *taken).map(|(name, _)| Name::from(name)));
    symbols.known.extend(definition.parameters.iter().map(|(name, _)| name.clone()));
    for (_, default) in &definition.parameters {
        default.iter().for_each(|default| symbols.read(default, around));
    }
    scope(&mut definition.body, symbols, around);
}
