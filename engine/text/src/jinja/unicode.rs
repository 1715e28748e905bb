//! Python's classes of characters, where Rust's differ. Used by the lexer, the string methods and repr.

use std::sync::LazyLock;

use regex::Regex;

fn class(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is well formed")
}

fn matches(class: &Regex, character: char) -> bool {
    class.is_match(character.encode_utf8(&mut [0; 4]))
}

/// str.isspace of one character: Unicode's white space and the four separators of ASCII.
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

pub fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

pub fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

pub fn is_letter(character: char) -> bool {
    static LETTER: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{L}$"));
    character.is_alphabetic() && (character.is_ascii() || matches(&LETTER, character))
}

/// str.isalnum of one character.
pub fn is_alphanumeric(character: char) -> bool {
    is_letter(character) || character.is_numeric()
}

/// \w in Python's re.
pub fn is_word(character: char) -> bool {
    is_alphanumeric(character) || character == '_'
}

pub fn is_decimal(character: char) -> bool {
    static DECIMAL: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{Nd}$"));
    character.is_numeric() && (character.is_ascii() || matches(&DECIMAL, character))
}

/// str.isidentifier.
pub fn is_identifier(text: &str) -> bool {
    static IDENTIFIER: LazyLock<Regex> = LazyLock::new(|| class(r"^[\p{XID_Start}_]\p{XID_Continue}*$"));
    IDENTIFIER.is_match(text)
}

/// Whether repr writes the character as it is.
pub fn is_printable(character: char) -> bool {
    static HIDDEN: LazyLock<Regex> = LazyLock::new(|| class(r"^[\p{C}\p{Z}]$"));
    if character.is_ascii() {
        (' '..='~').contains(&character)
    } else {
        !matches(&HIDDEN, character)
    }
}

pub fn is_cased(character: char) -> bool {
    character.is_lowercase() || character.is_uppercase() || is_title(character)
}

/// The digraphs that have a title case, such as U+01C5.
pub fn is_title(character: char) -> bool {
    matches!(character, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}' | '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}'
        | '\u{1fa8}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

/// The title case of a character. None for old Greek letters with an iota below, whose rule is their own.
pub fn push_title(character: char, out: &mut String) -> Option<()> {
    match character {
        '\u{1f80}'..='\u{1fff}' if character.to_uppercase().count() > 1 => return None,
        '\u{1c4}'..='\u{1c6}' => out.push('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => out.push('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => out.push('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => out.push('\u{1f2}'),
        // An apostrophe and a letter: both are of the word's start.
        '\u{149}' => out.extend(character.to_uppercase()),
        // Georgian has capitals, but no title case.
        '\u{10d0}'..='\u{10ff}' => out.push(character),
        _ => {
            let mut upper = character.to_uppercase();
            out.extend(upper.next());
            for more in upper {
                out.extend(more.to_lowercase());
            }
        }
    }
    Some(())
}

/// str.splitlines.
pub fn split_lines(text: &str, keep_ends: bool) -> impl Iterator<Item = &str> {
    let is_end = |character| matches!(character, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut rest = text;
    std::iter::from_fn(move || {
        let (line, end) = match rest.find(is_end) {
            _ if rest.is_empty() => return None,
            None => (rest.len(), rest.len()),
            Some(at) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some(at) => (at, at + rest[at..].chars().next().map_or(0, char::len_utf8)),
        };
        let found = &rest[..if keep_ends { end } else { line }];
        rest = &rest[end..];
        Some(found)
    })
}
