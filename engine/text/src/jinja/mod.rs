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
mod error;
mod filters;
mod format;
mod format_spec;
mod functions;
mod interpreter;
mod json;
mod lexer;
mod limits;
mod list_filters;
mod lookup;
mod methods;
mod number;
mod operators;
mod parser;
mod parser_statements;
mod parser_suffixes;
mod sequences;
mod string_methods;
mod tests;
mod text;
mod unicode;
mod value;

use serde_json::{Map, Value as Json};

pub use ast::Contents;
pub use error::{Error, Kind as ErrorKind};

/// A template that was read without errors. Any number of threads may share it.
pub struct Template {
    tree: ast::Template,
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
