//! SentencePiece models of XLM-RoBERTa, DeBERTa-v2, ALBERT, T5, Llama and others. Called by convert.

use serde_json::{json, Value};

use super::parts::{bos_eos_template, cls_sep_template, ids_of, template, AddedTokens, Ids};
use super::sentencepiece::{Algorithm, Model, PieceKind};
use crate::classes::Kind;
use crate::settings::Settings;

/// Stands for a space in pieces.
const MARKER: &str = "▁";
/// T5 has 100 tokens <extra_id_0> and so on.
const EXTRA_IDS_MAX: u64 = 10_000;
/// Llama has 61,000.
const MERGES_MAX: usize = 1 << 22;

pub fn convert(kind: Kind, settings: &Settings, model: &Model) -> Result<Value, String> {
    let (wanted, name) = match kind {
        Kind::Llama => (Algorithm::Bpe, "BPE"),
        _ => (Algorithm::Unigram, "Unigram"),
    };
    if model.algorithm != wanted {
        return Err(format!("the model is not of the algorithm {name}, which the tokenizer class {} has", settings.class_name));
    }
    let vocabulary = vocabulary_of(kind, settings, model)?;
    let ids = ids_of(vocabulary.iter().map(|(token, _)| token.as_str()))?;
    let library_model = match kind {
        Kind::Llama => bpe_of(&vocabulary, &ids, settings)?,
        _ => {
            let unk_id = if matches!(kind, Kind::XlmRoberta | Kind::Camembert) { 3 } else { model.unk_id };
            json!({"type": "Unigram", "unk_id": unk_id, "vocab": vocabulary, "byte_fallback": false})
        }
    };
    let mut added = AddedTokens::new(ids);
    for piece in model.pieces.iter().filter(|piece| piece.kind != PieceKind::Other && !piece.text.is_empty()) {
        added.add(piece.text, piece.kind == PieceKind::Control);
    }
    added.add_named(settings, matches!(kind, Kind::XlmRoberta | Kind::Camembert | Kind::Albert));
    for (token, _) in vocabulary.iter().skip(model.pieces.len()).filter(|_| kind == Kind::T5) {
        added.add(token, true);
    }
    let post_processor = post_processor_of(kind, settings, &added)?;
    let metaspace = metaspace_of(kind, settings);
    Ok(json!({
        "version": "1.0",
        "added_tokens": added.into_json(),
        "normalizer": normalizer_of(kind, settings, model.charsmap),
        "pre_tokenizer": pre_tokenizer_of(kind, settings, metaspace.clone()),
        "post_processor": post_processor,
        "decoder": if kind == Kind::Llama { llama_decoder(settings) } else { metaspace },
        "model": library_model,
    }))
}

/// Tokens by id with their scores.
fn vocabulary_of(kind: Kind, settings: &Settings, model: &Model) -> Result<Vec<(String, f64)>, String> {
    let named = |name: &str| (settings.named_token(name).unwrap_or_default().to_string(), 0.0);
    let unused = |token: &str, score: f64| (token.to_string(), score);
    let pieces = |from: usize| {
        model.pieces.iter().skip(from).map(|piece| {
            // A number with a comma is two tokens for ALBERT.
            let down = if kind == Kind::Albert && ends_in_number_and_comma(piece.text) { 100.0 } else { 0.0 };
            (piece.text.to_string(), f64::from(piece.score) - down)
        })
    };
    Ok(match kind {
        // The ids of fairseq: its own special tokens come first, and the file's first pieces are dropped.
        Kind::XlmRoberta => {
            let first = ["bos_token", "pad_token", "eos_token", "unk_token"].map(named);
            first.into_iter().chain(pieces(3)).chain([named("mask_token")]).collect()
        }
        Kind::Camembert => {
            let (pad, unk) = (named("pad_token"), named("unk_token"));
            let first = [unused("<s>NOTUSED", 0.0), pad, unused("</s>NOTUSED", 0.0), unk, unused("<unk>NOTUSED", -100.0)];
            first.into_iter().chain(pieces(1)).chain([named("mask_token")]).collect()
        }
        Kind::T5 => {
            let count = settings.config["extra_ids"].as_u64().unwrap_or(100);
            if count > EXTRA_IDS_MAX {
                return Err(format!("tokenizer_config.json: extra_ids is {count}; allowed are up to {EXTRA_IDS_MAX}"));
            }
            pieces(0).chain((0..count).rev().map(|i| (format!("<extra_id_{i}>"), 0.0))).collect()
        }
        _ => pieces(0).collect(),
    })
}

