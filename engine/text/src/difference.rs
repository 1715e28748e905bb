//! What makes two tokenizers give other ids or other texts, however their files are written. Called by abi.rs for the tokenizer of an
//! adapter's folder and its base's.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use crate::jinja::cut;
use crate::tokenizer::Tokenizer;

/// One text and two, whose spaces show what happens to spans.
const PROBES: [(&str, Option<&str>); 2] = [(" a b", None), (" a", Some(" b"))];
/// Longer tokens are cut in messages.
const TOKEN_SHOWN_MAX: usize = 60;

/// The first difference between `own` and `base`; None: they encode and decode alike. Names of tokens count only where `own` has them.
pub fn between(own: &Tokenizer, base: &Tokenizer) -> Result<Option<String>, String> {
    if let Some(difference) = of_vocabularies(own, base).or_else(|| of_added_tokens(own, base)) {
        return Ok(Some(difference));
    }
    let (library, known) = (own.library(), base.library());
    if text_of(library.get_model())? != text_of(known.get_model())? {
        if let Some(difference) = of_models(&value_of(library.get_model())?, &value_of(known.get_model())?) {
            return Ok(Some(difference));
        }
    }
    let parts = [
        ("normalizer", value_of(&library.get_normalizer())?, value_of(&known.get_normalizer())?),
        ("pre_tokenizer", splitting(value_of(&library.get_pre_tokenizer())?), splitting(value_of(&known.get_pre_tokenizer())?)),
        ("decoder", decoding(value_of(&library.get_decoder())?), decoding(value_of(&known.get_decoder())?)),
    ];
    if let Some((name, _, _)) = parts.iter().find(|(_, own, base)| own != base) {
        return Ok(Some(format!("its {name} is another one")));
    }
    for (first, second) in PROBES {
        if own.encode_pair(first, second, None)? != base.encode_pair(first, second, None)? {
            let texts = if second.is_some() { "pairs" } else { "texts" };
            return Ok(Some(format!("its post_processor adds other tokens to {texts}")));
        }
    }
    let named = |name: &&str| own.named_token(name).is_some_and(|token| base.named_token(name) != Some(token));
    Ok(["mask_token", "unk_token"].into_iter().find(named).map(|name| format!("its {name} is another one")))
}

fn of_vocabularies(own: &Tokenizer, base: &Tokenizer) -> Option<String> {
    let (ours, theirs) = (own.library().get_vocab(true), base.library().get_vocab(true));
    let lacks = |vocabulary: &HashMap<String, u32>, token: &str, id: u32| vocabulary.get(token) != Some(&id);
    let only_ours = ours.iter().filter(|(token, &id)| lacks(&theirs, token, id));
    let only_theirs = theirs.iter().filter(|(token, &id)| lacks(&ours, token, id));
    let id = only_ours.chain(only_theirs).map(|(_, &id)| id).min()?;
    Some(match (own.token(id), base.token(id)) {
        (Some(ours), None) => format!("it has the token {} with the id {id}, and the base has none with it", shown(&ours)),
        (None, Some(theirs)) => format!("it lacks the token {} with the id {id}", shown(&theirs)),
        (ours, theirs) => {
            let [ours, theirs] = [ours, theirs].map(|token| shown(&token.unwrap_or_default()));
            format!("its token with the id {id} is {ours}, and the base's is {theirs}")
        }
    })
}

fn of_added_tokens(own: &Tokenizer, base: &Tokenizer) -> Option<String> {
    let (ours, theirs) = (own.library().get_added_tokens_decoder(), base.library().get_added_tokens_decoder());
    let id = ours.keys().chain(theirs.keys()).copied().filter(|id| ours.get(id) != theirs.get(id)).min()?;
    let token = shown(&own.token(id).unwrap_or_default());
    Some(match (ours.get(&id), theirs.get(&id)) {
        (Some(_), None) => format!("it makes {token} (id {id}) an added token, which is none in the base"),
        (None, Some(_)) => format!("{token} (id {id}) is no added token in it, as it is in the base"),
        (ours, theirs) => {
            let special = ours.is_some_and(|token| token.special);
            if special != theirs.is_some_and(|token| token.special) {
                format!("{token} (id {id}) is {} in it, unlike in the base", if special { "special" } else { "not special" })
            } else {
                format!("it finds {token} (id {id}) by other rules (single_word, lstrip, rstrip, normalized)")
            }
        }
    })
}

/// An empty prefix or suffix of BPE is none.
fn of_models(own: &Value, base: &Value) -> Option<String> {
    let meant = |value: Option<&Value>| value.filter(|value| value.as_str() != Some("")).cloned().unwrap_or_default();
    let members = own.as_object().into_iter().flatten();
    let (name, _) = members.into_iter().find(|(name, value)| meant(Some(value)) != meant(base.get(name)))?;
    Some(format!("its model has another {name}"))
}

/// Only the post-processor of this name trims. Transformers writes either.
fn splitting(mut pre_tokenizer: Value) -> Value {
    change_byte_levels(&mut pre_tokenizer, &|byte_level| {
        byte_level.remove("trim_offsets");
    });
    pre_tokenizer
}

/// The decoder of this name has no options, though it writes those of the pre-tokenizer.
fn decoding(mut decoder: Value) -> Value {
    change_byte_levels(&mut decoder, &|byte_level| byte_level.retain(|name, _| name == "type"));
    decoder
}

fn change_byte_levels(part: &mut Value, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
    match part {
        Value::Object(members) if members.get("type").is_some_and(|name| name == "ByteLevel") => change(members),
        Value::Object(members) => members.values_mut().for_each(|member| change_byte_levels(member, change)),
        Value::Array(parts) => parts.iter_mut().for_each(|part| change_byte_levels(part, change)),
        _ => {}
    }
}

fn value_of<T: Serialize>(part: &T) -> Result<Value, String> {
    serde_json::to_value(part).map_err(|error| error.to_string())
}

fn text_of<T: Serialize>(part: &T) -> Result<String, String> {
    serde_json::to_string(part).map_err(|error| error.to_string())
}

fn shown(token: &str) -> String {
    format!("{:?}", cut(token.to_string(), TOKEN_SHOWN_MAX))
}
