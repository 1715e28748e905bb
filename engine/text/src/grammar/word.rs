//! Regular expressions that structural tags consist of, between their schemas: printed as Lark's, and compared with one another. Called by
//! parts.rs.

use std::fmt;

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};
use serde_json::Value;

use super::crossing;

/// Of all comparisons of a structural tag, in the library's units of about 70 ns.
const FUEL: u64 = 3_000_000;

pub const TOO_COMPLEX: &str = "it is too complex: simplify it";

/// What is left of it.
pub struct Fuel(u64);

impl Default for Fuel {
    fn default() -> Self {
        Fuel(FUEL)
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Word {
    Text(String),
    /// The syntax of Structure::Regex.
    Pattern(String),
    /// Any text that has none of these; they are sorted.
    Free(Vec<String>),
    /// Any text up to the first of `all`, which is one of `ends` and its last part.
    Until {
        all: Vec<String>,
        ends: Vec<String>,
    },
    Concat(Vec<Word>),
    Or(Vec<Word>),
    Repeat(Box<Word>, u32, Option<u32>),
}

impl Word {
    /// One after the other. Free text that may not have what comes next ends there.
    pub fn concat(words: impl IntoIterator<Item = Word>) -> Word {
        let mut all: Vec<Word> = Vec::new();
        let flat = words.into_iter().flat_map(|word| match word {
            Word::Concat(inner) => inner,
            word => vec![word],
        });
        for word in flat.filter(|word| !word.is_empty_text()) {
            let merged = match (all.last(), word.texts()) {
                (Some(Word::Free(without)), Some(ends)) if ends.iter().all(|end| without.contains(end)) => {
                    Some(Word::Until { all: without.clone(), ends })
                }
                (Some(Word::Text(before)), _) => match &word {
                    Word::Text(text) => Some(Word::Text(format!("{before}{text}"))),
                    _ => None,
                },
                _ => None,
            };
            match merged {
                Some(merged) => *all.last_mut().expect("it has what was merged") = merged,
                None => all.push(word),
            }
        }
        match all.len() {
            0 => Word::Text(String::new()),
            1 => all.remove(0),
            _ => Word::Concat(all),
        }
    }

    pub fn or(mut words: Vec<Word>) -> Word {
        match words.len() {
            1 => words.remove(0),
            _ => Word::Or(words),
        }
    }

    pub fn is_empty_text(&self) -> bool {
        matches!(self, Word::Text(text) if text.is_empty())
    }

    /// None if it is not one of some texts.
    fn texts(&self) -> Option<Vec<String>> {
        match self {
            Word::Text(text) => Some(vec![text.clone()]),
            Word::Or(words) => words.iter().map(|word| word.texts().filter(|texts| texts.len() == 1)?.pop()).collect(),
            _ => None,
        }
    }

    /// In the syntax of a Lark terminal. `name_of`: the name of another terminal, as the syntax may not be nested deeply.
    pub fn lark(&self, name_of: &mut dyn FnMut(&Word) -> String) -> String {
        let mut joined = |words: &[Word], between: &str| words.iter().map(&mut *name_of).collect::<Vec<_>>().join(between);
        match self {
            Word::Text(text) => literal(text),
            Word::Pattern(pattern) => format!("/{}/", slashed(pattern)),
            Word::Free(without) if without.is_empty() => "/(.|\\n)*/".to_string(),
            Word::Free(without) => format!("/(.|\\n)*/ & ~(/(.|\\n)*/ {} /(.|\\n)*/)", one_of(without)),
            Word::Until { all, ends } => {
                let text = format!("{} {}", name_of(&Word::Free(all.clone())), one_of(ends));
                match earlier(all, ends) {
                    earlier if earlier.is_empty() => text,
                    earlier => format!("({text}) & ~(/(.|\\n)*/ {} /(.|\\n)+/)", one_of(&earlier)),
                }
            }
            Word::Concat(words) => joined(words, " "),
            Word::Or(words) => joined(words, " | "),
            Word::Repeat(word, least, most) => format!("({}){}", name_of(word), times(*least, *most)),
        }
    }

    fn ast(&self) -> RegexAst {
        let texts = |texts: &[String]| RegexAst::Or(texts.iter().cloned().map(RegexAst::Literal).collect());
        match self {
            Word::Text(text) => RegexAst::Literal(text.clone()),
            Word::Pattern(pattern) => RegexAst::Regex(pattern.clone()),
            Word::Free(without) => {
                let with = RegexAst::Concat(vec![any(), texts(without), any()]);
                RegexAst::And(vec![any(), RegexAst::Not(Box::new(with))])
            }
            Word::Until { all, ends } => {
                let text = RegexAst::Concat(vec![Word::Free(all.clone()).ast(), texts(ends)]);
                match earlier(all, ends) {
                    earlier if earlier.is_empty() => text,
                    earlier => {
                        let sooner = RegexAst::Concat(vec![any(), texts(&earlier), some()]);
                        RegexAst::And(vec![text, RegexAst::Not(Box::new(sooner))])
                    }
                }
            }
            Word::Concat(words) => RegexAst::Concat(words.iter().map(Word::ast).collect()),
            Word::Or(words) => RegexAst::Or(words.iter().map(Word::ast).collect()),
            Word::Repeat(word, least, most) => RegexAst::Repeat(Box::new(word.ast()), *least, most.unwrap_or(u32::MAX)),
        }
    }

    /// The error says what is wrong with a pattern.
    pub fn facts(&self, fuel: &mut Fuel) -> Result<Facts, String> {
        Ok(match self {
            Word::Text(text) => Facts { nullable: text.is_empty(), first: Bytes::of(text.bytes().next()) },
            Word::Free(without) => {
                let is_free = |byte: &u8| !without.iter().any(|text| text.as_bytes() == [*byte]);
                Facts { nullable: true, first: Bytes::of((0..=u8::MAX).filter(is_free)) }
            }
            Word::Until { .. } => Facts { nullable: false, first: Bytes::of(0..=u8::MAX) },
            Word::Pattern(_) => {
                let mut regex = compiled(&self.ast(), fuel)?;
                let start = regex.initial_state();
                if start.is_dead() {
                    return Err(format!("nothing matches {self}"));
                }
                let first = Bytes::of((0..=u8::MAX).filter(|&byte| !regex.transition(start, byte).is_dead()));
                Facts { nullable: regex.is_accepting(start), first }
            }
            Word::Concat(words) => {
                let mut all = Facts { nullable: true, first: Bytes::default() };
                for word in words {
                    let facts = word.facts(fuel)?;
                    if all.nullable {
                        all.first.add(&facts.first);
                    }
                    all.nullable &= facts.nullable;
                }
                all
            }
            Word::Or(words) => {
                let mut all = Facts { nullable: false, first: Bytes::default() };
                for word in words {
                    let facts = word.facts(fuel)?;
                    all.first.add(&facts.first);
                    all.nullable |= facts.nullable;
                }
                all
            }
            Word::Repeat(word, least, _) => {
                let facts = word.facts(fuel)?;
                Facts { nullable: facts.nullable || *least == 0, ..facts }
            }
        })
    }

    /// Whether both have a text.
    pub fn meets(&self, other: &Word, fuel: &mut Fuel) -> Result<bool, String> {
        match (self, other) {
            (Word::Text(one), Word::Text(other)) => Ok(one == other),
            _ if self.ends_apart(other) || other.ends_apart(self) => Ok(false),
            _ => match self.tails(other) {
                Some((one, other)) => one.meets(&other, fuel),
                None => has_any(RegexAst::And(vec![self.ast(), other.ast()]), fuel),
            },
        }
    }

    /// Whether a text of `other` begins with a shorter one of this, and goes on with one of `bytes`.
    pub fn runs_on(&self, bytes: &Bytes, other: &Word, fuel: &mut Fuel) -> Result<bool, String> {
        match (self, other) {
            _ if bytes.is_empty() => Ok(false),
            (Word::Text(one), Word::Text(other)) => {
                let rest = other.as_bytes().strip_prefix(one.as_bytes()).unwrap_or_default();
                Ok(rest.first().is_some_and(|&byte| bytes.has(byte)))
            }
            (Word::Until { all, .. }, Word::Until { all: others, .. }) if all == others => Ok(false),
            _ if self.ends_apart(other) => Ok(false),
            _ => match self.tails(other) {
                Some((one, other)) => one.runs_on(bytes, &other, fuel),
                None => {
                    let longer = RegexAst::Concat(vec![self.ast(), RegexAst::ByteSet(bytes.0.to_vec()), any_bytes()]);
                    has_any(RegexAst::And(vec![longer, other.ast()]), fuel)
                }
            },
        }
    }

    /// Both begin with a text up to the first of the same ends, and end there in different ways, or one of them has no such end.
    fn ends_apart(&self, other: &Word) -> bool {
        match (self.head(), other.head()) {
            (Word::Until { all, ends }, Word::Until { all: others, ends: other_ends }) => {
                all == others && ends.iter().all(|end| !other_ends.contains(end))
            }
            (Word::Until { all, .. }, Word::Free(without)) => all == without && other.head() == other,
            _ => false,
        }
    }

    /// What follows a beginning that both have, if that has one place only where it can end.
    fn tails(&self, other: &Word) -> Option<(Word, Word)> {
        let is_common = matches!(self.head(), Word::Until { .. }) && self.head() == other.head();
        is_common.then(|| (self.tail(), other.tail()))
    }

    fn tail(&self) -> Word {
        match self {
            Word::Concat(words) => Word::concat(words[1..].iter().cloned()),
            _ => Word::Text(String::new()),
        }
    }

    fn head(&self) -> &Word {
        match self {
            Word::Concat(words) => words.first().unwrap_or(self),
            word => word,
        }
    }
}

/// For errors.
impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let joined = |words: &[Word], between: &str| words.iter().map(Word::to_string).collect::<Vec<_>>().join(between);
        match self {
            Word::Text(text) => write!(out, "{}", literal(text)),
            Word::Pattern(pattern) => write!(out, "/{pattern}/"),
            Word::Free(_) => write!(out, "any text"),
            Word::Until { ends, .. } => write!(out, "any text up to {}", one_of(ends)),
            Word::Concat(words) => write!(out, "{}", joined(words, " ")),
            Word::Or(words) => write!(out, "({})", joined(words, " | ")),
            Word::Repeat(word, least, most) => write!(out, "({word}){}", times(*least, *most)),
        }
    }
}

