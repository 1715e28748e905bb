//! Jinja2 as Python's jinja2 3.1 runs it in transformers: an immutable sandbox with trim_blocks, lstrip_blocks and loop controls, and with
//! the functions, filters and tags that transformers adds. Used by chat_template.rs.
//!
//! A template renders to the text that jinja2 makes, or fails with an error; a different text is a fault. Constructs that no chat
//! template has, and values whose Python text is an address in memory, are errors. Text in strings is Unicode without lone surrogates,
//! integers have 128 bits, and no template can use more than the limits of limits.rs.
//!
//! lexer.rs and parser.rs make ast.rs from a source; interpreter.rs runs it on the values of value.rs.

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

pub use error::{Error, Kind as ErrorKind};

/// A template that was read without errors. Any number of threads may share it.
pub struct Template {
    tree: ast::Tree,
}

impl Template {
    pub fn new(source: &str) -> Result<Self, Error> {
        Ok(Template { tree: parser::parse(source)? })
    }

    /// Contents must be lists of parts: of a text, the template would take the characters for parts and lose them.
    pub fn wants_parts(&self) -> bool {
        self.tree.wants_parts
    }

    pub fn render(&self, variables: &Map<String, Json>) -> Result<String, Error> {
        interpreter::render(&self.tree, variables)
    }
}
