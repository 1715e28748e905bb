//! Bounds the intersections of regular expressions (`&` in Lark, several patterns for one text in JSON schemas). The library takes one step
//! of an intersection as a whole: it pairs each way in which one part may go on with each way of all others, and counts the work only
//! afterwards. Twenty patterns of two ways each make a million pairs, which no limit of the library stops. Called by mod.rs, word.rs and
//! meeting.rs.

use std::collections::{HashMap, HashSet};

use llguidance::derivre::raw::ExprSet;
use llguidance::derivre::ExprRef;

/// Of the pairs of one step.
pub const WAYS_MAX: u64 = 1_024;
/// Of the steps of all intersections of a grammar together.
const WAYS_TOGETHER_MAX: u64 = 1 << 17;
/// Of the visits to expressions, about 100 ns each.
const VISITS_MAX: usize = 4_000_000;

pub const TOO_MANY_WAYS: &str =
    "it is too complex: too many patterns hold for one text; give fewer, let them begin with ^ and end with $, or \
                                 write one pattern for all";

/// The numbers of the library's kinds of expressions.
const BYTE: u8 = 3;
const BYTE_SET: u8 = 4;
const BYTES: u8 = 5;
const REMAINDER: u8 = 6;
const NOT: u8 = 8;
const CONCAT: u8 = 10;
const OR: u8 = 11;
const AND: u8 = 12;

/// Where a character begins.
const START: u64 = 0;

/// Checks all intersections of a grammar, before any step is taken.
pub fn check(expressions: &ExprSet) -> Result<(), String> {
    let mut ways = Ways::new(expressions);
    let mut together: u64 = 0;
    // An expression comes after those that it consists of.
    for id in 1..expressions.len() as u32 {
        let expression = ExprRef::new(id);
        if ways.kind(expression) == AND {
            together = together.saturating_add(ways.of_intersection(expression)?);
        }
    }
    if together > WAYS_TOGETHER_MAX {
        return Err(TOO_MANY_WAYS.to_string());
    }
    Ok(())
}

/// In how many ways one expression may go on at most, after whatever it matched.
pub fn ways_of(expressions: &ExprSet, expression: ExprRef) -> Result<u64, String> {
    Ways::new(expressions).of(expression)
}

struct Ways<'a> {
    expressions: &'a ExprSet,
    /// Of intersections.
    known: HashMap<ExprRef, u64>,
    visits: usize,
}

impl<'a> Ways<'a> {
    fn new(expressions: &'a ExprSet) -> Self {
        Ways { expressions, known: HashMap::new(), visits: 0 }
    }

    fn kind(&self, expression: ExprRef) -> u8 {
        self.expressions.get_tag(expression) as u8
    }

    fn of_intersection(&mut self, expression: ExprRef) -> Result<u64, String> {
        let mut all: u64 = 1;
        for &part in self.expressions.get_args(expression) {
            all = all.saturating_mul(self.of(part)?);
            if all > WAYS_MAX {
                return Err(TOO_MANY_WAYS.to_string());
            }
        }
        self.known.insert(expression, all);
        Ok(all)
    }

    /// The sets of bytes that have one byte in common, wherever they stand: each may lead elsewhere. Bytes within a character are
    /// compared where the bytes before them are the same.
    fn of(&mut self, root: ExprRef) -> Result<u64, String> {
        let mut sets: HashMap<u64, Vec<ExprRef>> = HashMap::new();
        let (mut others, mut has_text) = (0_u64, false);
        let mut seen = HashSet::from([(root, START)]);
        let mut waiting = vec![(root, START)];
        while let Some((expression, place)) = waiting.pop() {
            self.visits += 1;
            if self.visits > VISITS_MAX {
                return Err(TOO_MANY_WAYS.to_string());
            }
            let parts = self.expressions.get_args(expression);
            let mut visit = |part: ExprRef, place: u64| {
                if seen.insert((part, place)) {
                    waiting.push((part, place));
                }
            };
            match self.kind(expression) {
                BYTE | BYTE_SET => sets.entry(self.place_of(expression, place)).or_default().push(expression),
                BYTES => {
                    has_text = true;
                    visit(parts[0], START);
                }
                // No byte leads to two places there.
                NOT | REMAINDER => others += 1,
                AND => others = others.saturating_add(self.known.get(&expression).copied().unwrap_or(WAYS_MAX + 1)),
                CONCAT => {
                    visit(parts[0], place);
                    visit(parts[1], self.place_after(parts[0], place));
                }
                OR => parts.iter().for_each(|&part| visit(part, place)),
                _ => parts.iter().for_each(|&part| visit(part, START)),
            }
        }
        let most = sets.into_values().map(|sets| self.most_with_a_byte(sets)).max().unwrap_or(0);
        Ok((most + others + u64::from(has_text)).max(1))
    }

    fn most_with_a_byte(&self, mut sets: Vec<ExprRef>) -> u64 {
        sets.sort_unstable();
        sets.dedup();
        if sets.len() < 2 {
            return sets.len() as u64;
        }
        let with = |byte: u8| sets.iter().filter(|&&set| self.expressions.get(set).matches_byte(byte)).count() as u64;
        (0..=u8::MAX).map(with).max().unwrap_or(0)
    }

    /// Where a set of bytes stands: other places than `place` begin a character.
    fn place_of(&self, set: ExprRef, place: u64) -> u64 {
        let continues = (0..=u8::MAX).all(|byte| (0x80..0xc0).contains(&byte) || !self.expressions.get(set).matches_byte(byte));
        if continues {
            place
        } else {
            START
        }
    }

    fn place_after(&self, part: ExprRef, place: u64) -> u64 {
        let is_set = matches!(self.kind(part), BYTE | BYTE_SET);
        if !is_set || (0..0x80).any(|byte| self.expressions.get(part).matches_byte(byte)) {
            return START;
        }
        // A hash of the sets from the character's first on.
        (self.place_of(part, place) ^ u64::from(part.as_u32())).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
}
