//! Reads the expressions of a template; parser_suffixes.rs reads what follows a value, parser_statements.rs the tags. All follow jinja2's
//! parser rule by rule, so that precedence and what is an error are the same. Called by mod.rs.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{Body, Comparison, Contents, Expression, Kind, Name, Operator, Statement, Tree};
use super::error::{Error, Result};
use super::lexer::{tokens_of, Token};
use super::limits::{is_stack_used, NESTING_MAX, SOURCE_MAX, SOURCE_NESTING_MAX};
use super::{message_contents, symbols};

pub fn parse(source: &str) -> Result<Tree> {
    if source.len() > SOURCE_MAX {
        return Err(Error::syntax(1, format!("the template is longer than {} MiB", SOURCE_MAX >> 20)));
    }
    let tokens = tokens_of(source)?;
    let mut parser = Parser { tokens, position: 0, nesting: 0, blocks: HashMap::new(), uses: Vec::new(), conditions: 0, loops: 0 };
    let body = parser.statements(&[])?;
    if *parser.current() != Token::End {
        return parser.unexpected("a known tag");
    }
    let mut tree = Tree { body: body_of(body), blocks: parser.blocks, contents: Contents::Text };
    tree.contents = message_contents::contents_of(&tree);
    symbols::find_set_later(&mut tree);
    Ok(tree)
}

/// The special names that the body of a macro uses.
#[derive(Default)]
pub struct Uses {
    pub caller: bool,
    pub kwargs: bool,
    pub varargs: bool,
}

pub struct Parser {
    tokens: Vec<(Token, u32)>,
    position: usize,
    nesting: u32,
    pub(super) blocks: HashMap<Name, Body>,
    /// One for each macro around the current position.
    pub(super) uses: Vec<Uses>,
    /// `if` around the current position: within, an unknown filter is an error only when it is used.
    pub(super) conditions: u32,
    /// `for` around the current position within the same macro: `break` and `continue` need one.
    pub(super) loops: u32,
}

/// A body whose set_later symbols.rs finds.
pub(super) fn body_of(statements: Vec<Statement>) -> Body {
    Body { statements, set_later: Vec::new() }
}

pub(super) fn height_of<'e>(expressions: impl IntoIterator<Item = &'e Expression>) -> u32 {
    expressions.into_iter().map(|expression| expression.height).max().unwrap_or(0)
}

