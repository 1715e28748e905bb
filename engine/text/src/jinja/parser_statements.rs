//! Reads the tags of a template. Part of parser.rs.

use std::collections::HashSet;
use std::sync::Arc;

use super::ast::{Body, Expression, For, Kind, Macro, Name, Statement, Target};
use super::error::{Error, Result};
use super::lexer::Token;
use super::parser::{body_of, Parser, Uses};

impl Parser {
    /// Everything up to a tag that begins with one of `ends`, whose word is then current; with none, up to the end of the template.
    pub fn statements(&mut self, ends: &[&str]) -> Result<Vec<Statement>> {
        self.nested(|parser| parser.statements_within(ends))
    }

    fn statements_within(&mut self, ends: &[&str]) -> Result<Vec<Statement>> {
        let mut body = Vec::new();
        loop {
            match self.current().clone() {
                Token::Data(text) => {
                    self.next();
                    body.push(Statement::Text(Arc::from(text)));
                }
                Token::VariableBegin => {
                    self.next();
                    body.push(Statement::Output(self.tuple(true, false, &[])?));
                    if *self.current() != Token::VariableEnd {
                        return self.unexpected("the end of the expression");
                    }
                    self.next();
                }
                Token::BlockBegin => {
                    self.next();
                    if ends.iter().any(|word| self.is_word(word)) {
                        return Ok(body);
                    }
                    let statement = self.statement()?;
                    body.push(statement);
                    self.end_of_tag()?;
                }
                _ if ends.is_empty() => return Ok(body),
                _ => return self.unexpected(&format!("the tag {}", ends.join(" or "))),
            }
        }
    }

    fn end_of_tag(&mut self) -> Result<()> {
        if *self.current() != Token::BlockEnd {
            return self.unexpected("the end of the tag");
        }
        self.next();
        Ok(())
    }

    /// The body between the current tag's end and a closing tag, whose word is skipped.
    fn body(&mut self, end: &str) -> Result<Vec<Statement>> {
        self.end_of_tag()?;
        let body = self.statements(&[end])?;
        self.next();
        Ok(body)
    }

    /// A body with a scope of its own.
    fn scoped_body(&mut self, end: &str) -> Result<Body> {
        self.body(end).map(body_of)
    }

    /// A body that is a function of its own in jinja2, where no loop can be left.
    fn separate_body(&mut self, end: &str) -> Result<Body> {
        let loops = std::mem::take(&mut self.loops);
        let body = self.scoped_body(end);
        self.loops = loops;
        body
    }

