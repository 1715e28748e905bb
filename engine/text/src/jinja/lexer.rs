//! Splits a template's source into tokens as jinja2's lexer does with trim_blocks and lstrip_blocks. Called by parser.rs.

use super::error::{Error, Result};
use super::number;
use super::unicode::{is_identifier, is_word, trim_end, trim_start};

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// Text outside tags.
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Text(String),
    Integer(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

impl Token {
    /// How an error names the token.
    pub fn describe(&self) -> String {
        match self {
            Token::Data(_) => "text".to_string(),
            Token::VariableBegin => "`{{`".to_string(),
            Token::VariableEnd => "`}}`".to_string(),
            Token::BlockBegin => "`{%`".to_string(),
            Token::BlockEnd => "`%}`".to_string(),
            Token::Name(name) => format!("`{name}`"),
            Token::Text(_) => "a string".to_string(),
            Token::Integer(_) | Token::Float(_) => "a number".to_string(),
            Token::Operator(operator) => format!("`{operator}`"),
            Token::End => "the end of the template".to_string(),
        }
    }
}

/// Longer operators come first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
];

/// All line ends become \n, and the one at the end is dropped.
fn with_plain_line_ends(source: &str) -> String {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    source
}

/// The tokens with their lines, closed by End.
pub fn tokens_of(source: &str) -> Result<Vec<(Token, u32)>> {
    let source = with_plain_line_ends(source);
    let mut lexer = Lexer { source: &source, position: 0, line: 1, tokens: Vec::new() };
    lexer.template()?;
    let line = lexer.line;
    lexer.tokens.push((Token::End, line));
    Ok(lexer.tokens)
}

