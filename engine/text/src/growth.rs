//! How much larger a text can become before it is split into tokens. A tokenizer that multiplies its texts is refused when it is loaded: a
//! few rules that each replace a letter by a hundred would turn a short prompt into gigabytes. Called by tokenizer.rs.

use serde_json::Value;
use tokenizers::NormalizerWrapper;

/// Normalizers in use add a space marker (3 bytes for 1), or spell ligatures out (11 for 1). Unicode's own forms are not counted.
const FACTOR_MAX: usize = 64;
/// Bytes that are put before each text.
const ADDED_MAX: usize = 4096;

struct Growth {
    factor: usize,
    added: usize,
}

/// The error names what is too large.
pub fn check(normalizer: Option<&NormalizerWrapper>) -> Result<(), String> {
    let Some(normalizer) = normalizer else { return Ok(()) };
    let value = serde_json::to_value(normalizer).map_err(|error| error.to_string())?;
    let growth = growth_of(&value);
    if growth.factor > FACTOR_MAX || growth.added > ADDED_MAX {
        return Err(format!(
            "normalizer can make a text {} times longer, or longer by {} bytes; allowed are {FACTOR_MAX} times and {ADDED_MAX} bytes",
            growth.factor, growth.added
        ));
    }
    Ok(())
}

fn growth_of(normalizer: &Value) -> Growth {
    let text = |key: &str| normalizer[key].as_str().unwrap_or_default();
    let times = |factor: usize| Growth { factor: factor.max(1), added: 0 };
    match text("type") {
        "Sequence" => {
            let mut all = times(1);
            for one in normalizer["normalizers"].as_array().into_iter().flatten() {
                let next = growth_of(one);
                all.factor = all.factor.saturating_mul(next.factor);
                all.added = all.added.saturating_mul(next.factor).saturating_add(next.added);
            }
            all
        }
        "Prepend" => Growth { factor: 1, added: text("prepend").len() },
        "Replace" => times(match &normalizer["pattern"]["String"] {
            Value::String(pattern) if !pattern.is_empty() => text("content").len().div_ceil(pattern.len()),
            // Before and behind each byte, if the pattern matches nothing.
            _ => text("content").len() + usize::from(matches_nothing(&normalizer["pattern"])),
        }),
        // One of its strings for each character, of which those with long spellings have three bytes.
        "Precompiled" => times(longest_spelling(text("precompiled_charsmap")).div_ceil(3)),
        _ => times(1),
    }
}

fn matches_nothing(pattern: &Value) -> bool {
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
