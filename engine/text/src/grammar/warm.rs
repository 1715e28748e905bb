//! Computes lexer states ahead. The library finds a state when a mask first needs it, and each answer has states of its own, so without
//! this each answer would find the same ones again. A few answers are made up, and all answers begin with the states that these needed.
//! Called by mod.rs.

use std::collections::hash_map::DefaultHasher;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use llguidance::earley::{BiasComputer, ParserRecognizer, SlicedBiasComputer};
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::TokenParser;

use super::environment::Environment;

/// The most states that answers begin with. Their own bound is so much higher, so that no answer reaches it sooner.
pub const STATES_MAX: usize = 1_024;

/// What ends the walks, in counts, as answers may not depend on how fast a machine is. A mask may go beyond; its own bounds hold.
const MASKS_MAX: usize = 256;
const STATES_ENOUGH: usize = STATES_MAX / 2;
/// In the library's units of fuel, about 70 ns each.
const WORK_MAX: u64 = 60_000;
/// Of the vocabulary's trie, where the lexer has the states.
const NODES_OF_A_UNIT: u64 = 16;
/// A walk that finds less than this share of the states is the last one.
const NEW_STATES_LEAST: f64 = 1.0 / 16.0;

/// The bytes of which one mostly ends what may go on for ever, such as a JSON string or a list, come first.
const BYTES_FIRST: u8 = b'"';

/// Of the tokens for which the masks of made-up answers are computed: a large vocabulary takes longer and needs hardly any other states.
const TOKENS_MAX: usize = 4_096;

/// Computes masks that have tokens of a sample only.
pub struct Sampler {
    whole: Arc<Environment>,
    sample: SlicedBiasComputer,
    /// Of the sample's tokens in the whole vocabulary.
    tokens: Vec<TokenId>,
}

impl Sampler {
    pub fn new(whole: &Arc<Environment>) -> Result<Self, String> {
        let trie = whole.tok_trie();
        let every = trie.vocab_size().div_ceil(TOKENS_MAX);
        let is_chosen = |token: TokenId| token as usize % every == 0 || trie.token_len(token) == 1;
        let tokens: Vec<TokenId> = (0..trie.vocab_size() as TokenId).filter(|&token| is_chosen(token)).collect();
        let mut words: Vec<Vec<u8>> = tokens.iter().map(|&token| trie.token(token).to_vec()).collect();
        // It is none, and stands for an end.
        words.push(Vec::new());
        let environment: TokEnv = Arc::new(whole.with(TokTrie::from(&TokRxInfo::new(words.len() as u32, tokens.len() as TokenId), &words)));
        let sample = SlicedBiasComputer::new(&environment, &SlicedBiasComputer::general_slices()).map_err(|error| error.to_string())?;
        Ok(Sampler { whole: Arc::clone(whole), sample, tokens })
    }
}

impl BiasComputer for Sampler {
    fn compute_bias(&self, recognizer: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut mask = self.whole.tok_trie().alloc_token_set();
        for index in self.sample.compute_bias(recognizer, start).iter() {
            if let Some(&token) = self.tokens.get(index as usize) {
                mask.allow_token(token);
            }
        }
        mask
    }

    fn trie(&self) -> &TokTrie {
        self.whole.tok_trie()
    }
}

/// `cold` with more states. None if its first states are too many, or too complex. Its clones may share the states for the forced tokens
/// with which an answer begins, which need no others.
pub fn warmed(cold: &TokenParser, sampler: &Arc<Sampler>) -> Option<TokenParser> {
    let warm = catch_unwind(AssertUnwindSafe(|| {
        let start = cold.deep_clone();
        let mut walks = Walks::new(&start, sampler);
        loop {
            let before = walks.states();
            walks.walk();
            let found = walks.states() - before;
            if !walks.go_on() || (found as f64) < NEW_STATES_LEAST * walks.states() as f64 {
                break;
            }
        }
        let is_good = walks.has_forced && walks.states() <= STATES_MAX && start.parser.get_error().is_none();
        is_good.then_some(start)
    }));
    warm.ok().flatten()
}

/// Made-up answers, which share the states of `start`.
struct Walks<'a> {
    start: &'a TokenParser,
    sampler: &'a Arc<Sampler>,
    /// Tokens of one byte.
    single: Vec<TokenId>,
    /// Of each mask, by its hash: how often it came.
    visits: HashMap<u64, usize>,
    masks: usize,
    work: u64,
    random: u64,
    /// The forced tokens with which each answer begins were taken.
    has_forced: bool,
}

impl<'a> Walks<'a> {
    fn new(start: &'a TokenParser, sampler: &'a Arc<Sampler>) -> Self {
        let trie = start.token_env.tok_trie();
        let bytes = (0..=u8::MAX).map(|byte| byte.wrapping_add(BYTES_FIRST));
        let single = bytes.filter_map(|byte| trie.token_id(&[byte])).collect();
        Walks { start, sampler, single, visits: HashMap::new(), masks: 0, work: 0, random: 1, has_forced: false }
    }

    fn states(&self) -> usize {
        self.start.parser.lexer_stats().num_states
    }

    fn go_on(&self) -> bool {
        self.masks < MASKS_MAX && self.work < WORK_MAX && self.states() < STATES_ENOUGH
    }

    /// Ends with its answer, with what bounds all walks, or where the library gives up.
    fn walk(&mut self) {
        let mut answer = self.start.clone();
        answer.bias_computer = self.sampler.clone();
        if self.take_forced(&mut answer, None).is_none() {
            return;
        }
        self.has_forced = true;
        while !answer.stopped() && self.go_on() {
            let before = answer.parser.stats().clone();
            let Ok(mask) = answer.compute_mask() else { return };
            let spent = answer.parser.stats().delta(&before);
            self.masks += 1;
            self.work += spent.lexer_cost + spent.all_items as u64 + spent.trie_nodes_walked as u64 / NODES_OF_A_UNIT;
            let Some(token) = self.choose(&mask) else { return };
            if answer.consume_token(token).is_err() || answer.check_stop().is_err() || self.take_forced(&mut answer, Some(token)).is_none()
            {
                return;
            }
        }
    }

    /// Where the same may follow again, the walk may turn in a circle: it leaves it by one byte after the other.
    fn choose(&mut self, mask: &SimpleVob) -> Option<TokenId> {
        let words = mask.as_slice();
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        let visits = self.visits.entry(hasher.finish()).or_default();
        *visits += 1;
        let ends = self.start.token_env.tok_trie().eos_tokens();
        if *visits > 1 {
            let single = self.single.iter().filter(|&&token| mask.is_allowed(token) && !ends.contains(&token));
            let single: Vec<&TokenId> = single.collect();
            if !single.is_empty() {
                return Some(*single[(*visits - 2) % single.len()]);
            }
        }
        // Knuth's MMIX generator; the higher bits are good.
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let first = (self.random >> 33) as usize % words.len();
        let places = (first..words.len()).chain(0..first).filter(|&place| words[place] != 0);
        let bits = places.flat_map(|place| (0..u32::BITS).filter(move |bit| words[place] >> bit & 1 != 0).map(move |bit| (place, bit)));
        bits.map(|(place, bit)| place as TokenId * u32::BITS + bit).find(|token| !ends.contains(token))
    }

    /// As Answer::force. None if the library gives up.
    fn take_forced(&self, answer: &mut TokenParser, last: Option<TokenId>) -> Option<()> {
        if answer.stopped() {
            return Some(());
        }
        for token in self.sampler.whole.forced(answer, last) {
            answer.consume_token(token).ok()?;
        }
        answer.check_stop().ok()?;
        Some(())
    }
}