    fn statement(&mut self) -> Result<Statement> {
        let line = self.line();
        let word = self.expect_name()?;
        match &*word {
            "for" => self.for_loop(),
            "if" => self.if_chain(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => self.macro_definition().map(Arc::new).map(Statement::Macro),
            "call" => self.call_block(),
            "filter" => {
                let filter = self.piped_filters()?;
                Ok(Statement::Capture { target: None, filter: Some(filter), body: self.scoped_body("endfilter")? })
            }
            "print" => Ok(Statement::Output(self.tuple(true, false, &[])?)),
            "block" => self.block(),
            // transformers' tag marks the assistant's words for training and prints them unchanged.
            "generation" => self.macro_body("caller".into(), Vec::new(), "endgeneration").map(Arc::new).map(Statement::Generation),
            "break" | "continue" if self.loops == 0 => Err(Error::syntax(line, format!("{word} outside a loop"))),
            "break" => Ok(Statement::Break),
            "continue" => Ok(Statement::Continue),
            "include" | "import" | "from" | "extends" => {
                Err(Error::syntax(line, format!("tag {word} needs other template files, which a chat template does not have")))
            }
            _ => Err(Error::syntax(line, format!("tag {word} is unknown"))),
        }
    }

    fn for_loop(&mut self) -> Result<Statement> {
        let target = self.target(false)?;
        if matches!(&target, Target::Name(name) if &**name == "loop") {
            return self.error("loop cannot be the variable of a loop");
        }
        if !self.skip_word("in") {
            return self.unexpected("`in`");
        }
        let items = self.tuple(false, false, &["recursive"])?;
        let filter = if self.skip_word("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_word("recursive");
        self.end_of_tag()?;
        self.loops += 1;
        let body = body_of(self.statements(&["endfor", "else"])?);
        self.loops -= 1;
        let otherwise = if self.skip_word("else") {
            self.scoped_body("endfor")?
        } else {
            self.next();
            Body::default()
        };
        Ok(Statement::For(Arc::new(For { target, items, filter, recursive, body, otherwise })))
    }

    fn if_chain(&mut self) -> Result<Statement> {
        let mut branches = Vec::new();
        self.conditions += 1;
        loop {
            let condition = self.tuple(false, false, &[])?;
            self.end_of_tag()?;
            branches.push((condition, self.statements(&["elif", "else", "endif"])?));
            if !self.skip_word("elif") {
                break;
            }
        }
        let otherwise = if self.skip_word("else") {
            self.body("endif")?
        } else {
            self.next();
            Vec::new()
        };
        self.conditions -= 1;
        Ok(Statement::If { branches, otherwise })
    }

    fn set(&mut self) -> Result<Statement> {
        let target = self.target(true)?;
        if self.skip_operator("=") {
            let value = self.tuple(true, false, &[])?;
            return Ok(Statement::Set { target, value });
        }
        let filter = if self.skip_operator("|") { Some(self.piped_filters()?) } else { None };
        Ok(Statement::Capture { target: Some(target), filter, body: self.scoped_body("endset")? })
    }

    /// `f | g(1)`, applied to the text of a block.
    fn piped_filters(&mut self) -> Result<Expression> {
        let piped = self.make(self.line(), Kind::Piped, 0)?;
        let mut value = self.filter(piped)?;
        while self.skip_operator("|") {
            value = self.filter(value)?;
        }
        Ok(value)
    }

    fn with(&mut self) -> Result<Statement> {
        let mut bindings = Vec::new();
        while *self.current() != Token::BlockEnd {
            if !bindings.is_empty() {
                self.expect_operator(",")?;
            }
            let target = self.target(false)?;
            self.expect_operator("=")?;
            bindings.push((target, self.expression()?));
        }
        Ok(Statement::With { bindings, body: self.scoped_body("endwith")? })
    }

    fn block(&mut self) -> Result<Statement> {
        let name = self.expect_name()?;
        let scoped = self.skip_word("scoped");
        let body = self.separate_body("endblock")?;
        if self.is_word(&name) {
            self.next();
        }
        if self.blocks.insert(name.clone(), body).is_some() {
            return self.error(format!("block {name} is defined twice"));
        }
        Ok(Statement::Block { name, scoped })
    }

    fn macro_definition(&mut self) -> Result<Macro> {
        let name = self.expect_name()?;
        let parameters = self.parameters()?;
        self.macro_body(name, parameters, "endmacro")
    }

    fn call_block(&mut self) -> Result<Statement> {
        let parameters = if self.is_operator("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        if !matches!(call.kind, Kind::Call(..)) {
            return self.unexpected("a call");
        }
        let caller = Arc::new(self.macro_body(Arc::from("caller"), parameters, "endcall")?);
        Ok(Statement::Call { call, caller })
    }

    fn macro_body(&mut self, name: Name, parameters: Vec<(Name, Option<Expression>)>, end: &str) -> Result<Macro> {
        self.uses.push(Uses::default());
        let body = self.separate_body(end)?;
        let uses = self.uses.pop().unwrap_or_default();
        // A parameter of the name is only that.
        let is_parameter = |name: &str| parameters.iter().any(|(parameter, _)| &**parameter == name);
        let (takes_named, takes_positional) = (uses.kwargs && !is_parameter("kwargs"), uses.varargs && !is_parameter("varargs"));
        Ok(Macro { name, parameters, body, takes_caller: uses.caller, takes_named, takes_positional })
    }

    fn parameters(&mut self) -> Result<Vec<(Name, Option<Expression>)>> {
        self.expect_operator("(")?;
        let mut parameters: Vec<(Name, Option<Expression>)> = Vec::new();
        let mut names = HashSet::new();
        while !self.is_operator(")") {
            if !parameters.is_empty() {
                self.expect_operator(",")?;
            }
            let name = self.expect_name()?;
            if !names.insert(name.clone()) {
                return self.error(format!("parameter {name} is given twice"));
            }
            let default = if self.skip_operator("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some()) {
                return self.error("a parameter without a default follows one with a default");
            }
            parameters.push((name, default));
        }
        self.expect_operator(")")?;
        Ok(parameters)
    }

    /// One name, or several with commas between them, with or without parentheses.
    fn target(&mut self, with_attributes: bool) -> Result<Target> {
        let first = self.single_target(with_attributes)?;
        if !self.is_operator(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.skip_operator(",") {
            if self.is_word("in") || self.is_operator("=") || self.is_operator(")") || *self.current() == Token::BlockEnd {
                break;
            }
            targets.push(self.single_target(with_attributes)?);
        }
        Ok(Target::Tuple(targets))
    }

    fn single_target(&mut self, with_attributes: bool) -> Result<Target> {
        if self.skip_operator("(") {
            let inner = self.nested(|parser| parser.target(with_attributes))?;
            self.expect_operator(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        if ["true", "false", "none", "True", "False", "None"].contains(&&*name) {
            return self.error(format!("{name} is a constant and cannot be set"));
        }
        if with_attributes && self.skip_operator(".") {
            return Ok(Target::Attribute(name, self.expect_name()?));
        }
        Ok(Target::Name(name))
    }
}
