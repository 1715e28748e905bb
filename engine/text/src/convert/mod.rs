//! Makes a tokenizer.json of the files that models had before it: vocab.txt, vocab.json with merges.txt, and SentencePiece models. Follows
//! the converters of transformers (convert_slow_tokenizer.py), by the tokenizer's class. Called by abi.rs.

mod byte_level;
mod parts;
mod sentence_pieces;
mod sentencepiece;
mod wordpiece;

use crate::classes::{Class, Kind};
use crate::settings::Settings;

/// The largest vocabularies in use have 256,000 tokens.
const TOKENS_MAX: usize = 1 << 21;

const SAVE_AGAIN: &str =
    "save the tokenizer with transformers, AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER), which writes tokenizer.json";

/// The names of the files that the class reads. The error names a class that is unknown here.
pub fn files_of(settings: &Settings) -> Result<&'static [&'static str], String> {
    Ok(match class_of(settings)?.kind {
        Kind::Bert | Kind::Mpnet => &["vocab.txt"],
        Kind::Roberta | Kind::Gpt2 | Kind::Qwen2 | Kind::Deberta => &["vocab.json", "merges.txt"],
        Kind::XlmRoberta | Kind::Camembert => &["sentencepiece.bpe.model"],
        Kind::DebertaV2 => &["spm.model"],
        Kind::Albert | Kind::T5 => &["spiece.model"],
        Kind::Llama => &["tokenizer.model"],
    })
}

/// `files`: the contents of `files_of`, in their order. Returns a tokenizer.json. The error names the file.
pub fn to_json(settings: &Settings, files: &[&[u8]]) -> Result<String, String> {
    let (class, names) = (class_of(settings)?, files_of(settings)?);
    let json = match (class.kind, files) {
        (Kind::Bert | Kind::Mpnet, &[vocabulary]) => wordpiece::convert(class.kind, settings, vocabulary)?,
        (kind, &[vocabulary, merges]) => byte_level::convert(kind, settings, vocabulary, merges)?,
        (kind, &[model]) => {
            let named = |error| format!("{}: {error}", names[0]);
            sentence_pieces::convert(kind, settings, &sentencepiece::Model::read(model).map_err(named)?).map_err(named)?
        }
        _ => return Err(format!("{} has {} files", settings.class_name, names.len())),
    };
    Ok(json.to_string())
}

fn class_of(settings: &Settings) -> Result<&'static Class, String> {
    match settings.class {
        Some(class) => Ok(class),
        None if settings.class_name.is_empty() => Err(format!(
            "there is no tokenizer.json, and neither tokenizer_config.json (tokenizer_class) nor config.json (model_type) names the \
             tokenizer's class; {SAVE_AGAIN}"
        )),
        None => Err(format!(
            "there is no tokenizer.json, and Lorry cannot make one for the tokenizer class {}; {SAVE_AGAIN}",
            settings.class_name
        )),
    }
}