fn ends_in_number_and_comma(piece: &str) -> bool {
    let mut last = piece.chars().rev();
    last.next() == Some(',') && last.next().is_some_and(char::is_numeric)
}

/// The merges of a SentencePiece BPE are all pairs of tokens that make a token, in the order of their ids.
fn bpe_of(vocabulary: &[(String, f64)], ids: &Ids, settings: &Settings) -> Result<Value, String> {
    let mut merges: Vec<(&str, &str)> = Vec::new();
    for (token, _) in vocabulary {
        for (split, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(split);
            if ids.contains_key(left) && ids.contains_key(right) {
                merges.push((left, right));
            }
        }
        if merges.len() > MERGES_MAX {
            return Err(format!("there are more than {MERGES_MAX} merges"));
        }
    }
    let unknown = settings.named_token("unk_token").filter(|token| ids.contains_key(*token));
    Ok(json!({"type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null, "end_of_word_suffix": null,
              "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": ids, "merges": merges}))
}

fn normalizer_of(kind: Kind, settings: &Settings, charsmap: &[u8]) -> Value {
    let replace_text = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let replace_spaces = |content: &str| json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content});
    let strip = |left: bool| json!({"type": "Strip", "strip_left": left, "strip_right": true});
    let lowercase = || json!({"type": "Lowercase"});
    let precompiled = (!charsmap.is_empty()).then(|| json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(charsmap)}));
    let mut steps = Vec::new();
    match kind {
        Kind::Llama if !is_legacy(settings) => return Value::Null,
        Kind::Llama => {
            steps.extend(settings.flag("add_prefix_space", true).then(|| json!({"type": "Prepend", "prepend": MARKER})));
            steps.push(replace_text(" ", MARKER));
        }
        Kind::DebertaV2 => {
            steps.extend(settings.flag("do_lower_case", false).then(lowercase));
            steps.push(strip(true));
            steps.extend(precompiled);
            steps.push(replace_spaces(" "));
        }
        Kind::Albert => {
            steps.extend([replace_text("``", "\""), replace_text("''", "\"")]);
            if !settings.flag("keep_accents", false) {
                steps.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
            }
            steps.extend(settings.flag("do_lower_case", true).then(lowercase));
            steps.extend(precompiled);
            steps.push(replace_spaces(" "));
        }
        _ => {
            steps.extend(precompiled);
            steps.extend([strip(false), replace_spaces(MARKER)]);
        }
    }
    json!({"type": "Sequence", "normalizers": steps})
}

fn metaspace_of(kind: Kind, settings: &Settings) -> Value {
    let prepend_scheme = match (settings.flag("add_prefix_space", true), kind) {
        (false, _) => "never",
        (true, Kind::Llama) => "first",
        (true, _) => "always",
    };
    json!({"type": "Metaspace", "replacement": MARKER, "prepend_scheme": prepend_scheme, "split": kind != Kind::Llama})
}

/// Whether a tokenizer of Llama's class puts a space after special tokens, too, as the first ones did.
fn is_legacy(settings: &Settings) -> bool {
    settings.flag("legacy", true)
}

fn pre_tokenizer_of(kind: Kind, settings: &Settings, metaspace: Value) -> Value {
    match kind {
        Kind::Llama if is_legacy(settings) => Value::Null,
        Kind::DebertaV2 if settings.flag("split_by_punct", false) => {
            json!({"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, metaspace]})
        }
        _ => metaspace,
    }
}

fn llama_decoder(settings: &Settings) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": MARKER}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if settings.flag("add_prefix_space", true) {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn post_processor_of(kind: Kind, settings: &Settings, added: &AddedTokens) -> Result<Value, String> {
    let named = |name: &str| settings.named_token(name).unwrap_or_default();
    let (bos, eos) = (named("bos_token"), named("eos_token"));
    let id = |token: &str| added.id(settings, token);
    match kind {
        Kind::Llama => bos_eos_template(settings, added, true),
        Kind::T5 => template(&[("$A", 0), (eos, 0)], &[("$A", 0), (eos, 0), ("$B", 0), (eos, 0)], id),
        Kind::XlmRoberta | Kind::Camembert => {
            template(&[(bos, 0), ("$A", 0), (eos, 0)], &[(bos, 0), ("$A", 0), (eos, 0), (eos, 0), ("$B", 0), (eos, 0)], id)
        }
        _ => cls_sep_template(settings, added),
    }
}
