//! How much larger a text can become before it is split into tokens, and when tokens become text again. A tokenizer that multiplies its
//! texts is refused when it is loaded: a few rules that each replace a letter by a hundred would turn a short prompt into gigabytes. Called
//! by tokenizer.rs.

use serde_json::{to_value, Value};
use tokenizers::Tokenizer;

/// Tokenizers in use spell ligatures out (11 bytes for 1) and mark spaces, in the normalizer and again before they split (3 and 4 for 1).
/// That is 132 for what transformers converts from SentencePiece. Unicode's own forms are not counted.
const FACTOR_MAX: usize = 256;
/// Bytes that are put before each text.
const ADDED_MAX: usize = 4096;

struct Growth {
    factor: usize,
    added: usize,
}

impl Growth {
    fn times(factor: usize) -> Self {
        Growth { factor: factor.max(1), added: 0 }
    }

    fn then(self, next: Growth) -> Self {
        Growth { factor: self.factor.saturating_mul(next.factor), added: self.added.saturating_mul(next.factor).saturating_add(next.added) }
    }

    fn check(&self, what: &str) -> Result<(), String> {
        if self.factor <= FACTOR_MAX && self.added <= ADDED_MAX {
            return Ok(());
        }
        Err(format!(
            "{what} can make a text {} times longer, or longer by {} bytes; allowed are {FACTOR_MAX} times and {ADDED_MAX} bytes",
            self.factor, self.added
        ))
    }
}

/// The error names what is too large.
pub fn check(tokenizer: &Tokenizer) -> Result<(), String> {
    let growth = |step: serde_json::Result<Value>| step.map(|step| growth_of(&step)).map_err(|error| error.to_string());
    let (normalizer, pre_tokenizer) = (growth(to_value(tokenizer.get_normalizer()))?, growth(to_value(tokenizer.get_pre_tokenizer()))?);
    normalizer.then(pre_tokenizer).check("normalizer and pre_tokenizer")?;
    growth(to_value(tokenizer.get_decoder()))?.check("decoder")
}

/// Of a step as tokenizer.json has it. Normalizers, pre-tokenizers and decoders of the same type have the same fields.
fn growth_of(step: &Value) -> Growth {
    let text = |key: &str| step[key].as_str().unwrap_or_default();
    let times = Growth::times;
    match text("type") {
        "Sequence" => {
            let steps = ["normalizers", "pretokenizers", "decoders"].iter().filter_map(|&key| step[key].as_array()).flatten();
            steps.fold(times(1), |before, next| before.then(growth_of(next)))
        }
        "Prepend" => Growth { factor: 1, added: text("prepend").len() },
        // A character of up to two bytes for each byte, and perhaps one more before each piece.
        "ByteLevel" => times(if step["add_prefix_space"] == true { 4 } else { 2 }),
        // The marker for each space, and before each piece that does not begin with it.
        "Metaspace" => times(1 + text("replacement").len()),
        // A space before each token.
        "WordPiece" => times(2),
        // Spaces around each Chinese character of three bytes.
        "BertNormalizer" => times(2),
        "Replace" => times(match &step["pattern"]["String"] {
            Value::String(pattern) if !pattern.is_empty() => text("content").len().div_ceil(pattern.len()),
            // Before and after each byte, if the pattern matches the empty text.
            _ => text("content").len() + usize::from(matches_empty(&step["pattern"])),
        }),
        // One of its strings for each character. In models, those with long spellings have three bytes.
        "Precompiled" => times(longest_spelling(text("precompiled_charsmap")).div_ceil(3)),
        _ => times(1),
    }
}

fn matches_empty(pattern: &Value) -> bool {
    match pattern["Regex"].as_str() {
        Some(regex) => regex::Regex::new(regex).map_or(true, |regex| regex.is_match("")),
        None => true,
    }
}

/// A SentencePiece map: the size of a trie (u32), the trie, and the strings, each ended by a zero.
fn longest_spelling(charsmap: &str) -> usize {
    let Ok(bytes) = base64::decode(charsmap) else { return 0 };
    let Some(size) = bytes.first_chunk::<4>() else { return 0 };
    let strings = bytes.get(4 + u32::from_le_bytes(*size) as usize..).unwrap_or_default();
    strings.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0)
}
