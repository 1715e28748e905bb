//! Structural tags: texts, free text and tags around what matches a schema. In vLLM's older form these are schemas in free text, in the
//! newer form whatever tag_format.rs reads. Called by mod.rs.

use serde_json::Value;

use super::parts::{self, Part};
use super::schema::Size;
use super::tag_format;
use super::word::Word;
use super::{pattern, prepared, Style, PATTERN_BYTES_MAX};

/// Of one list.
const TAGS_MAX: usize = 200;
/// They become a regular expression.
const TRIGGERS_BYTES_MAX: usize = 16 << 10;

/// What all parts of a structural tag share.
pub struct Context<'a> {
    style: Style<'a>,
    /// Of the tokenizer; an answer's text has none of them.
    specials: &'a [&'a str],
    size: Size,
    schemas: Vec<Value>,
    patterns_bytes: usize,
}

impl Context<'_> {
    pub fn schema(&mut self, schema: Value) -> Result<Part, String> {
        self.schemas.push(prepared(schema, self.style, &mut self.size)?);
        Ok(Part::Json(self.schemas.len() - 1))
    }

    pub fn pattern(&mut self, pattern: &str) -> Result<Part, String> {
        self.patterns_bytes += pattern.len();
        if self.patterns_bytes > PATTERN_BYTES_MAX {
            return Err(format!("the patterns are too long: supported are up to {PATTERN_BYTES_MAX} bytes together"));
        }
        Ok(Part::Word(Word::Pattern(pattern::ascii(pattern))))
    }

    /// A text that an answer may have.
    pub fn text(&self, text: &str) -> Result<Part, String> {
        match self.specials.iter().find(|&&special| text.contains(special)) {
            Some(special) => Err(format!("the text '{text}' has the special token '{special}', which no answer's text has")),
            None => Ok(Part::text(text)),
        }
    }
}

/// A text that begins, content, and one of some texts that end.
pub struct Tag {
    pub begin: String,
    pub content: Part,
    pub ends: Vec<String>,
}

impl Tag {
    /// Without the first `skip` bytes.
    pub fn part(self, skip: usize, context: &Context) -> Result<Part, String> {
        let begin = context.text(&self.begin)?;
        let begin = if skip > 0 { Part::text(&self.begin[skip..]) } else { begin };
        let ends = self.ends.iter().map(|end| context.text(end)).collect::<Result<Vec<_>, _>>()?;
        Ok(Part::Sequence(vec![begin, self.content, Part::Or(ends)]))
    }
}

/// Tags in free text.
pub struct Triggered {
    pub triggers: Vec<String>,
    /// What the free text does not have beside the triggers.
    pub excludes: Vec<String>,
    pub at_least_one: bool,
    pub stop_after_first: bool,
}

/// Rules of Lark. `text`: {"structures": [{"begin", "schema", "end"}, ...], "triggers": [texts, ...]}, or {"format": {...}}. `specials`: of
/// the tokenizer.
pub fn rules(text: &str, style: Style, specials: &[&str]) -> Result<String, String> {
    let tags: Value = serde_json::from_str(text).map_err(|error| format!("the structural tags are not JSON: {error}"))?;
    let mut context = Context { style, specials, size: Size::default(), schemas: Vec::new(), patterns_bytes: 0 };
    let part = match &tags["format"] {
        Value::Null => structures(&tags, &mut context)?,
        format => tag_format::read(format, &mut context)?,
    };
    parts::rules(part, &context.schemas)
}

fn structures(parts: &Value, context: &mut Context) -> Result<Part, String> {
    let triggers = texts_of(&parts["triggers"], "triggers")?;
    let structures = parts["structures"].as_array().filter(|list| !list.is_empty());
    let structures = structures.ok_or("structures is a list of at least one object {begin, schema, end}")?;
    check_count(structures.len(), "structures")?;
    let tags = structures.iter().enumerate().map(|(index, structure)| {
        let text = |name: &str| structure[name].as_str().ok_or_else(|| format!("structures[{index}].{name} is missing, or no text"));
        let (begin, end) = (text("begin")?.to_string(), text("end")?.to_string());
        let members = structure.as_object().expect("it has members").keys();
        if let Some(other) = members.into_iter().find(|name| !["begin", "schema", "end"].contains(&name.as_str())) {
            return Err(format!("structures[{index}].{other} is not supported; leave it out"));
        }
        match &structure["schema"] {
            Value::Null => Err(format!("structures[{index}].schema is missing")),
            schema => Ok(Tag { begin, content: context.schema(schema.clone())?, ends: vec![end] }),
        }
    });
    let tags = tags.collect::<Result<Vec<_>, String>>()?;
    let in_text = Triggered { triggers, excludes: Vec::new(), at_least_one: false, stop_after_first: false };
    triggered(tags, in_text, "structures", context)
}

