//! The parts of a tokenizer.json that several conversions share. Called by the files of this folder.

use std::collections::{BTreeMap, HashMap};

use serde_json::{json, Map, Value};

use super::TOKENS_MAX;
use crate::settings::Settings;

pub type Ids = HashMap<String, u32>;

/// Ids by token: of several equal tokens, the last one's.
pub fn ids_of<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<Ids, String> {
    let mut ids = Ids::new();
    for (id, token) in tokens.enumerate() {
        if id >= TOKENS_MAX {
            return Err(format!("there are more than {TOKENS_MAX} tokens"));
        }
        ids.insert(token.to_string(), id as u32);
    }
    Ok(ids)
}

/// The entries of "added_tokens": tokens that are found in a text before the model sees it.
pub struct AddedTokens {
    ids: Ids,
    /// The first id after the vocabulary.
    end: u32,
    next: u32,
    entries: BTreeMap<u32, Value>,
}

impl AddedTokens {
    pub fn new(ids: Ids) -> Self {
        let end = ids.values().max().map_or(0, |&highest| highest.saturating_add(1));
        AddedTokens { ids, end, next: end, entries: BTreeMap::new() }
    }

    /// A token outside the vocabulary gets the next id, as in transformers.
    pub fn add(&mut self, token: &str, special: bool) {
        self.add_with(token, json!({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special}));
    }

    fn add_with(&mut self, token: &str, mut entry: Value) {
        let id = *self.ids.entry(token.to_string()).or_insert_with(|| {
            self.next = self.next.saturating_add(1);
            self.next - 1
        });
        entry["id"] = id.into();
        entry["content"] = token.into();
        self.entries.insert(id, entry);
    }

    /// The named tokens, except those that follow from added_tokens_decoder with ids of their own. `mask_takes_spaces`: before it, unless
    /// tokenizer_config.json says otherwise.
    pub fn add_named(&mut self, settings: &Settings, mask_takes_spaces: bool) {
        // In the order in which transformers gives ids.
        for name in ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"] {
            let Some(token) = settings.named_token(name) else { continue };
            let follows = settings.added_tokens.iter().any(|entry| entry["token"]["content"] == token);
            if !token.is_empty() && (self.ids.contains_key(token) || !follows) {
                let flag = |key: &str, absent: bool| settings.config[name][key].as_bool().unwrap_or(absent);
                let entry = json!({"single_word": flag("single_word", false), "rstrip": flag("rstrip", false),
                                   "lstrip": flag("lstrip", mask_takes_spaces && name == "mask_token"),
                                   "normalized": flag("normalized", false), "special": true});
                self.add_with(token, entry);
            }
        }
    }

    /// Of a token that stands beside texts. One that neither the vocabulary nor the configuration has would be unknown to the model.
    pub fn id(&self, settings: &Settings, token: &str) -> Result<u32, String> {
        let configured = || settings.added_tokens.iter().find(|entry| entry["token"]["content"] == token)?["id"].as_u64();
        let id = self.ids.get(token).copied().filter(|&id| id < self.end).or_else(|| u32::try_from(configured()?).ok());
        id.ok_or_else(|| format!("the vocabulary has no token {token:?}, which stands beside each text"))
    }

    pub fn into_json(self) -> Value {
        self.entries.into_values().collect()
    }
}

/// A TemplateProcessing of pieces as "$A:0" for a text, or a token with its type.
pub fn template(single: &[(&str, u32)], pair: &[(&str, u32)], id: impl Fn(&str) -> Result<u32, String>) -> Result<Value, String> {
    let mut special_tokens = Map::new();
    for (token, _) in single.iter().chain(pair).filter(|(token, _)| !is_text(token)) {
        special_tokens.insert(token.to_string(), json!({"id": token, "ids": [id(token)?], "tokens": [token]}));
    }
    let pieces = |pieces: &[(&str, u32)]| -> Value {
        let piece = |&(token, type_id): &(&str, u32)| match is_text(token) {
            true => json!({"Sequence": {"id": &token[1..], "type_id": type_id}}),
            false => json!({"SpecialToken": {"id": token, "type_id": type_id}}),
        };
        pieces.iter().map(piece).collect()
    };
    Ok(json!({"type": "TemplateProcessing", "single": pieces(single), "pair": pieces(pair), "special_tokens": special_tokens}))
}

fn is_text(piece: &str) -> bool {
    piece == "$A" || piece == "$B"
}

/// BERT's: the second text and its end have type 1.
pub fn cls_sep_template(settings: &Settings, added: &AddedTokens) -> Result<Value, String> {
    let (cls, sep) = (settings.named_token("cls_token").unwrap_or("[CLS]"), settings.named_token("sep_token").unwrap_or("[SEP]"));
    let single = [(cls, 0), ("$A", 0), (sep, 0)];
    template(&single, &[(cls, 0), ("$A", 0), (sep, 0), ("$B", 1), (sep, 1)], |token| added.id(settings, token))
}

/// bos and eos tokens of the options add_bos_token and add_eos_token, which decoders have.
pub fn bos_eos_template(settings: &Settings, added: &AddedTokens, add_bos: bool) -> Result<Value, String> {
    let token = |flag: &str, absent: bool, name: &str| match settings.flag(flag, absent) {
        true => settings.named_token(name),
        false => None,
    };
    let (bos, eos) = (token("add_bos_token", add_bos, "bos_token"), token("add_eos_token", false, "eos_token"));
    let around = |text: &'static str, type_id: u32| bos.into_iter().chain([text]).chain(eos).map(move |token| (token, type_id));
    let single: Vec<_> = around("$A", 0).collect();
    let pair: Vec<_> = around("$A", 0).chain(around("$B", 1)).collect();
    template(&single, &pair, |token| added.id(settings, token))
}

pub fn roberta_processing(settings: &Settings, added: &AddedTokens, add_prefix_space: bool) -> Result<Value, String> {
    let end = |name, absent| -> Result<Value, String> {
        let token = settings.named_token(name).unwrap_or(absent);
        Ok(json!([token, added.id(settings, token)?]))
    };
    Ok(json!({"type": "RobertaProcessing", "sep": end("sep_token", "</s>")?, "cls": end("cls_token", "<s>")?,
              "trim_offsets": settings.flag("trim_offsets", true), "add_prefix_space": add_prefix_space}))
}
