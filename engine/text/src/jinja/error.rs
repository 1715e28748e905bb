//! What can go wrong in a template. Used by all files of jinja/.

/// Longer texts of errors are cut, because a template or a job decides what they say.
const MESSAGE_MAX: usize = 500;

#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    /// Counted from 1. None until the statement that failed is known.
    pub line: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Syntax,
    Failed,
    /// By raise_exception: the message is the template's own.
    Raised,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: Kind, message: String) -> Self {
        Error { kind, message: cut(message, MESSAGE_MAX), line: None }
    }

    pub fn syntax(line: u32, message: impl Into<String>) -> Self {
        Self::new(Kind::Syntax, message.into()).at(line)
    }

    pub fn raised(message: String) -> Self {
        Self::new(Kind::Raised, message)
    }

    /// Sets the line unless an inner expression has set it.
    pub fn at(mut self, line: u32) -> Self {
        self.line.get_or_insert(line);
        self
    }
}

/// At most so many characters of a message.
pub fn cut(message: String, characters_max: usize) -> String {
    match message.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message,
    }
}

/// The beginning of a text, for an error.
pub fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(100).collect::<String>())
}

/// The error of an operation.
pub fn failed(message: impl Into<String>) -> Error {
    Error::new(Kind::Failed, message.into())
}
