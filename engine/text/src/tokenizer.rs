//! A tokenizer read from tokenizer.json, with a table of the bytes that each token stands for. Called by abi.rs, encoding.rs and
//! detokenizer.rs; any number of threads may share it.

use std::collections::HashMap;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::{AddedToken, Decoder, Encoding, ModelWrapper, PostProcessorWrapper};

use crate::settings::Settings;
use crate::{growth, settings};

/// Larger ids mean a damaged file. The table of tokens has one entry per id.
const ID_LIMIT: u32 = 1 << 24;

/// That a post-processor may put around each text; models have one or two.
const SPECIAL_TOKENS_MAX: usize = 1024;

/// A token that decodes to itself everywhere; the token after it is not the first of a text.
const ANCHOR: &str = "a";

/// How tokens become text. In both kinds a token's text does not depend on other tokens, with two exceptions: bytes that are part of a
/// character, and the first token of a text, whose leading space some decoders drop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decoding {
    /// Every token is a string of bytes; the text is their concatenation.
    ByteLevel,
    /// Every token is a piece of text; with `byte_fallback`, tokens named <0x00> to <0xFF> are single bytes.
    Pieces { byte_fallback: bool },
}

pub struct Tokenizer {
    /// Without the post-processor, which must run once and after texts are truncated.
    library: tokenizers::Tokenizer,
    post_processor: Option<PostProcessorWrapper>,
    named_tokens: HashMap<String, u32>,
    decoding: Decoding,
    /// By id. Some vocabularies have gaps.
    tokens: Vec<Option<TokenFacts>>,
}

pub struct TokenFacts {
    /// The bytes that the token stands for if it is not the first of a text.
    pub bytes: Box<[u8]>,
    pub special: bool,
    /// The token is one byte, by byte fallback.
    pub fallback: bool,
}

impl Tokenizer {
    /// `json`: of tokenizer.json.
    pub fn from_json(json: &[u8], settings: &Settings) -> Result<Self, String> {
        let mut library = tokenizers::Tokenizer::from_bytes(json).map_err(|error| error.to_string())?;
        // Truncation and padding in the file are for training; a job decides about its own context.
        library.with_truncation(None).map_err(|error| error.to_string())?;
        library.with_padding(None);
        if let ModelWrapper::BPE(model) = library.get_model() {
            if model.dropout.is_some_and(|probability| probability > 0.0) {
                return Err("model.dropout makes tokenization random: set it to null".to_string());
            }
        }
        settings::apply(&mut library, settings)?;
        growth::check(&library)?;
        add_tokens(&mut library, settings)?;
        let decoding = decoding_of(&library)?;
        let size = match library.get_vocab(true).values().max() {
            None => return Err("the vocabulary is empty".to_string()),
            Some(&highest) if highest >= ID_LIMIT => return Err(format!("token id {highest} is above the limit of {ID_LIMIT}")),
            Some(&highest) => highest as usize + 1,
        };
        let post_processor = library.get_post_processor().cloned();
        library.with_post_processor(None::<PostProcessorWrapper>);
        let named_tokens =
            settings.named_tokens().filter_map(|(name, token)| Some((name.to_string(), library.token_to_id(token)?))).collect();
        let mut tokenizer = Tokenizer { library, post_processor, named_tokens, decoding, tokens: Vec::new() };
        let byte_of = byte_of_char();
        tokenizer.tokens = (0..size as u32).map(|id| tokenizer.facts_of(id, &byte_of)).collect::<Result<_, _>>()?;
        let around = tokenizer.encode("", true)?;
        if around.len() > SPECIAL_TOKENS_MAX {
            return Err(format!("post_processor adds {} tokens to each text; allowed are up to {SPECIAL_TOKENS_MAX}", around.len()));
        }
        if let Some(id) = around.into_iter().map(|id| id as u32).find(|&id| tokenizer.facts(id).is_none()) {
            return Err(format!("post_processor adds the token id {id}, which the vocabulary does not have"));
        }
        Ok(tokenizer)
    }

