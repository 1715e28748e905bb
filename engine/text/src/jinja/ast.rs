//! A template as a tree. Made by parser.rs, run by interpreter.rs.

use std::collections::HashMap;
use std::sync::Arc;

use super::filters::Filter;
use super::jinja_tests::Test;

pub type Name = Arc<str>;

pub struct Tree {
    pub body: Body,
    pub blocks: HashMap<Name, Body>,
    pub contents: Contents,
}

/// What the template takes as the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// It does not walk over contents: of a list, it would print Python's text.
    Text,
    /// It walks over contents without asking whether one is a text: it would take the characters for parts and lose them.
    Parts,
    Both,
}

/// Statements with a scope of their own.
#[derive(Default)]
pub struct Body {
    pub statements: Vec<Statement>,
    /// Variables that this scope and those within see as missing until a statement of the body sets them. See symbols.rs.
    pub set_later: Vec<Name>,
}

pub enum Statement {
    Text(Name),
    Output(Expression),
    For(Arc<For>),
    If {
        branches: Vec<(Expression, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    Set {
        target: Target,
        value: Expression,
    },
    /// `{% set x %}...{% endset %}` and `{% filter f %}...{% endfilter %}`, which has no target. `filter` begins with Piped.
    Capture {
        target: Option<Target>,
        filter: Option<Expression>,
        body: Body,
    },
    With {
        bindings: Vec<(Target, Expression)>,
        body: Body,
    },
    Macro(Arc<Macro>),
    Call {
        call: Expression,
        caller: Arc<Macro>,
    },
    /// `{% generation %}` of transformers: for it too, jinja2 makes a macro of the body.
    Generation(Arc<Macro>),
    Block {
        name: Name,
        scoped: bool,
    },
    Break,
    Continue,
}

pub struct For {
    pub target: Target,
    pub items: Expression,
    pub filter: Option<Expression>,
    pub recursive: bool,
    pub body: Body,
    pub otherwise: Body,
}

pub enum Target {
    Name(Name),
    Attribute(Name, Name),
    Tuple(Vec<Target>),
}

pub struct Macro {
    pub name: Name,
    pub parameters: Vec<(Name, Option<Expression>)>,
    pub body: Body,
    /// The body uses the name, so that the macro takes what has it.
    pub takes_caller: bool,
    pub takes_named: bool,
    pub takes_positional: bool,
}

pub struct Expression {
    pub kind: Kind,
    pub line: u32,
    /// Levels of expressions below this one.
    pub height: u32,
}

pub type Boxed = Box<Expression>;

pub enum Kind {
    None,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Name),
    Name(Name),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Dict(Vec<(Expression, Expression)>),
    Attribute(Boxed, Name),
    Item(Boxed, Boxed),
    Slice(Boxed, [Option<Boxed>; 3]),
    Call(Boxed, Arguments),
    Filter(Boxed, Name, Option<Filter>, Arguments),
    Test(Boxed, Name, Option<Test>, Arguments),
    Negative(Boxed),
    Positive(Boxed),
    Not(Boxed),
    And(Boxed, Boxed),
    Or(Boxed, Boxed),
    Binary(Operator, Boxed, Boxed),
    Concatenation(Vec<Expression>),
    Comparison(Boxed, Vec<(Comparison, Expression)>),
    If {
        condition: Boxed,
        then: Boxed,
        otherwise: Option<Boxed>,
    },
    /// The text of a block that the filters around this are applied to.
    Piped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

#[derive(Default)]
pub struct Arguments {
    pub positional: Vec<Expression>,
    pub named: Vec<(Name, Expression)>,
    pub star: Option<Boxed>,
    pub double_star: Option<Boxed>,
}

impl Expression {
    /// Calls `see` with this expression and all within, in the order in which jinja2's compiler visits them.
    pub fn walk(&self, see: &mut impl FnMut(&Expression)) {
        see(self);
        match &self.kind {
            Kind::None | Kind::Bool(_) | Kind::Integer(_) | Kind::Float(_) | Kind::Text(_) | Kind::Name(_) | Kind::Piped => {}
            Kind::List(items) | Kind::Tuple(items) | Kind::Concatenation(items) => items.iter().for_each(|item| item.walk(see)),
            Kind::Dict(items) => items.iter().for_each(|(key, value)| {
                key.walk(see);
                value.walk(see);
            }),
            Kind::Attribute(value, _) | Kind::Negative(value) | Kind::Positive(value) | Kind::Not(value) => value.walk(see),
            Kind::Item(left, right) | Kind::And(left, right) | Kind::Or(left, right) | Kind::Binary(_, left, right) => {
                left.walk(see);
                right.walk(see);
            }
            Kind::Slice(value, bounds) => {
                value.walk(see);
                bounds.iter().flatten().for_each(|bound| bound.walk(see));
            }
            Kind::Call(value, arguments) | Kind::Filter(value, _, _, arguments) | Kind::Test(value, _, _, arguments) => {
                value.walk(see);
                arguments.positional.iter().for_each(|argument| argument.walk(see));
                arguments.named.iter().for_each(|(_, argument)| argument.walk(see));
                arguments.star.iter().chain(&arguments.double_star).for_each(|argument| argument.walk(see));
            }
            Kind::Comparison(first, rest) => {
                first.walk(see);
                rest.iter().for_each(|(_, value)| value.walk(see));
            }
            Kind::If { condition, then, otherwise } => {
                condition.walk(see);
                then.walk(see);
                otherwise.iter().for_each(|otherwise| otherwise.walk(see));
            }
        }
    }
}
