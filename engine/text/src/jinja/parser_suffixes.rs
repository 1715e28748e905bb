//! Reads what follows a value: attributes, subscripts, calls, filters and tests. Part of parser.rs.

use std::collections::HashSet;
use std::sync::Arc;

use super::ast::{Arguments, Expression, Kind, Name};
use super::error::{Error, Result};
use super::filters::filter_named;
use super::jinja_tests::test_named;
use super::lexer::Token;
use super::parser::{height_of, Parser};

impl Arguments {
    fn height(&self) -> u32 {
        let named = self.named.iter().map(|(_, value)| value);
        let stars = self.star.iter().chain(&self.double_star).map(|star| &**star);
        height_of(self.positional.iter().chain(named).chain(stars))
    }
}

impl Parser {
    pub(super) fn postfix(&mut self, mut value: Expression) -> Result<Expression> {
        loop {
            value = match self.current() {
                Token::Operator(".") | Token::Operator("[") => self.subscript(value)?,
                Token::Operator("(") => self.call(value)?,
                _ => return Ok(value),
            };
        }
    }

    pub(super) fn filters(&mut self, mut value: Expression) -> Result<Expression> {
        loop {
            value = match self.current() {
                Token::Operator("|") => {
                    self.next();
                    self.filter(value)?
                }
                Token::Name(word) if word == "is" => self.test(value)?,
                Token::Operator("(") => self.call(value)?,
                _ => return Ok(value),
            };
        }
    }

    fn call(&mut self, function: Expression) -> Result<Expression> {
        let line = self.line();
        let arguments = self.arguments()?;
        let below = function.height.max(arguments.height());
        self.make(line, Kind::Call(Box::new(function), arguments), below)
    }

    fn subscript(&mut self, value: Expression) -> Result<Expression> {
        let line = self.line();
        if self.skip_operator(".") {
            let below = value.height;
            let kind = match self.next() {
                Token::Name(name) => Kind::Attribute(Box::new(value), Arc::from(name)),
                Token::Integer(index) => {
                    let index = self.make(line, Kind::Integer(index), 0)?;
                    Kind::Item(Box::new(value), Box::new(index))
                }
                _ => return Err(Error::syntax(line, "expected a name or a number after a dot")),
            };
            return self.make(line, kind, below);
        }
        self.expect_operator("[")?;
        let mut bounds: [Option<Box<Expression>>; 3] = [None, None, None];
        let mut colons = 0;
        while !self.is_operator("]") {
            if colons < 2 && self.skip_operator(":") {
                colons += 1;
                continue;
            }
            if bounds[colons].is_some() {
                break;
            }
            bounds[colons] = Some(Box::new(self.expression()?));
        }
        let below = value.height.max(height_of(bounds.iter().flatten().map(|bound| &**bound)));
        if colons > 0 {
            self.expect_operator("]")?;
            return self.make(line, Kind::Slice(Box::new(value), bounds), below);
        }
        let [Some(mut index), ..] = bounds else { return self.unexpected("an expression") };
        if self.is_operator(",") {
            let mut items = vec![*index];
            while self.skip_operator(",") && !self.is_operator("]") {
                items.push(self.expression()?);
            }
            let height = height_of(&items);
            index = Box::new(self.make(line, Kind::Tuple(items), height)?);
        }
        self.expect_operator("]")?;
        let below = value.height.max(index.height);
        self.make(line, Kind::Item(Box::new(value), index), below)
    }

    fn dotted_name(&mut self) -> Result<Name> {
        let mut name = self.expect_name()?.to_string();
        while self.skip_operator(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(Arc::from(name))
    }

    /// A filter after its `|`, or after the word `filter` of a block.
    pub(super) fn filter(&mut self, value: Expression) -> Result<Expression> {
        let line = self.line();
        let name = self.dotted_name()?;
        let arguments = if self.is_operator("(") { self.arguments()? } else { Arguments::default() };
        let filter = filter_named(&name);
        if filter.is_none() && self.conditions == 0 {
            return Err(Error::syntax(line, format!("filter {name} is unknown")));
        }
        let below = value.height.max(arguments.height());
        self.make(line, Kind::Filter(Box::new(value), name, filter, arguments), below)
    }

    fn test(&mut self, value: Expression) -> Result<Expression> {
        let line = self.line();
        self.next();
        let negated = self.skip_word("not");
        let name = self.dotted_name()?;
        let mut arguments = Arguments::default();
        match self.current() {
            Token::Operator("(") => arguments = self.arguments()?,
            Token::Name(word) if ["else", "or", "and"].contains(&word.as_str()) => {}
            Token::Name(word) if word == "is" => return self.error("tests cannot be chained with `is`"),
            Token::Name(_) | Token::Text(_) | Token::Integer(_) | Token::Float(_) | Token::Operator("[" | "{") => {
                let argument = self.nested(Self::primary)?;
                arguments.positional.push(self.postfix(argument)?);
            }
            _ => {}
        }
        let test = test_named(&name);
        if test.is_none() && self.conditions == 0 {
            return Err(Error::syntax(line, format!("test {name} is unknown")));
        }
        let below = value.height.max(arguments.height());
        let test = self.make(line, Kind::Test(Box::new(value), name, test, arguments), below)?;
        let below = test.height;
        if negated {
            self.make(line, Kind::Not(Box::new(test)), below)
        } else {
            Ok(test)
        }
    }

    fn arguments(&mut self) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        let mut names = HashSet::new();
        self.bracketed(["(", ")"], |parser| {
            let starred = arguments.star.is_some() || arguments.double_star.is_some();
            let is_named = matches!(parser.current(), Token::Name(_)) && *parser.look() == Token::Operator("=");
            let in_order;
            if parser.skip_operator("*") {
                in_order = !starred;
                arguments.star = Some(Box::new(parser.expression()?));
            } else if parser.skip_operator("**") {
                in_order = arguments.double_star.is_none();
                arguments.double_star = Some(Box::new(parser.expression()?));
            } else if is_named {
                let name = parser.expect_name()?;
                parser.next();
                in_order = arguments.double_star.is_none() && names.insert(name.clone());
                arguments.named.push((name, parser.expression()?));
            } else {
                in_order = !starred && arguments.named.is_empty();
                arguments.positional.push(parser.expression()?);
            }
            if !in_order {
                return parser.error("the arguments of a call are not in an order that Jinja allows");
            }
            Ok(())
        })?;
        Ok(arguments)
    }
}
