//! The variables of a rendering: scopes within each other. Values refer to scopes by index, so that no value can hold itself. Used by
//! interpreter.rs.

use std::collections::{HashMap, HashSet};

use super::ast::Name;
use super::error::Result;
use super::limits::Meter;
use super::value::Value;

/// The scope of the functions.
const FUNCTIONS: usize = 0;
/// The variables of the job, and those that the template's own scope has set: what blocks see.
pub const CONTEXT: usize = 1;
/// The template's own scope.
pub const TOP: usize = 2;

/// What a scope that stays takes, and each of its names.
const SCOPE_BYTES: usize = 192;
const NAME_BYTES: usize = 2 * size_of::<(Name, Option<Value>)>();
/// Scopes that are searched in the time of a step.
const SEARCHED_PER_STEP: usize = 8;

pub struct Scopes<'t> {
    /// Innermost last, except that those stay which a macro needs, and those below.
    scopes: Vec<Scope>,
    meter: &'t Meter,
}

struct Scope {
    /// None: the scope has a variable of its own that is not set yet.
    names: HashMap<Name, Option<Value>>,
    parent: Option<usize>,
    /// A macro was defined in it or in a scope within.
    is_captured: bool,
}

impl<'t> Scopes<'t> {
    pub fn new(functions: impl Iterator<Item = (Name, Value)>, variables: impl Iterator<Item = (Name, Value)>, meter: &'t Meter) -> Self {
        let scope = |names, parent| Scope { names, parent, is_captured: true };
        let context = scope(variables.map(|(name, value)| (name, Some(value))).collect(), Some(FUNCTIONS));
        let functions = scope(functions.map(|(name, value)| (name, Some(value))).collect(), None);
        Scopes { scopes: vec![functions, context, scope(HashMap::new(), Some(CONTEXT))], meter }
    }

    /// A new scope within `parent`; leave() must follow.
    pub fn enter(&mut self, parent: usize) -> usize {
        self.scopes.push(Scope { names: HashMap::new(), parent: Some(parent), is_captured: false });
        self.scopes.len() - 1
    }

    pub fn leave(&mut self, scope: usize) -> Result<()> {
        if !self.scopes[scope].is_captured && self.scopes.len() == scope + 1 {
            self.scopes.pop();
            return Ok(());
        }
        self.meter.bytes(SCOPE_BYTES + NAME_BYTES * self.scopes[scope].names.len())
    }

    /// Names that are not there in a scope until it sets them.
    pub fn hide(&mut self, scope: usize, names: &[Name]) -> Result<()> {
        self.meter.steps(names.len())?;
        self.scopes[scope].names.extend(names.iter().map(|name| (name.clone(), None)));
        Ok(())
    }

    pub fn set(&mut self, scope: usize, name: &Name, value: Value) {
        if scope == TOP {
            self.scopes[CONTEXT].names.insert(name.clone(), Some(value.clone()));
        }
        self.scopes[scope].names.insert(name.clone(), Some(value));
    }

    pub fn get(&self, scope: usize, name: &Name) -> Result<Option<&Value>> {
        let mut next = Some(scope);
        let mut searched = 0;
        while let Some(scope) = next {
            let scope = &self.scopes[scope];
            if let Some(value) = scope.names.get(name) {
                return Ok(value.as_ref());
            }
            next = scope.parent;
            searched += 1;
            if searched % SEARCHED_PER_STEP == 0 {
                self.meter.steps(1)?;
            }
        }
        Ok(None)
    }

    /// The scope and those around it stay.
    pub fn capture(&mut self, scope: usize) {
        let mut next = Some(scope);
        while let Some(scope) = next.filter(|&scope| !self.scopes[scope].is_captured) {
            self.scopes[scope].is_captured = true;
            next = self.scopes[scope].parent;
        }
    }

    /// Copies what the scopes from `from` outwards have set into `into`, for a block that sees them.
    pub fn copy(&mut self, from: usize, into: usize) -> Result<()> {
        let mut seen = HashSet::new();
        let mut copied = Vec::new();
        let mut next = Some(from);
        while let Some(scope) = next.filter(|&scope| scope > CONTEXT) {
            self.meter.steps(1 + self.scopes[scope].names.len())?;
            for (name, value) in &self.scopes[scope].names {
                if seen.insert(name.clone()) {
                    copied.extend(value.clone().map(|value| (name.clone(), Some(value))));
                }
            }
            next = self.scopes[scope].parent;
        }
        self.scopes[into].names.extend(copied);
        Ok(())
    }
}
