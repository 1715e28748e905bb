//! Divides texts that stand in the middle of another one, as the tokenizer divides the whole: without the space that some tokenizers put
//! before each text, and with the texts of special tokens read as text. Called by grammar/mod.rs.

use std::sync::Arc;

use serde_json::{json, to_value, Value};
use tokenizers::{
    AddedVocabulary, Model, ModelWrapper, NormalizerWrapper, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

use crate::tokenizer::{Decoding, Tokenizer};

pub struct Fragments {
    tokenizer: Arc<Tokenizer>,
    /// Finds no special tokens.
    added: AddedVocabulary,
    /// The texts of others that depend on what is around them, or take white space there.
    unread: Vec<String>,
    /// Both add nothing before a text.
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    are_canonical: bool,
}

impl Fragments {
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self, String> {
        let library = tokenizer.library();
        let unreadable = |error: serde_json::Error| error.to_string();
        let normalizer = without_prefix(to_value(library.get_normalizer()).map_err(unreadable)?);
        let pre_tokenizer = without_prefix(to_value(library.get_pre_tokenizer()).map_err(unreadable)?);
        let mut added = library.get_added_vocabulary().clone();
        added.set_encode_special_tokens(true);
        let others = library.get_added_tokens_decoder().into_values().filter(|token| !token.special);
        let unread = others.filter(|token| token.lstrip || token.rstrip || token.single_word).map(|token| token.content).collect();
        let are_canonical = tokenizer.decoding() == Decoding::ByteLevel
            || (merges_in_place(tokenizer) && is_in_place(&normalizer) && is_in_place(&pre_tokenizer));
        Ok(Fragments {
            tokenizer: Arc::clone(tokenizer),
            added,
            unread,
            normalizer: serde_json::from_value(normalizer).map_err(unreadable)?,
            pre_tokenizer: serde_json::from_value(pre_tokenizer).map_err(unreadable)?,
            are_canonical,
        })
    }

    /// Whether the tokens of a fragment are those that the whole text has there, if the whole is divided at both ends of the fragment and
    /// has no texts of special tokens. It holds where each step looks at single characters and no merge reaches over an end, because
    /// merges are never undone. With byte-level BPE, a pattern divides words by what is around them, so that it holds for most texts and
    /// not for all.
    pub fn are_canonical(&self) -> bool {
        self.are_canonical
    }

    /// The tokens may spell another text: some tokenizers normalize, and some have no tokens for a character.
    pub fn encode(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        if let Some(token) = self.unread.iter().find(|&token| text.contains(token)) {
            return Err(format!("the token {token:?} takes what is around it").into());
        }
        let mut pieces: PreTokenizedString = self.added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.tokenizer.library().get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }
}

/// A normalizer or a pre-tokenizer as tokenizer.json has it, without what puts a space before a text.
fn without_prefix(mut step: Value) -> Value {
    match step["type"].as_str() {
        Some("Prepend") => return json!({"type": "Sequence", "normalizers": []}),
        Some("Metaspace") => step["prepend_scheme"] = json!("never"),
        Some("ByteLevel") => step["add_prefix_space"] = json!(false),
        Some("Sequence") => {
            for key in ["normalizers", "pretokenizers"] {
                let Some(steps) = step.get_mut(key).and_then(Value::as_array_mut) else { continue };
                steps.iter_mut().for_each(|step| *step = without_prefix(step.take()));
            }
        }
        _ => {}
    }
    step
}

/// Whether a step of `without_prefix` takes each character by itself, wherever it stands.
fn is_in_place(step: &Value) -> bool {
    let takes_a_character = || step["pattern"]["String"].as_str().is_some_and(|pattern| pattern.chars().count() == 1);
    match step["type"].as_str() {
        None => step.is_null(),
        Some("Sequence") => ["normalizers", "pretokenizers"].iter().filter_map(|&key| step[key].as_array()).flatten().all(is_in_place),
        Some("Metaspace") => true,
        Some("Replace" | "Split") => takes_a_character(),
        Some(_) => false,
    }
}

/// Whether the model is a BPE that treats no part of a word differently from another, and has a token for each byte.
fn merges_in_place(tokenizer: &Tokenizer) -> bool {
    let ModelWrapper::BPE(model) = tokenizer.library().get_model() else { return false };
    let is_empty = |affix: &Option<String>| affix.as_ref().is_none_or(String::is_empty);
    let is_plain = is_empty(&model.continuing_subword_prefix) && is_empty(&model.end_of_word_suffix) && !model.ignore_merges;
    let has_byte = |byte: u8| {
        let facts = tokenizer.find(&format!("<0x{byte:02X}>")).and_then(|id| tokenizer.facts(id));
        facts.is_some_and(|token| token.fallback && !token.special)
    };
    is_plain && model.byte_fallback && (0..=u8::MAX).all(has_byte)
}
