//! Regular expressions of JSON schemas, whose readers differ: ECMA-262's `\d` and `\w` are ASCII's, those of Python's `re` are Unicode's,
//! and Rust's syntax, which the library reads, has parts that mean something else to both. A pattern is written so that what it matches, it
//! matches for all of them; what has another meaning elsewhere is refused by name. Called by schema.rs, mod.rs and tags.rs.

use llguidance::derivre::{RegexAst, RegexBuilder};
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    self, Ast, ClassPerl, ClassPerlKind, ClassSet, ClassSetItem, Flag, FlagsItemKind, GroupKind, HexLiteralKind, Literal, LiteralKind,
    RepetitionKind, Span, SpecialLiteralKind,
};

/// Characters that a text in JSON here cannot have: those without a short escape.
const UNWRITABLE: &str = r"[\x00-\x07\x0b\x0e-\x1f\x7f]";
/// What may follow in a word for Python or for Rust, inside brackets.
const WORD: &str = r"\p{Alphabetic}\p{M}\p{N}\p{Pc}\p{Join_Control}";
/// White space for ECMA-262 and Python, inside brackets.
const SPACE: &str = r"\t\n\f\r\x20\p{Zs}\x{2028}\x{2029}";
/// Of one comparison, in the library's units of about 70 ns.
const FUEL: u64 = 10_000;

/// For a regular expression in Rust's syntax: classes of ASCII in place of `\d`, `\D`, `\w` and `\W`. Classes may stand within brackets.
pub fn ascii(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some(escaped) => out.extend(['\\', escaped]),
            None => out.push('\\'),
        }
    }
    out
}

/// For whom a class such as `\w` holds.
#[derive(Clone, Copy, PartialEq)]
pub enum Readers {
    /// What matches does so for ECMA-262 and for Python.
    All,
    /// What matches and what does not are ECMA-262's.
    Ecma,
}

/// A pattern of a JSON schema, for the library.
pub fn in_json(pattern: &str, readers: Readers) -> Result<String, String> {
    Rewriting::of(pattern, readers, false)
}

/// The names of members that only Python matches: those that end in a line feed after which `$` holds, too. None if there are no others
/// than ECMA-262's.
pub fn before_line_feed(pattern: &str) -> Result<Option<String>, String> {
    let with = Rewriting::of(pattern, Readers::Ecma, true)?;
    let without = in_json(pattern, Readers::Ecma)?;
    Ok((with != without).then_some(with))
}

/// Whether no text matches both. False where it takes long to tell.
pub fn are_apart(one: &str, other: &str) -> bool {
    let mut builder = RegexBuilder::new();
    let both = RegexAst::And(vec![RegexAst::SearchRegex(one.to_string()), RegexAst::SearchRegex(other.to_string())]);
    let Ok(both) = builder.mk(&both) else { return false };
    builder.into_regex_limited(both, FUEL).is_ok_and(|mut regex| regex.always_empty())
}

/// Those of `names` that match, if no other text does. None also where it takes long to tell.
pub fn only_of(pattern: &str, names: &[String]) -> Option<Vec<String>> {
    let search = RegexAst::SearchRegex(pattern.to_string());
    let mut builder = RegexBuilder::new();
    let matching = builder.mk(&search).ok()?;
    let mut regex = builder.to_regex_limited(matching, FUEL).ok()?;
    let matched: Vec<String> = names.iter().filter(|name| regex.is_match(name)).cloned().collect();
    if matched.is_empty() {
        return None;
    }
    let listed = RegexAst::Or(matched.iter().cloned().map(RegexAst::Literal).collect());
    let others = builder.mk(&RegexAst::And(vec![search, RegexAst::Not(Box::new(listed))])).ok()?;
    let has_none = builder.into_regex_limited(others, FUEL).is_ok_and(|mut regex| regex.always_empty());
    has_none.then_some(matched)
}

struct Rewriting<'a> {
    pattern: &'a str,
    readers: Readers,
    takes_line_feed: bool,
    /// What stands in place of parts of the pattern, in their order.
    changes: Vec<(Span, String)>,
}