struct Lexer<'s> {
    source: &'s str,
    position: usize,
    line: u32,
    tokens: Vec<(Token, u32)>,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.position..]
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::syntax(self.line, message))
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.rest()[..bytes];
        self.line += passed.matches('\n').count() as u32;
        self.position += bytes;
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.advance(rest.len() - trim_start(rest).len());
    }

    fn template(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let opening =
                rest.match_indices('{').map(|(at, _)| at).find(|&at| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')));
            let Some(at) = opening else {
                if !rest.is_empty() {
                    self.push(Token::Data(rest.to_string()));
                    self.advance(rest.len());
                }
                return Ok(());
            };
            let kind = rest.as_bytes()[at + 1];
            let sign = rest[at + 2..].chars().next().filter(|sign| matches!(sign, '-' | '+'));
            self.data(at, sign, kind == b'{');
            self.position += 2 + usize::from(sign.is_some());
            match kind {
                b'#' => self.comment()?,
                b'{' => {
                    self.push(Token::VariableBegin);
                    self.expression(Token::VariableEnd)?;
                }
                _ => match self.raw_begin() {
                    Some(length) => {
                        self.advance(length);
                        self.raw()?;
                    }
                    None => {
                        self.push(Token::BlockBegin);
                        self.expression(Token::BlockEnd)?;
                    }
                },
            }
        }
    }

    /// The text up to a tag, `length` bytes, without the spaces that the tag takes away.
    fn data(&mut self, length: usize, sign: Option<char>, before_variable: bool) {
        let text = &self.rest()[..length];
        let kept = match sign {
            Some('-') => trim_end(text),
            None if !before_variable => {
                let line_start = text.rfind('\n').map_or(0, |at| at + 1);
                let starts_line = line_start > 0 || self.position == 0 || self.source[..self.position].ends_with('\n');
                if starts_line && trim_start(&text[line_start..]).is_empty() {
                    &text[..line_start]
                } else {
                    text
                }
            }
            _ => text,
        };
        if !kept.is_empty() {
            self.push(Token::Data(kept.to_string()));
        }
        self.advance(length);
    }

    fn comment(&mut self) -> Result<()> {
        let Some(end) = self.rest().find("#}") else { return self.error("a comment has no end") };
        let sign = self.rest()[..end].chars().next_back();
        self.advance(end + 2);
        self.after_block(sign);
        Ok(())
    }

    /// Skips the line end after a tag, or all space if its sign is '-'.
    fn after_block(&mut self, sign: Option<char>) {
        match sign {
            Some('-') => self.skip_space(),
            Some('+') => {}
            _ if self.rest().starts_with('\n') => self.advance(1),
            _ => {}
        }
    }

    /// The length of `raw %}` and, after `-%}`, of the space behind it.
    fn raw_begin(&self) -> Option<usize> {
        let rest = trim_start(self.rest());
        let rest = trim_start(rest.strip_prefix("raw")?);
        let rest = match rest.strip_prefix("-%}") {
            Some(rest) => trim_start(rest),
            None => rest.strip_prefix("%}")?,
        };
        Some(self.rest().len() - rest.len())
    }

    fn raw(&mut self) -> Result<()> {
        let rest = self.rest();
        for (at, _) in rest.match_indices("{%") {
            let tag = &rest[at + 2..];
            let sign = tag.chars().next().filter(|sign| matches!(sign, '-' | '+'));
            let tag = trim_start(&tag[usize::from(sign.is_some())..]);
            let Some(tag) = tag.strip_prefix("endraw").map(trim_start) else { continue };
            let closing = tag.chars().next().filter(|sign| matches!(sign, '-' | '+'));
            let Some(after) = tag[usize::from(closing.is_some())..].strip_prefix("%}") else { continue };
            self.data(at, sign, false);
            let length = rest.len() - at - after.len();
            self.advance(length);
            self.after_block(closing);
            return Ok(());
        }
        self.error("a raw block has no end")
    }

    /// The tokens of a tag until its end, which counts only outside brackets.
    fn expression(&mut self, end: Token) -> Result<()> {
        let closing = if end == Token::VariableEnd { "}}" } else { "%}" };
        let mut brackets = Vec::new();
        loop {
            if brackets.is_empty() {
                let rest = self.rest();
                let sign = rest.chars().next().filter(|sign| *sign == '-' || (*sign == '+' && end == Token::BlockEnd));
                if rest[usize::from(sign.is_some())..].starts_with(closing) {
                    self.push(end.clone());
                    self.advance(usize::from(sign.is_some()) + 2);
                    match end {
                        Token::VariableEnd if sign == Some('-') => self.skip_space(),
                        Token::VariableEnd => {}
                        _ => self.after_block(sign),
                    }
                    return Ok(());
                }
            }
            self.token(&mut brackets)?;
        }
    }

    fn token(&mut self, brackets: &mut Vec<&'static str>) -> Result<()> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return self.error("a tag has no end") };
        if trim_start(rest).len() < rest.len() {
            self.skip_space();
        } else if first.is_ascii_digit() {
            self.number()?;
        } else if is_word(first) {
            let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
            if !is_identifier(&rest[..length]) {
                return self.error("a name has a character that no name may have");
            }
            self.push(Token::Name(rest[..length].to_string()));
            self.advance(length);
        } else if matches!(first, '"' | '\'') {
            self.string(first)?;
        } else {
            let Some(operator) = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) else {
                return self.error(format!("unexpected character {first:?}"));
            };
            match operator {
                "(" => brackets.push(")"),
                "[" => brackets.push("]"),
                "{" => brackets.push("}"),
                ")" | "]" | "}" if brackets.pop() != Some(operator) => return self.error(format!("unexpected `{operator}`")),
                _ => {}
            }
            self.push(Token::Operator(operator));
            self.advance(operator.len());
        }
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let rest = self.rest();
        let after_dot = self.source[..self.position].ends_with('.');
        let Some((length, is_float)) = number::literal_length(rest, after_dot) else { return self.error("a number is malformed") };
        let digits = &rest[..length];
        let token = if is_float {
            digits.replace('_', "").parse().ok().map(Token::Float)
        } else {
            number::integer_from(digits, 0).map_err(|error| error.at(self.line))?.map(Token::Integer)
        };
        let Some(token) = token else { return self.error("a number is too large") };
        self.push(token);
        self.advance(length);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<()> {
        let rest = self.rest();
        let mut escaped = false;
        for (at, character) in rest.char_indices().skip(1) {
            if !escaped && character == quote {
                let text = self.unescaped(&rest[1..at])?;
                self.push(Token::Text(text));
                self.advance(at + 1);
                return Ok(());
            }
            escaped = !escaped && character == '\\';
        }
        self.error("a string has no end")
    }

    /// The value of a string literal, as Python's unicode-escape codec reads it.
    fn unescaped(&self, literal: &str) -> Result<String> {
        let mut out = String::with_capacity(literal.len());
        let mut characters = literal.chars();
        while let Some(character) = characters.next() {
            if character != '\\' {
                out.push(character);
                continue;
            }
            let Some(escape) = characters.next() else { return self.error("a string ends in a backslash") };
            match escape {
                '\n' => {}
                '\\' | '\'' | '"' => out.push(escape),
                'a' => out.push('\x07'),
                'b' => out.push('\x08'),
                'f' => out.push('\x0c'),
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                'v' => out.push('\x0b'),
                '0'..='7' => {
                    let rest = characters.as_str();
                    let more = rest.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                    let code = u32::from_str_radix(&format!("{escape}{}", &rest[..more]), 8).unwrap_or_default();
                    out.extend(char::from_u32(code));
                    characters = rest[more..].chars();
                }
                'x' | 'u' | 'U' => {
                    let rest = characters.as_str();
                    let digits = rest.get(
                        ..match escape {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        },
                    );
                    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
                    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
                    let (Some(digits), Some(code)) = (digits, code) else {
                        return self.error(format!("\\{escape} in a string needs the digits of a character (no surrogate)"));
                    };
                    out.push(code);
                    characters = rest[digits.len()..].chars();
                }
                'N' => return self.error("\\N{...} in a string is not supported: write the character"),
                // Python keeps the backslash; it has replaced other than ASCII by an escape before.
                _ => {
                    out.push('\\');
                    match escape as u32 {
                        0..=0x7f => out.push(escape),
                        code @ 0x80..=0xff => out.push_str(&format!("x{code:02x}")),
                        code @ 0x100..=0xffff => out.push_str(&format!("u{code:04x}")),
                        code => out.push_str(&format!("U{code:08x}")),
                    }
                }
            }
        }
        Ok(out)
    }
}