    /// Without the post-processor.
    pub fn library(&self) -> &tokenizers::Tokenizer {
        &self.library
    }

    pub fn decoding(&self) -> Decoding {
        self.decoding
    }

    /// The highest id + 1.
    pub fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }

    pub fn find(&self, token: &str) -> Option<u32> {
        self.library.token_to_id(token)
    }

    /// None for ids without a token.
    pub fn facts(&self, id: u32) -> Option<&TokenFacts> {
        self.tokens.get(id as usize)?.as_ref()
    }

    /// `name`: "mask_token", for example.
    pub fn named_token(&self, name: &str) -> Option<u32> {
        self.named_tokens.get(name).copied()
    }

    pub fn post_processor(&self) -> Option<&PostProcessorWrapper> {
        self.post_processor.as_ref()
    }

    pub fn token(&self, id: u32) -> Option<String> {
        self.library.id_to_token(id)
    }

    /// The texts of special tokens.
    pub fn specials(&self) -> Vec<String> {
        let added = self.library.get_added_tokens_decoder().into_values();
        added.filter(|token| token.special && !token.content.is_empty()).map(|token| token.content).collect()
    }

    /// A prefix such as "##" marks the tokens that continue a word.
    pub fn marks_subwords(&self) -> bool {
        match self.library.get_model() {
            ModelWrapper::WordPiece(model) => !model.continuing_subword_prefix.is_empty(),
            ModelWrapper::BPE(model) => model.continuing_subword_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty()),
            _ => false,
        }
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<i32>, String> {
        let alone = self.library.encode_fast(text, false).map_err(|error| error.to_string())?;
        let encoding = self.post_process(alone, None, add_special_tokens)?;
        Ok(encoding.get_ids().iter().map(|&id| id as i32).collect())
    }

    /// The text alone, with spans in characters; the post-processor has not run.
    pub fn encode_text(&self, text: &str) -> Result<Encoding, String> {
        self.library.encode_char_offsets(text, false).map_err(|error| error.to_string())
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, String> {
        self.library.decode(ids, skip_special_tokens).map_err(|error| error.to_string())
    }

    /// Decodes `tokens` as the start of a text.
    pub fn decode_first(&self, tokens: Vec<String>) -> Result<String, String> {
        match self.library.get_decoder() {
            Some(decoder) => decoder.decode(tokens).map_err(|error| error.to_string()),
            None => Ok(tokens.join(" ")),
        }
    }

    /// Decodes `tokens` as if other tokens preceded them.
    pub fn decode_later(&self, tokens: Vec<String>) -> Result<String, String> {
        let mut anchored = Vec::with_capacity(tokens.len() + 1);
        anchored.push(ANCHOR.to_string());
        anchored.extend(tokens);
        let text = self.decode_first(anchored)?;
        match text.strip_prefix(ANCHOR) {
            Some(rest) => Ok(rest.to_string()),
            None => Err(format!("the decoder turned the plain token {ANCHOR:?} into the start of {text:?}")),
        }
    }

    fn facts_of(&self, id: u32, byte_of: &HashMap<char, u8>) -> Result<Option<TokenFacts>, String> {
        let Some(token) = self.token(id) else { return Ok(None) };
        let special = self.library.get_added_vocabulary().is_special_token(&token);
        let (bytes, fallback) = match self.decoding {
            Decoding::ByteLevel => (byte_level_bytes(&token, byte_of), false),
            Decoding::Pieces { byte_fallback } => match fallback_byte(&token) {
                Some(byte) if byte_fallback => (vec![byte], true),
                _ => (self.decode_later(vec![token]).map_err(|error| format!("token {id}: {error}"))?.into_bytes(), false),
            },
        };
        Ok(Some(TokenFacts { bytes: bytes.into_boxed_slice(), special, fallback }))
    }
}

