//! A compiled grammar, and how far the answers that must match it have come. Called by mod.rs and abi.rs.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{SimpleVob, TokenId};
use llguidance::TokenParser;

use super::environment::Environment;
use super::literal::Place;
use super::message_of;

/// A compiled grammar, from which any number of answers begin. Any number of threads may share it.
pub struct Grammar {
    /// It has taken no token.
    pub(super) start: Mutex<TokenParser>,
    pub(super) environment: Arc<Environment>,
    /// `start` has the states for the tokens with which all answers begin.
    pub(super) is_warm: bool,
    /// Of answers that are JSON.
    pub(super) place: Option<Place>,
    /// Measured: of the grammar, and of an answer as it begins to draw.
    pub bytes: usize,
    pub answer_bytes: usize,
}

impl Grammar {
    /// The answer has states of its own, or borrows the grammar's until it needs others.
    pub fn begin(&self) -> Answer {
        let start = self.start.lock().unwrap();
        Answer {
            parser: if self.is_warm { start.clone() } else { start.deep_clone() },
            failure: None,
            environment: Arc::clone(&self.environment),
            last: None,
            forced: None,
            place: self.place.clone(),
            borrows: self.is_warm,
            is_new: true,
        }
    }
}

/// How far one answer has come. One thread at a time.
pub struct Answer {
    parser: TokenParser,
    /// The parser is of no use any more.
    failure: Option<String>,
    environment: Arc<Environment>,
    /// The token that was taken last.
    last: Option<TokenId>,
    /// Those that must come next, once they were looked for.
    forced: Option<Vec<TokenId>>,
    place: Option<Place>,
    /// The lexer's states are the grammar's, which other answers borrow as well. An answer that waits for its turn takes little memory.
    borrows: bool,
    is_new: bool,
}

impl Answer {
    /// With states of its own, so that what the copy computes cannot bring this one to a limit.
    pub fn copy(&self) -> Answer {
        Answer {
            parser: self.parser.deep_clone(),
            failure: self.failure.clone(),
            environment: Arc::clone(&self.environment),
            last: self.last,
            forced: self.forced.clone(),
            place: self.place.clone(),
            borrows: false,
            is_new: self.is_new,
        }
    }

    /// Takes the next token, which must be allowed. True if nothing may follow, so that the answer is complete.
    pub fn accept(&mut self, token: u32) -> Result<bool, String> {
        self.is_new = false;
        self.own();
        self.take(&[token])
    }

    /// Takes the tokens of the only text that may come next, as the tokenizer divides it, and returns them. What a text that follows would
    /// divide in another way stays out. True if nothing may follow them. The answer must not be complete.
    pub fn force(&mut self) -> Result<(Vec<u32>, bool), String> {
        // The grammar has the states for the tokens with which all answers begin.
        if !std::mem::take(&mut self.is_new) {
            self.own();
        }
        let tokens = self.next_forced()?;
        let is_complete = self.take(&tokens)?;
        // Some of the texts that may follow would divide what is left in another way.
        self.forced = Some(Vec::new());
        Ok((tokens, is_complete))
    }

    /// The tokens that may come next; the end tokens are among them if the answer may end here. The answer must not be complete.
    pub fn allowed(&mut self) -> Result<SimpleVob, String> {
        self.is_new = false;
        self.own();
        let forced = self.next_forced()?;
        let first = forced.first().copied();
        self.forced = Some(forced);
        if let Some(first) = first {
            return Ok(self.parser.token_env.tok_trie().singleton_token_set(first));
        }
        let mut mask = self.guarded(|parser| parser.compute_mask())?;
        if let Some(place) = &self.place {
            place.restrict(&mut mask);
        }
        Ok(mask)
    }

    /// With states of its own, so that what other answers compute cannot bring it to a limit.
    fn own(&mut self) {
        if self.borrows {
            *self = self.copy();
        }
    }

    fn next_forced(&mut self) -> Result<Vec<TokenId>, String> {
        if let Some(forced) = self.forced.take() {
            return Ok(forced);
        }
        let (environment, last) = (Arc::clone(&self.environment), self.last);
        self.guarded(|parser| Ok::<_, String>(environment.forced(parser, last)))
    }

    /// True if nothing may follow the tokens.
    fn take(&mut self, tokens: &[TokenId]) -> Result<bool, String> {
        self.forced = None;
        self.guarded(|parser| {
            for &token in tokens {
                parser.consume_token(token)?;
            }
            parser.check_stop()
        })?;
        self.last = tokens.last().copied().or(self.last);
        if let Some(place) = &mut self.place {
            tokens.iter().for_each(|&token| place.accept(token));
        }
        Ok(self.parser.stopped())
    }

    /// The library panics where a grammar is too complex. What failed once fails again.
    fn guarded<T, E: Display>(&mut self, work: impl FnOnce(&mut TokenParser) -> Result<T, E>) -> Result<T, String> {
        if let Some(why) = &self.failure {
            return Err(why.clone());
        }
        let why = match catch_unwind(AssertUnwindSafe(|| Ok(work(&mut self.parser)))) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        let why = message_of(why);
        self.failure = Some(why.clone());
        Err(why)
    }
}
