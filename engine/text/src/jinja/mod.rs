//! Jinja2 as Python's jinja2 3.1 runs it in transformers: an immutable sandbox with trim_blocks, lstrip_blocks and loop controls, and with
//! the functions, filters and tags that transformers adds. Used by chat_template.rs.
//!
//! A template renders to the text that jinja2 makes, or fails with an error. A different text is a fault. Errors are: constructs that no
//! chat template has, integers of more than 128 bits, lone surrogates, values whose Python text is an address in memory, and what
//! exceeds limits.rs, so that a hostile model folder or job takes neither the worker's memory nor its time.
//!
//! From a source to a tree: lexer.rs, parser.rs, symbols.rs (which scope has which variable) and message_contents.rs make ast.rs.
//! From a tree to a text: interpreter.rs runs statements and expressions on the values of value.rs, with the variables of scopes.rs;
//! generators.rs iterates, operators.rs, filters.rs, jinja_tests.rs, functions.rs and methods.rs are the operations.

mod arguments;
mod ast;
mod dict;
mod error;
mod filters;
mod format;
mod format_spec;
mod functions;
mod generators;
mod interpreter;
mod jinja_tests;
mod json;
mod lexer;
mod limits;
mod list_filters;
mod lookup;
mod loops;
mod message_contents;
mod methods;
mod number;
mod operators;
mod parser;
mod parser_statements;
mod parser_suffixes;
mod scopes;
mod sequences;
mod string_methods;
mod symbols;
mod text;
mod unicode;
mod value;
mod writer;

use serde_json::{Map, Value as Json};

pub use ast::Contents;
pub use error::{cut, Error, Kind as ErrorKind};

/// A template that was read without errors. Any number of threads may share it.
pub struct Template {
    tree: ast::Tree,
}

impl Template {
    pub fn new(source: &str) -> Result<Self, Error> {
        Ok(Template { tree: parser::parse(source)? })
    }

    pub fn contents(&self) -> Contents {
        self.tree.contents
    }

    pub fn render(&self, variables: &Map<String, Json>) -> Result<String, Error> {
        interpreter::render(&self.tree, variables)
    }
}