/// Adds the tokens that only tokenizer_config.json has, as transformers does; a token with other flags than in tokenizer.json gets them. A
/// new token that does not get the id that the model was trained with is an error.
fn add_tokens(library: &mut tokenizers::Tokenizer, settings: &Settings) -> Result<(), String> {
    let unreadable = |error: serde_json::Error| format!("added_tokens_decoder of tokenizer_config.json: {error}");
    let known: HashMap<String, AddedToken> =
        library.get_added_tokens_decoder().into_values().map(|token| (token.content.clone(), token)).collect();
    let mut tokens = Vec::new();
    let mut new_ids = Vec::new();
    for entry in &settings.added_tokens {
        let mut token: AddedToken = serde_json::from_value(entry["token"].clone()).map_err(unreadable)?;
        if known.get(&token.content) == Some(&token) || token.content.is_empty() {
            continue;
        }
        token.special |= entry["is_named"] == true;
        if library.token_to_id(&token.content).is_none() {
            new_ids.push((token.content.clone(), entry["id"].as_u64()));
        }
        tokens.push(token);
    }
    library.add_tokens(tokens).map_err(|error| error.to_string())?;
    for (content, wanted) in new_ids {
        let id = library.token_to_id(&content).map(u64::from);
        if id != wanted {
            return Err(format!(
                "the token {content:?} is only in added_tokens_decoder of tokenizer_config.json, with the id {}; after the tokens of \
                 tokenizer.json it would get the id {}",
                wanted.unwrap_or_default(),
                id.unwrap_or_default()
            ));
        }
    }
    Ok(())
}

/// The byte of a byte fallback token: <0x00> to <0xFF>.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

fn decoding_of(library: &tokenizers::Tokenizer) -> Result<Decoding, String> {
    let steps = match library.get_decoder() {
        None => &[],
        Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders(),
        Some(decoder) => std::slice::from_ref(decoder),
    };
    let mut byte_level = false;
    let mut byte_fallback = false;
    let mut text_steps = false;
    for step in steps {
        match step {
            DecoderWrapper::ByteLevel(_) => byte_level = true,
            DecoderWrapper::ByteFallback(_) => byte_fallback = true,
            DecoderWrapper::Fuse(_) => {}
            // The library panics if a token has fewer characters.
            DecoderWrapper::Strip(strip) if strip.stop > 0 => {
                return Err("decoder: a Strip that takes characters from the end is not supported".to_string())
            }
            DecoderWrapper::WordPiece(_) | DecoderWrapper::Metaspace(_) | DecoderWrapper::Replace(_) | DecoderWrapper::Strip(_) => {
                text_steps = true
            }
            DecoderWrapper::BPE(_) | DecoderWrapper::CTC(_) | DecoderWrapper::Sequence(_) => {
                return Err("decoder: BPEDecoder, CTC and sequences within sequences are not supported: their text cannot be streamed \
                            token by token"
                    .to_string())
            }
        }
    }
    match (byte_level, byte_fallback || text_steps) {
        (true, false) => Ok(Decoding::ByteLevel),
        (true, true) => Err("decoder: ByteLevel together with other decoders is not supported".to_string()),
        (false, _) => Ok(Decoding::Pieces { byte_fallback }),
    }
}

/// Inverts GPT-2's mapping of bytes to printable characters: printable bytes map to themselves, the others, in order, to the characters
/// from U+0100 on.
fn byte_of_char() -> HashMap<char, u8> {
    let prints = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut stand_ins = (0x100u32..).filter_map(char::from_u32);
    (0..=255u8).filter_map(|byte| Some((if prints(byte) { byte as char } else { stand_ins.next()? }, byte))).collect()
}

/// As in the ByteLevel decoder, a token with any other character stands for its own UTF-8 bytes.
fn byte_level_bytes(token: &str, byte_of: &HashMap<char, u8>) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(|character| byte_of.get(&character).copied()).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}
