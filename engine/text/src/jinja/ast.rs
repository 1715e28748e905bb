//! A template as a tree. Made by parser.rs, run by interpreter.rs.

use std::collections::HashMap;
use std::sync::Arc;

use super::filters::Filter;
use super::tests::Test;

pub type Name = Arc<str>;

pub struct Template {
    pub body: Vec<Statement>,
    pub blocks: HashMap<Name, Vec<Statement>>,
    /// Variables that are undefined until the template sets them, although a job may give them: loops and macros before that see none.
    pub set_later: Vec<Name>,
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
        body: Vec<Statement>,
    },
    With {
        bindings: Vec<(Target, Expression)>,
        body: Vec<Statement>,
    },
    Macro(Arc<Macro>),
    Call {
        call: Expression,
        caller: Arc<Macro>,
    },
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
    pub body: Vec<Statement>,
    pub otherwise: Vec<Statement>,
}

pub enum Target {
    Name(Name),
    Attribute(Name, Name),
    Tuple(Vec<Target>),
}

pub struct Macro {
    pub name: Name,
    pub parameters: Vec<(Name, Option<Expression>)>,
    pub body: Vec<Statement>,
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