/// A list of at least one text.
pub fn texts_of(list: &Value, place: &str) -> Result<Vec<String>, String> {
    check_count(list.as_array().map_or(0, Vec::len), place)?;
    let texts = list.as_array().and_then(|list| list.iter().map(|text| text.as_str().map(String::from)).collect::<Option<Vec<_>>>());
    texts.filter(|texts| !texts.is_empty()).ok_or_else(|| format!("{place} is a list of at least one text"))
}

pub fn check_count(count: usize, place: &str) -> Result<(), String> {
    if count > TAGS_MAX {
        return Err(format!("there are {count} {place}; supported are up to {TAGS_MAX}"));
    }
    Ok(())
}

/// Free text, in which each trigger begins one of the tags that begin with it. `place`: of the tags.
pub fn triggered(tags: Vec<Tag>, how: Triggered, place: &str, context: &Context) -> Result<Part, String> {
    let triggers = sorted(how.triggers);
    let mut without = triggers.clone();
    without.extend(how.excludes);
    let without = sorted(without);
    check_triggers(&triggers, &without)?;
    let mut groups: Vec<Vec<Part>> = triggers.iter().map(|_| Vec::new()).collect();
    let mut first = Vec::new();
    for (index, tag) in tags.into_iter().enumerate() {
        let trigger = triggers.iter().position(|trigger| tag.begin.starts_with(trigger.as_str()));
        let trigger = trigger.ok_or_else(|| format!("{place}[{index}].begin '{}' begins with none of the triggers", tag.begin))?;
        if how.at_least_one {
            let copy = Tag { begin: tag.begin.clone(), content: tag.content.clone(), ends: tag.ends.clone() };
            first.push(copy.part(0, context)?);
        }
        groups[trigger].push(tag.part(triggers[trigger].len(), context)?);
    }
    if let Some(unused) = groups.iter().position(Vec::is_empty) {
        return Err(format!("none of the {place} begins with the trigger '{}'", triggers[unused]));
    }
    if how.at_least_one && how.stop_after_first {
        return Ok(Part::Or(first));
    }
    let free = || Part::Word(Word::Free(without.clone()));
    let one = groups.into_iter().zip(&triggers).map(|(group, trigger)| Part::Sequence(vec![free(), Part::text(trigger), Part::Or(group)]));
    let one = Part::Or(one.collect());
    let text =
        if how.stop_after_first { Part::Or(vec![one, free()]) } else { Part::Sequence(vec![Part::Repeat(Box::new(one), 0, None), free()]) };
    Ok(if how.at_least_one { Part::Sequence(vec![Part::Or(first), text]) } else { text })
}

pub fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts.dedup();
    texts
}

/// `all`: the triggers, and what free text may not have either.
fn check_triggers(triggers: &[String], all: &[String]) -> Result<(), String> {
    check_count(all.len(), "triggers")?;
    if all.iter().map(String::len).sum::<usize>() > TRIGGERS_BYTES_MAX {
        return Err(format!("the triggers are too long: supported are up to {TRIGGERS_BYTES_MAX} bytes together"));
    }
    for trigger in triggers {
        if trigger.is_empty() {
            return Err("a trigger is empty; a tag would begin everywhere".to_string());
        }
        if let Some(longer) = all.iter().find(|&other| other != trigger && other.contains(trigger.as_str())) {
            return Err(format!("the trigger '{trigger}' is a part of '{longer}', so the first would always come before it"));
        }
        if let Some(shorter) = all.iter().find(|&other| other != trigger && trigger.contains(other.as_str())) {
            return Err(format!("the trigger '{trigger}' has '{shorter}' as a part, which the text before it may not have"));
        }
    }
    Ok(())
}