pub struct Facts {
    /// It has the empty text.
    pub nullable: bool,
    pub first: Bytes,
}

/// A set of bytes.
#[derive(Clone, Default)]
pub struct Bytes([u32; 8]);

impl Bytes {
    pub fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut all = Bytes::default();
        bytes.into_iter().for_each(|byte| all.0[usize::from(byte) / 32] |= 1 << (byte % 32));
        all
    }

    pub fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte) / 32] >> (byte % 32) & 1 != 0
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub fn meets(&self, other: &Bytes) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one & other != 0)
    }

    pub fn add(&mut self, other: &Bytes) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one |= other);
    }
}

fn any() -> RegexAst {
    RegexAst::Regex("(.|\\n)*".to_string())
}

fn some() -> RegexAst {
    RegexAst::Regex("(.|\\n)+".to_string())
}

fn any_bytes() -> RegexAst {
    RegexAst::Repeat(Box::new(RegexAst::ByteSet(vec![u32::MAX; 8])), 0, u32::MAX)
}

fn compiled(ast: &RegexAst, fuel: &mut Fuel) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk(ast).map_err(|error| error.to_string())?;
    crossing::check(builder.exprset())?;
    let regex = builder.into_regex_limited(expression, fuel.0).map_err(|_| TOO_COMPLEX.to_string())?;
    fuel.0 = fuel.0.saturating_sub(regex.cost());
    if fuel.0 == 0 {
        return Err(TOO_COMPLEX.to_string());
    }
    Ok(regex)
}