impl Rewriting<'_> {
    fn of(pattern: &str, readers: Readers, takes_line_feed: bool) -> Result<String, String> {
        let refused = |what: &dyn std::fmt::Display| format!("the pattern {pattern} is not supported: {what}");
        let ast = Parser::new().parse(pattern).map_err(|error| refused(error.kind()))?;
        let mut rewriting = Rewriting { pattern, readers, takes_line_feed, changes: Vec::new() };
        rewriting.visit(&ast).map_err(|why| refused(&why))?;
        let mut out = String::with_capacity(pattern.len());
        let mut place = 0;
        for (span, text) in rewriting.changes {
            out.push_str(&pattern[place..span.start.offset]);
            out.push_str(&text);
            place = span.end.offset;
        }
        out.push_str(&pattern[place..]);
        Ok(out)
    }

    fn text(&self, span: &Span) -> &str {
        &self.pattern[span.start.offset..span.end.offset]
    }

    fn visit(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::Empty(_) | Ast::Dot(_) => Ok(()),
            Ast::Flags(flags) => self.check_flags(&flags.flags),
            Ast::Literal(literal) => {
                check_escape(self.text(&literal.span), literal)?;
                if is_unwritable(literal.c) {
                    return Err(format!("control characters in patterns are not supported ({})", literal.c.escape_default()));
                }
                Ok(())
            }
            Ast::Assertion(assertion) => match assertion.kind {
                ast::AssertionKind::StartLine => Ok(()),
                ast::AssertionKind::EndLine => {
                    if self.takes_line_feed {
                        self.changes.push((assertion.span, "\\n$".to_string()));
                    }
                    Ok(())
                }
                _ => Err(format!("{} has no meaning that all readers share; write ^, $ or classes", self.text(&assertion.span))),
            },
            Ast::ClassUnicode(class) => {
                self.changes.push((class.span, format!("[{}--{UNWRITABLE}]", self.text(&class.span))));
                Ok(())
            }
            Ast::ClassPerl(class) => {
                let text = self.perl(class, false);
                self.changes.push((class.span, if class.negated { format!("[{text}--{UNWRITABLE}]") } else { text }));
                Ok(())
            }
            Ast::ClassBracketed(class) => {
                let ClassSet::Item(item) = &class.kind else {
                    return Err("&&, -- and ~~ between classes have another meaning to other readers; write one class".to_string());
                };
                if !class.negated && !may_be_unwritable(item) {
                    return self.visit_item(item, false);
                }
                self.changes.push((Span::new(class.span.start, class.span.start), "[".to_string()));
                self.visit_item(item, class.negated)?;
                self.changes.push((Span::new(class.span.end, class.span.end), format!("--{UNWRITABLE}]")));
                Ok(())
            }
            Ast::Repetition(repetition) => {
                let sign = self.text(&repetition.op.span);
                let is_counted = matches!(repetition.op.kind, RepetitionKind::Range(_));
                if is_counted && (sign.starts_with("{,") || sign.contains(char::is_whitespace)) {
                    return Err(format!("{sign} has another meaning to other readers; write a number, and no space"));
                }
                if matches!(*repetition.ast, Ast::Repetition(_)) {
                    return Err("one repetition after another has another meaning to other readers; write a group between".to_string());
                }
                self.visit(&repetition.ast)
            }
            Ast::Group(group) => {
                match &group.kind {
                    GroupKind::CaptureIndex(_) => {}
                    // The library would end the match there.
                    GroupKind::CaptureName { name, .. } if name.name == "stop" => return Err("a group may not be named stop".to_string()),
                    GroupKind::CaptureName { .. } => {}
                    GroupKind::NonCapturing(flags) => self.check_flags(flags)?,
                }
                self.visit(&group.ast)
            }
            Ast::Alternation(parts) => parts.asts.iter().try_for_each(|part| self.visit(part)),
            Ast::Concat(parts) => parts.asts.iter().try_for_each(|part| self.visit(part)),
        }
    }

    fn visit_item(&mut self, item: &ClassSetItem, negated: bool) -> Result<(), String> {
        match item {
            ClassSetItem::Empty(_) | ClassSetItem::Unicode(_) => Ok(()),
            ClassSetItem::Literal(literal) => check_escape(self.text(&literal.span), literal),
            ClassSetItem::Range(range) => {
                check_escape(self.text(&range.start.span), &range.start)?;
                check_escape(self.text(&range.end.span), &range.end)
            }
            ClassSetItem::Ascii(class) => Err(format!("{} has another meaning to other readers; write ranges", self.text(&class.span))),
            ClassSetItem::Bracketed(_) => {
                Err("a class in a class has another meaning to other readers; write \\[ for a bracket".to_string())
            }
            ClassSetItem::Perl(class) => {
                self.changes.push((class.span, self.perl(class, negated)));
                Ok(())
            }
            ClassSetItem::Union(items) => items.items.iter().try_for_each(|item| self.visit_item(item, negated)),
        }
    }

    fn check_flags(&self, flags: &ast::Flags) -> Result<(), String> {
        let is_shared = |item: &ast::FlagsItem| {
            matches!(item.kind, FlagsItemKind::Flag(Flag::CaseInsensitive | Flag::DotMatchesNewLine) | FlagsItemKind::Negation)
        };
        match flags.items.iter().find(|item| !is_shared(item)) {
            Some(item) => Err(format!("the flag {} is none of i and s", self.text(&item.span))),
            None => Ok(()),
        }
    }

    /// `outside`: the class stands in brackets that exclude it, so that it must have more rather than less.
    fn perl(&self, class: &ClassPerl, outside: bool) -> String {
        let (narrow, wide) = match class.kind {
            ClassPerlKind::Digit => ("0-9".to_string(), r"\p{Nd}".to_string()),
            ClassPerlKind::Word => ("0-9A-Za-z_".to_string(), WORD.to_string()),
            ClassPerlKind::Space => (SPACE.to_string(), format!(r"{SPACE}\x{{85}}\x{{feff}}")),
        };
        let ecma = if class.kind == ClassPerlKind::Space { format!(r"{SPACE}\x{{feff}}") } else { narrow.clone() };
        match (self.readers, class.negated) {
            (Readers::Ecma, false) => format!("[{ecma}]"),
            (Readers::Ecma, true) => format!("[^{ecma}]"),
            (Readers::All, false) => format!("[{}]", if outside { wide } else { narrow }),
            (Readers::All, true) => format!("[^{}]", if outside { narrow } else { wide }),
        }
    }
}

