//! vocab.json and merges.txt of GPT-2 and its descendants. Called by convert.

use serde_json::{json, Value};

use super::parts::{bos_eos_template, cls_sep_template, roberta_processing, AddedTokens, Ids};
use super::TOKENS_MAX;
use crate::classes::Kind;
use crate::settings::Settings;

/// Qwen2's words.
const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub fn convert(kind: Kind, settings: &Settings, vocabulary: &[u8], merges: &[u8]) -> Result<Value, String> {
    let ids: Ids = serde_json::from_slice(vocabulary)
        .map_err(|error| format!("vocab.json must be an object with the ids of tokens, such as {{\"the\": 5}}: {error}"))?;
    if ids.len() > TOKENS_MAX {
        return Err(format!("vocab.json has more than {TOKENS_MAX} tokens"));
    }
    let model = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                       "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids, "merges": merges_of(merges)?});
    let mut added = AddedTokens::new(ids);
    added.add_named(settings, matches!(kind, Kind::Roberta | Kind::Deberta));
    let add_prefix_space = settings.flag("add_prefix_space", false);
    let byte_level =
        |use_regex| json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": use_regex});
    let split = json!({"type": "Split", "pattern": {"Regex": QWEN2_WORDS}, "behavior": "Isolated", "invert": false});
    let (normalizer, pre_tokenizer) = match kind {
        Kind::Qwen2 => (json!({"type": "NFC"}), json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]})),
        _ => (Value::Null, byte_level(true)),
    };
    let post_processor = match kind {
        Kind::Roberta => roberta_processing(settings, &added, add_prefix_space)?,
        Kind::Deberta => cls_sep_template(settings, &added)?,
        _ => bos_eos_template(settings, &added, false)?,
    };
    Ok(json!({
        "version": "1.0",
        "added_tokens": added.into_json(),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": model,
    }))
}

/// One merge a line, two tokens with a space between them, after a line of "#version".
fn merges_of(file: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(file).map_err(|error| format!("merges.txt is not valid UTF-8 at byte {}", error.valid_up_to()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with("#version"));
    let merge = |(i, line): (usize, &str)| match line.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => Ok(json!([left, right])),
        _ => Err(format!("merges.txt, line {}: must be two tokens with a space between them", i + 1)),
    };
    lines.map(merge).collect()
}
