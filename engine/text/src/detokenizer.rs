//! Turns the ids of one request into text, one at a time: each push returns the text that became certain, at a cost that does not grow with
//! the length of the request. Called by abi.rs, by one thread at a time.

use std::sync::Arc;

use crate::tokenizer::{Decoding, TokenFacts, Tokenizer};

const REPLACEMENT: &str = "\u{FFFD}";
/// The most bytes of a character, and so the most tokens at the end of a prompt that can belong to an unfinished one.
const CHARACTER_BYTES: usize = 4;

pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special_tokens: bool,
    /// No token was pushed or primed yet.
    first: bool,
    /// The bytes of an unfinished character.
    pending: Vec<u8>,
    /// Byte fallback only: the current run of byte tokens is not UTF-8, so the rest of it is replaced.
    run_is_bad: bool,
}

impl Detokenizer {
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special_tokens: bool) -> Self {
        Detokenizer { tokenizer, skip_special_tokens, first: true, pending: Vec::new(), run_is_bad: false }
    }

    /// Sets the prompt that the generated tokens continue. Its text is not returned, except for an unfinished character at its end, which
    /// is returned as a whole once it is complete.
    pub fn prime(&mut self, prompt: &[u32]) -> Result<(), String> {
        let mut tail = Vec::new();
        for &id in prompt.iter().rev() {
            let Some(token) = self.tokenizer.facts(id).filter(|token| !self.skips(token)) else { continue };
            self.first = false;
            let may_be_unfinished = token.fallback || (self.tokenizer.decoding() == Decoding::ByteLevel && tail.len() < CHARACTER_BYTES);
            if !may_be_unfinished {
                break;
            }
            tail.push(id);
        }
        let mut dropped = String::new();
        tail.iter().rev().try_for_each(|&id| self.push(id, &mut dropped))
    }

    pub fn push(&mut self, id: u32, text: &mut String) -> Result<(), String> {
        let tokenizer = Arc::clone(&self.tokenizer);
        let Some(token) = tokenizer.facts(id).filter(|token| !self.skips(token)) else { return Ok(()) };
        if tokenizer.decoding() == Decoding::ByteLevel {
            self.pending.extend_from_slice(&token.bytes);
            self.emit_certain_bytes(text);
        } else if token.fallback {
            self.push_fallback_byte(token.bytes[0], text)?;
        } else {
            self.end_run(text);
            if self.first {
                self.push_tokens(tokenizer.token(id).into_iter().collect(), text)?;
            } else {
                text.push_str(&String::from_utf8_lossy(&token.bytes));
            }
        }
        Ok(())
    }

    /// Replaces what is left of an unfinished character.
    pub fn finish(&mut self, text: &mut String) {
        match self.tokenizer.decoding() {
            Decoding::ByteLevel => text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.pending))),
            Decoding::Pieces { .. } => self.end_run(text),
        }
    }

    fn skips(&self, token: &TokenFacts) -> bool {
        self.skip_special_tokens && token.special
    }

    /// Everything except an unfinished character at the end is certain. Invalid bytes are replaced as in `String::from_utf8_lossy`.
    fn emit_certain_bytes(&mut self, text: &mut String) {
        let mut rest = self.pending.as_slice();
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, broken) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            let Some(length) = error.error_len() else {
                self.pending = broken.to_vec();
                return;
            };
            text.push_str(REPLACEMENT);
            rest = &broken[length..];
        }
        text.push_str(&String::from_utf8_lossy(rest));
        self.pending.clear();
    }

    /// The ByteFallback decoder replaces every byte of a run of byte tokens if any of them is wrong. Here, characters that are complete
    /// before the first wrong byte are returned at once and stay; from the wrong byte on, the replacement is the same.
    fn push_fallback_byte(&mut self, byte: u8, text: &mut String) -> Result<(), String> {
        self.pending.push(byte);
        match std::str::from_utf8(&self.pending) {
            _ if self.run_is_bad => self.replace_pending(text),
            Ok(_) => {
                let tokens = self.pending.drain(..).map(|byte| format!("<0x{byte:02X}>")).collect();
                self.push_tokens(tokens, text)?;
            }
            Err(error) if error.error_len().is_some() => {
                self.run_is_bad = true;
                self.replace_pending(text);
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn push_tokens(&mut self, tokens: Vec<String>, text: &mut String) -> Result<(), String> {
        let decoded = if self.first { self.tokenizer.decode_first(tokens)? } else { self.tokenizer.decode_later(tokens)? };
        self.first = false;
        text.push_str(&decoded);
        Ok(())
    }

    fn end_run(&mut self, text: &mut String) {
        self.replace_pending(text);
        self.run_is_bad = false;
    }

    fn replace_pending(&mut self, text: &mut String) {
        for _ in self.pending.drain(..) {
            text.push_str(REPLACEMENT);
            self.first = false;
        }
    }
}
