//! vocab.txt of BERT and its descendants. Called by convert.

use serde_json::{json, Value};

use super::parts::{cls_sep_template, ids_of, roberta_processing, AddedTokens};
use crate::classes::Kind;
use crate::settings::Settings;

pub fn convert(kind: Kind, settings: &Settings, vocabulary: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(vocabulary).map_err(|error| format!("vocab.txt is not valid UTF-8 at byte {}", error.valid_up_to()))?;
    let text = text.replace("\r\n", "\n");
    let ids = ids_of(text.strip_suffix('\n').unwrap_or(&text).split('\n')).map_err(|error| format!("vocab.txt: {error}"))?;
    let unknown = settings.named_token("unk_token").unwrap_or("[UNK]");
    if !ids.contains_key(unknown) {
        return Err(format!("vocab.txt has no {unknown:?}, the token of unknown words; it must have one token a line"));
    }
    let model = json!({"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                       "vocab": ids});
    let mut added = AddedTokens::new(ids);
    added.add_named(settings, kind == Kind::Mpnet);
    let post_processor =
        if kind == Kind::Mpnet { roberta_processing(settings, &added, false)? } else { cls_sep_template(settings, &added)? };
    Ok(json!({
        "version": "1.0",
        "added_tokens": added.into_json(),
        "normalizer": settings.bert_normalizer(),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": post_processor,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": model,
    }))
}
