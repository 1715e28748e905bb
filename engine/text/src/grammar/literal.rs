//! Numbers in the JSON of an answer that every reader can read: no exponent that is infinite, and no digits without end. llguidance has no
//! bound for them. Called by mod.rs.

use std::sync::Arc;

use llguidance::toktrie::{SimpleVob, TokEnv, TokenId};

/// Before the point, and after it. With the exponent, numbers stay below 1e200.
const DIGITS_MAX: u8 = 100;
const EXPONENT_DIGITS_MAX: u8 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Brackets, signs, words and white space.
    Between,
    Text,
    /// After a backslash in a text.
    Escape,
    /// So many digits of a number's part.
    Integer(u8),
    Fraction(u8),
    Exponent(u8),
}

impl Part {
    /// None: the number would be too long.
    fn after(self, byte: u8) -> Option<Part> {
        let next = match (self, byte) {
            (Part::Escape, _) | (Part::Text, 0..=b'!' | b'#'..=b'[' | b']'..) => Part::Text,
            (Part::Text, b'\\') => Part::Escape,
            (Part::Text, _) => Part::Between,
            (Part::Between, b'0'..=b'9') => Part::Integer(1),
            (Part::Integer(count), b'0'..=b'9') => Part::Integer(count + 1),
            (Part::Fraction(count), b'0'..=b'9') => Part::Fraction(count + 1),
            (Part::Exponent(count), b'0'..=b'9') => Part::Exponent(count + 1),
            (Part::Integer(_), b'.') => Part::Fraction(0),
            (Part::Integer(_) | Part::Fraction(_), b'e' | b'E') => Part::Exponent(0),
            (Part::Exponent(0), b'+' | b'-') => Part::Exponent(0),
            (_, b'"') => Part::Text,
            _ => Part::Between,
        };
        match next {
            Part::Integer(count) | Part::Fraction(count) if count > DIGITS_MAX => None,
            Part::Exponent(count) if count > EXPONENT_DIGITS_MAX => None,
            _ => Some(next),
        }
    }

    fn after_all(self, bytes: &[u8]) -> Option<Part> {
        bytes.iter().try_fold(self, |part, &byte| part.after(byte))
    }

    fn is_number(self) -> bool {
        matches!(self, Part::Integer(_) | Part::Fraction(_) | Part::Exponent(_))
    }
}

/// The tokens of a vocabulary with which a number may become too long.
pub struct Digits {
    environment: TokEnv,
    /// That go on with a number.
    onward: Vec<TokenId>,
    /// That hold as much by themselves.
    whole: Vec<TokenId>,
}

impl Digits {
    pub fn new(environment: &TokEnv) -> Self {
        let trie = environment.tok_trie();
        let tokens = 0..trie.vocab_size() as TokenId;
        let goes_on = |byte: &u8| byte.is_ascii_digit() || b".eE+-".contains(byte);
        let onward = tokens.clone().filter(|&token| trie.token(token).first().is_some_and(goes_on)).collect();
        let exceeds =
            |token: &TokenId| [Part::Between, Part::Text, Part::Escape].iter().any(|part| part.after_all(trie.token(*token)).is_none());
        Digits { environment: environment.clone(), onward, whole: tokens.filter(exceeds).collect() }
    }

    fn bytes_of(&self, token: TokenId) -> &[u8] {
        self.environment.tok_trie().token(token)
    }
}

/// Where in its JSON an answer is.
#[derive(Clone)]
pub struct Place {
    digits: Arc<Digits>,
    part: Part,
}

impl Place {
    pub fn new(digits: &Arc<Digits>) -> Self {
        Place { digits: Arc::clone(digits), part: Part::Between }
    }

    pub fn accept(&mut self, token: TokenId) {
        self.part = self.part.after_all(self.digits.bytes_of(token)).unwrap_or(Part::Between);
    }

    /// Takes the tokens out of `mask` with which a number would be too long. It may end instead.
    pub fn restrict(&self, mask: &mut SimpleVob) {
        let onward: &[TokenId] = if self.part.is_number() { &self.digits.onward } else { &[] };
        let exceeds = |token: TokenId| self.part.after_all(self.digits.bytes_of(token)).is_none();
        let taken: Vec<TokenId> =
            onward.iter().chain(&self.digits.whole).copied().filter(|&token| mask.is_allowed(token) && exceeds(token)).collect();
        taken.iter().for_each(|&token| mask.disallow_token(token));
        // What a rule demands outside of JSON stays possible.
        if mask.is_zero() {
            taken.iter().for_each(|&token| mask.allow_token(token));
        }
    }
}