/// A text in JSON here cannot have it: the library writes it with no short escape.
pub fn is_unwritable(character: char) -> bool {
    character.is_ascii_control() && !"\u{8}\t\n\u{c}\r".contains(character)
}

fn may_be_unwritable(item: &ClassSetItem) -> bool {
    match item {
        ClassSetItem::Literal(literal) => is_unwritable(literal.c),
        ClassSetItem::Range(range) => (range.start.c..=range.end.c).take(0x80).any(is_unwritable),
        ClassSetItem::Perl(class) => class.negated,
        ClassSetItem::Union(items) => items.items.iter().any(may_be_unwritable),
        ClassSetItem::Empty(_) => false,
        _ => true,
    }
}

/// Escapes that other readers take for something else.
fn check_escape(text: &str, literal: &Literal) -> Result<(), String> {
    let is_shared = match &literal.kind {
        LiteralKind::Verbatim | LiteralKind::Meta | LiteralKind::Superfluous => true,
        LiteralKind::HexFixed(kind) => *kind != HexLiteralKind::UnicodeLong,
        LiteralKind::HexBrace(kind) => *kind == HexLiteralKind::UnicodeShort,
        LiteralKind::Special(kind) => *kind != SpecialLiteralKind::Bell,
        LiteralKind::Octal => false,
    };
    if is_shared {
        return Ok(());
    }
    Err(format!("{text} has another meaning to other readers; write the character, or \\u and four digits"))
}
