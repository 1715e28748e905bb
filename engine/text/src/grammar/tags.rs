//! Structural tags: free text, in which each trigger begins a tag, and the text of a tag matches its schema.

use std::fmt::Write;

use serde_json::Value;

use super::schema::Size;
use super::{prepared, Style};

const TAGS_MAX: usize = 200;
/// They become a regular expression.
const TRIGGERS_BYTES_MAX: usize = 16 << 10;

struct Tag {
    trigger: usize,
    begin: String,
    end: String,
    schema: Value,
}

/// Rules of Lark. `text`: {"structures": [{"begin", "schema", "end"}, ...], "triggers": [texts, ...]}. `specials`: of the tokenizer; an
/// answer's text has none of them.
pub fn rules(text: &str, style: Style, specials: &[&str]) -> Result<String, String> {
    let parts: Value = serde_json::from_str(text).map_err(|error| format!("the structural tags are not JSON: {error}"))?;
    let triggers = triggers_of(&parts)?;
    let tags = tags_of(&parts, &triggers)?;
    for text in tags.iter().flat_map(|tag| [&tag.begin, &tag.end]) {
        if let Some(special) = specials.iter().find(|&&special| text.contains(special)) {
            return Err(format!("the tag '{text}' has the special token '{special}', which no answer's text has"));
        }
    }
    let mut size = Size::default();
    let escaped: Vec<String> = triggers.iter().map(|trigger| regex::escape(trigger).replace('/', r"\/")).collect();
    // The free text ends at the first trigger: the rule is lazy, and the last text has none.
    let mut rules = format!(
        "start: ({})* last\nlast: LAST\nTEXT: /(.|\\n)*/\nLAST: TEXT & ~/(.|\\n)*({})(.|\\n)*/\n",
        (0..triggers.len()).map(|index| format!("tags_{index}")).collect::<Vec<_>>().join(" | "),
        escaped.join("|")
    );
    for (index, trigger) in triggers.iter().enumerate() {
        let own = tags.iter().enumerate().filter(|(_, tag)| tag.trigger == index).map(|(place, _)| format!("tag_{place}"));
        let own = own.collect::<Vec<_>>().join(" | ");
        let trigger = literal(trigger);
        writeln!(rules, "tags_{index}: trigger_{index} ({own})\ntrigger_{index}[lazy]: TEXT {trigger}").unwrap();
    }
    for (place, tag) in tags.into_iter().enumerate() {
        let (rest, end) = (literal(&tag.begin[triggers[tag.trigger].len()..]), literal(&tag.end));
        let schema = prepared(tag.schema, style, &mut size)?;
        writeln!(rules, "tag_{place}: {rest} schema_{place} {end}\nschema_{place}: %json {schema}").unwrap();
    }
    Ok(rules)
}

fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn texts_of<'a>(parts: &'a Value, name: &str) -> Result<Vec<&'a str>, String> {
    let texts = parts[name].as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    texts.filter(|texts| !texts.is_empty()).ok_or_else(|| format!("{name} is a list of at least one text"))
}

fn triggers_of(parts: &Value) -> Result<Vec<String>, String> {
    let mut triggers: Vec<String> = texts_of(parts, "triggers")?.into_iter().map(String::from).collect();
    if triggers.len() > TAGS_MAX {
        return Err(format!("there are {} triggers; supported are up to {TAGS_MAX}", triggers.len()));
    }
    if triggers.iter().map(String::len).sum::<usize>() > TRIGGERS_BYTES_MAX {
        return Err(format!("the triggers are too long: supported are up to {TRIGGERS_BYTES_MAX} bytes together"));
    }
    triggers.sort();
    triggers.dedup();
    for (index, trigger) in triggers.iter().enumerate() {
        if trigger.is_empty() {
            return Err("a trigger is empty; a tag would begin everywhere".to_string());
        }
        let others = triggers.iter().enumerate().filter(|(other, _)| *other != index);
        if let Some((_, longer)) = others.into_iter().find(|(_, other)| other.contains(trigger)) {
            return Err(format!("the trigger '{trigger}' is a part of the trigger '{longer}', so the first would always come before it"));
        }
    }
    Ok(triggers)
}

fn tags_of(parts: &Value, triggers: &[String]) -> Result<Vec<Tag>, String> {
    let structures = parts["structures"].as_array().filter(|list| !list.is_empty());
    let structures = structures.ok_or("structures is a list of at least one object {begin, schema, end}")?;
    if structures.len() > TAGS_MAX {
        return Err(format!("there are {} structures; supported are up to {TAGS_MAX}", structures.len()));
    }
    let mut tags = Vec::new();
    for (index, structure) in structures.iter().enumerate() {
        let text = |name: &str| structure[name].as_str().ok_or_else(|| format!("structures[{index}].{name} is missing, or no text"));
        let (begin, end) = (text("begin")?, text("end")?);
        let trigger = triggers.iter().position(|trigger| begin.starts_with(trigger.as_str()));
        let trigger = trigger.ok_or_else(|| format!("structures[{index}].begin '{begin}' begins with none of the triggers"))?;
        let schema = match &structure["schema"] {
            Value::Null => return Err(format!("structures[{index}].schema is missing")),
            schema => schema.clone(),
        };
        let members = structure.as_object().expect("it has members").keys();
        if let Some(other) = members.into_iter().find(|name| !["begin", "schema", "end"].contains(&name.as_str())) {
            return Err(format!("structures[{index}].{other} is not supported; leave it out"));
        }
        tags.push(Tag { trigger, begin: begin.to_string(), end: end.to_string(), schema });
    }
    if let Some(unused) = (0..triggers.len()).find(|&index| tags.iter().all(|tag| tag.trigger != index)) {
        return Err(format!("no structure begins with the trigger '{}'", triggers[unused]));
    }
    Ok(tags)
}