impl Parser {
    pub(super) fn current(&self) -> &Token {
        &self.tokens[self.position].0
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.position].1
    }

    pub(super) fn look(&self) -> &Token {
        &self.tokens[(self.position + 1).min(self.tokens.len() - 1)].0
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.current().clone();
        self.position = (self.position + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::syntax(self.line(), message))
    }

    pub(super) fn unexpected<T>(&self, expected: &str) -> Result<T> {
        self.error(format!("unexpected {}, expected {expected}", self.current().describe()))
    }

    pub(super) fn is_operator(&self, operator: &str) -> bool {
        matches!(self.current(), Token::Operator(found) if *found == operator)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.current(), Token::Name(found) if found == word)
    }

    pub(super) fn skip_operator(&mut self, operator: &str) -> bool {
        let found = self.is_operator(operator);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect_operator(&mut self, operator: &str) -> Result<()> {
        if self.skip_operator(operator) {
            return Ok(());
        }
        self.unexpected(&format!("`{operator}`"))
    }

    pub(super) fn expect_name(&mut self) -> Result<Name> {
        match self.current().clone() {
            Token::Name(name) => {
                self.next();
                Ok(Arc::from(name))
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Runs `rule` one level deeper.
    pub(super) fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nesting += 1;
        if self.nesting > SOURCE_NESTING_MAX || is_stack_used(self) {
            return self.error(format!("tags and expressions are nested more than {SOURCE_NESTING_MAX} levels deep"));
        }
        let result = rule(self);
        self.nesting -= 1;
        result
    }

    pub(super) fn make(&self, line: u32, kind: Kind, below: u32) -> Result<Expression> {
        if below >= NESTING_MAX {
            return self.error(format!("an expression of more than {NESTING_MAX} levels is not supported"));
        }
        Ok(Expression { kind, line, height: below + 1 })
    }

    pub fn expression(&mut self) -> Result<Expression> {
        self.nested(Self::condition)
    }

    fn condition(&mut self) -> Result<Expression> {
        let line = self.line();
        let mut then = self.or()?;
        while self.skip_word("if") {
            self.conditions += 1;
            let condition = self.or()?;
            let otherwise = if self.skip_word("else") { Some(self.expression()?) } else { None };
            self.conditions -= 1;
            let below = height_of([&then, &condition].into_iter().chain(&otherwise));
            let kind = Kind::If { condition: Box::new(condition), then: Box::new(then), otherwise: otherwise.map(Box::new) };
            then = self.make(line, kind, below)?;
        }
        Ok(then)
    }

    pub(super) fn or(&mut self) -> Result<Expression> {
        let line = self.line();
        let mut left = self.and()?;
        while self.skip_word("or") {
            let right = self.and()?;
            let below = height_of([&left, &right]);
            left = self.make(line, Kind::Or(Box::new(left), Box::new(right)), below)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression> {
        let line = self.line();
        let mut left = self.not()?;
        while self.skip_word("and") {
            let right = self.not()?;
            let below = height_of([&left, &right]);
            left = self.make(line, Kind::And(Box::new(left), Box::new(right)), below)?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expression> {
        let line = self.line();
        if !self.skip_word("not") {
            return self.comparison();
        }
        let value = self.nested(Self::not)?;
        let below = value.height;
        self.make(line, Kind::Not(Box::new(value)), below)
    }

    fn comparison(&mut self) -> Result<Expression> {
        let line = self.line();
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.comparison_operator() {
            rest.push((comparison, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let below = height_of([&first].into_iter().chain(rest.iter().map(|(_, value)| value)));
        self.make(line, Kind::Comparison(Box::new(first), rest), below)
    }

    fn comparison_operator(&mut self) -> Option<Comparison> {
        let comparison = match self.current() {
            Token::Operator("==") => Comparison::Equal,
            Token::Operator("!=") => Comparison::NotEqual,
            Token::Operator("<") => Comparison::Less,
            Token::Operator("<=") => Comparison::LessOrEqual,
            Token::Operator(">") => Comparison::Greater,
            Token::Operator(">=") => Comparison::GreaterOrEqual,
            Token::Name(word) if word == "in" => Comparison::In,
            Token::Name(word) if word == "not" && *self.look() == Token::Name("in".to_string()) => {
                self.next();
                Comparison::NotIn
            }
            _ => return None,
        };
        self.next();
        Some(comparison)
    }

    /// Left-associative operators of one precedence.
    fn binary(&mut self, operators: &[(&str, Operator)], operand: impl Fn(&mut Self) -> Result<Expression>) -> Result<Expression> {
        let line = self.line();
        let mut left = operand(self)?;
        while let Some(&(text, operator)) = operators.iter().find(|(text, _)| self.is_operator(text)) {
            self.expect_operator(text)?;
            let right = operand(self)?;
            let below = height_of([&left, &right]);
            left = self.make(line, Kind::Binary(operator, Box::new(left), Box::new(right)), below)?;
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expression> {
        self.binary(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::concatenation)
    }

    fn concatenation(&mut self) -> Result<Expression> {
        let line = self.line();
        let mut parts = vec![self.product()?];
        while self.skip_operator("~") {
            parts.push(self.product()?);
        }
        let below = height_of(&parts);
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            last => {
                parts.extend(last);
                self.make(line, Kind::Concatenation(parts), below)
            }
        }
    }

    fn product(&mut self) -> Result<Expression> {
        let operators = [("*", Operator::Multiply), ("/", Operator::Divide), ("//", Operator::FloorDivide), ("%", Operator::Modulo)];
        self.binary(&operators, |parser| parser.binary(&[("**", Operator::Power)], |parser| parser.unary(true)))
    }

    fn unary(&mut self, with_filters: bool) -> Result<Expression> {
        let line = self.line();
        let sign = match self.current() {
            Token::Operator("-") => Some(Kind::Negative as fn(Box<Expression>) -> Kind),
            Token::Operator("+") => Some(Kind::Positive as fn(Box<Expression>) -> Kind),
            _ => None,
        };
        let value = match sign {
            Some(sign) => {
                self.next();
                let value = self.nested(|parser| parser.unary(false))?;
                let below = value.height;
                let value = self.make(line, sign(Box::new(value)), below)?;
                self.postfix(value)?
            }
            None => {
                let value = self.primary()?;
                self.postfix(value)?
            }
        };
        if with_filters {
            self.filters(value)
        } else {
            Ok(value)
        }
    }

    pub(super) fn primary(&mut self) -> Result<Expression> {
        let line = self.line();
        let kind = match self.current().clone() {
            Token::Name(name) => {
                self.next();
                match name.as_str() {
                    "true" | "True" => Kind::Bool(true),
                    "false" | "False" => Kind::Bool(false),
                    "none" | "None" => Kind::None,
                    "self" | "lipsum" => return Err(Error::syntax(line, format!("{name} is not supported"))),
                    _ => {
                        self.note_use(&name);
                        Kind::Name(Arc::from(name))
                    }
                }
            }
            Token::Text(mut text) => {
                self.next();
                while let Token::Text(more) = self.current() {
                    text.push_str(more);
                    self.next();
                }
                Kind::Text(Arc::from(text))
            }
            Token::Integer(integer) => {
                self.next();
                Kind::Integer(integer)
            }
            Token::Float(float) => {
                self.next();
                Kind::Float(float)
            }
            Token::Operator("(") => {
                self.next();
                let inner = self.nested(|parser| parser.tuple(true, true, &[]))?;
                self.expect_operator(")")?;
                return Ok(inner);
            }
            Token::Operator("[") => return self.list(),
            Token::Operator("{") => return self.dict(),
            _ => return self.unexpected("an expression"),
        };
        self.make(line, kind, 0)
    }

    fn note_use(&mut self, name: &str) {
        for uses in &mut self.uses {
            match name {
                "caller" => uses.caller = true,
                "kwargs" => uses.kwargs = true,
                "varargs" => uses.varargs = true,
                _ => {}
            }
        }
    }

    /// One expression, or several with commas between them, up to the end of the tag or bracket or to one of the words in `ends`.
    pub(super) fn tuple(&mut self, with_conditions: bool, in_parentheses: bool, ends: &[&str]) -> Result<Expression> {
        let line = self.line();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let at_end = matches!(self.current(), Token::VariableEnd | Token::BlockEnd | Token::Operator(")"));
            if at_end || ends.iter().any(|word| self.is_word(word)) {
                break;
            }
            items.push(if with_conditions { self.expression()? } else { self.nested(Self::or)? });
            if !self.skip_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match items.pop() {
            Some(only) if !is_tuple => Ok(only),
            None if !in_parentheses => self.unexpected("an expression"),
            last => {
                items.extend(last);
                let below = height_of(&items);
                self.make(line, Kind::Tuple(items), below)
            }
        }
    }

    /// Items with commas between them, and perhaps one at the end, from the opening bracket to the closing one.
    pub(super) fn bracketed(&mut self, [open, close]: [&str; 2], mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect_operator(open)?;
        while !self.is_operator(close) {
            item(self)?;
            if !self.is_operator(close) {
                self.expect_operator(",")?;
            }
        }
        self.expect_operator(close)
    }

    fn list(&mut self) -> Result<Expression> {
        let line = self.line();
        let mut items = Vec::new();
        self.bracketed(["[", "]"], |parser| {
            items.push(parser.expression()?);
            Ok(())
        })?;
        let below = height_of(&items);
        self.make(line, Kind::List(items), below)
    }

    fn dict(&mut self) -> Result<Expression> {
        let line = self.line();
        let mut items = Vec::new();
        self.bracketed(["{", "}"], |parser| {
            let key = parser.expression()?;
            parser.expect_operator(":")?;
            items.push((key, parser.expression()?));
            Ok(())
        })?;
        let below = height_of(items.iter().flat_map(|(key, value)| [key, value]));
        self.make(line, Kind::Dict(items), below)
    }
}
