//! What llguidance knows of the tokenizer, and which tokens must come next. Called by mod.rs, answer.rs and warm.rs.

use std::sync::Arc;

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::TokenParser;

use crate::fragments::Fragments;
use crate::tokenizer::Tokenizer;

/// In bytes: the tokens that far before the end of a forced text do not depend on where that is. Most texts are shorter.
const REACH: usize = 4096;

pub struct Environment {
    fragments: Arc<Fragments>,
    trie: TokTrie,
}

impl Environment {
    pub fn new(tokenizer: &Arc<Tokenizer>, vocabulary: usize, end_tokens: &[u32]) -> Result<Self, String> {
        let size = tokenizer.vocabulary_size().min(vocabulary) as u32;
        let end_tokens: Vec<TokenId> = end_tokens.iter().copied().filter(|&id| id < size).collect();
        let Some(&end) = end_tokens.first() else {
            return Err("the model has no token that ends an answer (eos_token_id)".to_string());
        };
        let words: Vec<Vec<u8>> = (0..size).map(|id| word_of(tokenizer, id, end_tokens.contains(&id))).collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, end), &words).with_eos_tokens(&end_tokens);
        Ok(Environment { fragments: Arc::new(Fragments::new(tokenizer)?), trie })
    }

    /// Of another vocabulary, by which no text is divided.
    pub fn with(&self, trie: TokTrie) -> Self {
        Environment { fragments: Arc::clone(&self.fragments), trie }
    }

    /// The tokens of the only text that may come next, as far as every text that may follow it leaves them as they are. `last`: the token
    /// that `parser` took last. None with tokenizers that may divide the whole answer in another way (Fragments::are_canonical).
    pub fn forced(&self, parser: &mut TokenParser, last: Option<TokenId>) -> Vec<TokenId> {
        if !self.fragments.are_canonical() {
            return Vec::new();
        }
        let forced = parser.force_bytes();
        if forced.is_empty() {
            return Vec::new();
        }
        let mut text = [last.map_or(&[][..], |last| self.trie.token(last)), &forced].concat();
        let (mut tokens, mut fixed) = self.tokenize_bytes_marker(&text);
        let mut begin = usize::from(last.is_some());
        if begin > 0 && tokens.first() != last.as_ref() {
            // The tokenizer would not have divided the text there.
            text = forced;
            (tokens, fixed) = self.tokenize_bytes_marker(&text);
            begin = 0;
        }
        if fixed == 0 && self.trie.decode_raw(&tokens) != text {
            return Vec::new(); // the model has no token for some byte
        }
        tokens.truncate(self.count_stable(parser, &tokens, fixed));
        tokens.drain(..begin.min(tokens.len()));
        tokens
    }

    /// So many tokens are the first ones of each text that may continue theirs. A token may begin in their text and reach beyond it. The
    /// text is then divided where that begins, and merges are never undone: the tokens before are those of the text up to there.
    /// `fixed`: so many are special tokens and what is before them.
    fn count_stable(&self, parser: &mut TokenParser, tokens: &[TokenId], fixed: usize) -> usize {
        let free = &tokens[fixed..];
        let bytes = self.trie.decode_raw(free);
        let first = bytes.len().saturating_sub(self.trie.max_token_len());
        let begins: Vec<usize> = parser.parser.with_recognizer(|recognizer| {
            let reaches_beyond = |&begin: &usize| self.trie.has_valid_extensions(recognizer, &bytes[begin..]);
            (first..bytes.len()).filter(reaches_beyond).collect()
        });
        let mut stable = free.len();
        for begin in begins {
            let (whole, end) = self.whole_within(free, begin);
            stable = stable.min(whole);
            if end < begin && stable > 0 {
                let (known, from) = self.whole_within(free, begin.saturating_sub(REACH));
                let before = self.tokenize_bytes(&bytes[from..begin]);
                let same = before.iter().zip(&free[known..]).take_while(|(one, other)| one == other).count();
                stable = stable.min(known + same);
            }
        }
        fixed + stable
    }

    /// The tokens that end within so many bytes, and where the last of them does.
    fn whole_within(&self, tokens: &[TokenId], bytes: usize) -> (usize, usize) {
        let mut end = 0;
        for (index, &token) in tokens.iter().enumerate() {
            let next = end + self.trie.token_len(token);
            if next > bytes {
                return (index, end);
            }
            end = next;
        }
        (tokens.len(), end)
    }

    /// As the tokenizer divides a text, if its tokens spell exactly that, and the model has them.
    fn tokenize(&self, text: &str) -> Vec<TokenId> {
        let ids = self.fragments.encode(text).unwrap_or_default();
        let is_known = ids.iter().all(|&id| (id as usize) < self.trie.vocab_size());
        if is_known && ids.iter().flat_map(|&id| self.trie.token(id)).eq(text.as_bytes()) {
            ids
        } else {
            self.trie.greedy_tokenize(text.as_bytes())
        }
    }
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// What is no whole character at either end stands by itself: of one that tokens before these began, or that more tokens complete.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let begin = bytes.iter().take_while(|&&byte| is_inner(byte)).count();
        let (head, rest) = bytes.split_at(begin);
        let end = match std::str::from_utf8(rest) {
            Ok(_) => rest.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return self.trie.greedy_tokenize(bytes),
        };
        let (text, tail) = rest.split_at(end);
        let text = std::str::from_utf8(text).expect("it was found valid");
        [self.trie.greedy_tokenize(head), self.tokenize(text), self.trie.greedy_tokenize(tail)].concat()
    }

    /// `forced` decides in its place: the library would also force a token that some of the texts that may follow would change.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The bytes of a token. Those of special tokens, which no text contains, begin with a byte that no text has. Ids without a token have
/// none.
fn word_of(tokenizer: &Tokenizer, id: u32, ends: bool) -> Vec<u8> {
    let Some(facts) = tokenizer.facts(id) else { return Vec::new() };
    if !facts.special && !ends {
        return facts.bytes.to_vec();
    }
    let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    word.extend_from_slice(tokenizer.token(id).unwrap_or_default().as_bytes());
    word
}

/// Of a character of several bytes in UTF-8: not its first.
fn is_inner(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