fn has_any(ast: RegexAst, fuel: &mut Fuel) -> Result<bool, String> {
    Ok(!compiled(&ast, fuel)?.always_empty())
}

fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn one_of(texts: &[String]) -> String {
    let all: Vec<String> = texts.iter().map(|text| literal(text)).collect();
    format!("({})", all.join(" | "))
}

/// Those of `all` that may end within one of `ends`, before its last byte: what ends or begins there must not be among them.
fn earlier(all: &[String], ends: &[String]) -> Vec<String> {
    let is_earlier = |other: &&String| {
        let begins_before =
            |end: &&String| (1..end.len()).any(|length| other.len() > length && other.as_bytes().ends_with(&end.as_bytes()[..length]));
        let is_within = |end: &&String| end.find(other.as_str()).is_some_and(|place| place + other.len() < end.len());
        ends.iter().any(|end| begins_before(&end) || (ends.contains(other) && is_within(&end)))
    };
    all.iter().filter(is_earlier).cloned().collect()
}

/// Lark's sign for so many times.
pub fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_string(),
        (1, None) => "+".to_string(),
        (0, Some(1)) => "?".to_string(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// A regular expression between two slashes.
fn slashed(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(std::iter::once('\\').chain(characters.next())),
            '/' => out.push_str("\\/"),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out
}
