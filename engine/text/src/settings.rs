//! What tokenizer_config.json and config.json say about a tokenizer: its class, special tokens, and options that differ from
//! tokenizer.json. Called by abi.rs, tokenizer.rs and convert.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::{NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer};

use crate::classes::{self, ByteLevelClass, Class, Kind};

/// As lorry_text_tokenizer_new takes them.
pub struct Settings {
    /// None: tokenizer.json alone decides.
    pub class: Option<&'static Class>,
    pub byte_level: Option<&'static ByteLevelClass>,
    /// Of the parts of tokenizer.json, none is replaced.
    follows_file: bool,
    /// As the files have it, for messages.
    pub class_name: String,
    pub config: Value,
    pub special_tokens: HashMap<String, String>,
    /// Objects with `id`, `is_named` and `token`.
    pub added_tokens: Vec<Value>,
}

impl Settings {
    pub fn from_json(json: &str) -> Result<Self, String> {
        let mut json: Value = serde_json::from_str(json).map_err(|error| format!("settings of the tokenizer: {error}"))?;
        let class_name = json["class"].as_str().unwrap_or_default().to_string();
        let model_type = json["model_type"].as_str().unwrap_or_default().to_string();
        let special_tokens = json["special_tokens"].as_object().into_iter().flatten();
        let special_tokens = special_tokens.filter_map(|(name, token)| Some((name.clone(), token.as_str()?.to_string()))).collect();
        let added_tokens = match json["added_tokens"].take() {
            Value::Array(tokens) => tokens,
            _ => Vec::new(),
        };
        Ok(Settings {
            class: classes::find(&class_name, &model_type),
            byte_level: classes::find_byte_level(&class_name, &model_type),
            follows_file: classes::follows_file(&model_type),
            class_name: if class_name.is_empty() { model_type } else { class_name },
            config: json["config"].take(),
            special_tokens,
            added_tokens,
        })
    }

    /// Names such as `mask_token` with the configured tokens, else those of the class.
    pub fn named_tokens(&self) -> impl Iterator<Item = (&str, &str)> {
        let configured = self.special_tokens.iter().map(|(name, token)| (name.as_str(), token.as_str()));
        let of_class = self.class.map_or(&[][..], |class| class.tokens).iter().copied();
        configured.chain(of_class.filter(|(name, _)| !self.special_tokens.contains_key(*name)))
    }

    pub fn named_token(&self, name: &str) -> Option<&str> {
        self.named_tokens().find(|(known, _)| *known == name).map(|(_, token)| token)
    }

    pub fn flag(&self, name: &str, absent: bool) -> bool {
        self.config[name].as_bool().unwrap_or(absent)
    }

    pub fn is_one_of(&self, kinds: &[Kind]) -> bool {
        self.class.is_some_and(|class| kinds.contains(&class.kind))
    }

    pub fn bert_normalizer(&self) -> BertNormalizer {
        BertNormalizer::new(
            true,
            self.flag("tokenize_chinese_chars", true),
            self.config["strip_accents"].as_bool(),
            self.flag("do_lower_case", true),
        )
    }
}

/// Where tokenizer_config.json differs from tokenizer.json, transformers follows the former, with the defaults of the class.
pub fn apply(library: &mut Tokenizer, settings: &Settings) -> Result<(), String> {
    library.set_encode_special_tokens(settings.flag("split_special_tokens", false));
    if settings.is_one_of(&[Kind::Bert, Kind::Mpnet]) && !settings.follows_file {
        if let Some(NormalizerWrapper::BertNormalizer(_)) = library.get_normalizer() {
            library.with_normalizer(Some(settings.bert_normalizer())).map_err(|error| error.to_string())?;
        }
    }
    if let Some(class) = settings.byte_level {
        let add_prefix_space = settings.flag("add_prefix_space", false);
        if let Some(mut pre_tokenizer) = library.get_pre_tokenizer().cloned() {
            set_prefix_space(&mut pre_tokenizer, add_prefix_space);
            library.with_pre_tokenizer(Some(pre_tokenizer));
        }
        if !class.keeps_post_processor {
            library.with_post_processor(None::<PostProcessorWrapper>);
        }
        if let Some(PostProcessorWrapper::Roberta(roberta)) = library.get_post_processor() {
            let roberta = roberta.clone().trim_offsets(settings.flag("trim_offsets", true)).add_prefix_space(add_prefix_space);
            library.with_post_processor(Some(roberta));
        }
    }
    Ok(())
}

/// Sets it in all parts of the kind ByteLevel.
fn set_prefix_space(pre_tokenizer: &mut PreTokenizerWrapper, add_prefix_space: bool) {
    match pre_tokenizer {
        PreTokenizerWrapper::ByteLevel(byte_level) => byte_level.add_prefix_space = add_prefix_space,
        PreTokenizerWrapper::Sequence(parts) => parts.as_mut().iter_mut().for_each(|part| set_prefix_space(part, add_prefix_space)),
        _ => {}
    }
}
