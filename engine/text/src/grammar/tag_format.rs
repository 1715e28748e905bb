//! The newer form of structural tags, `{"type": KIND, ...}`, with the kinds and meanings of XGrammar's documentation. What is not supported
//! is refused by name. Called by tags.rs.

use serde_json::{Map, Value};

use super::parts::Part;
use super::tags::{check_count, sorted, texts_of, triggered, Context, Tag, Triggered};
use super::word::Word;

/// Kinds that XGrammar has beside the supported ones, and what to do instead.
const REFUSED: [(&str, &str); 9] = [
    ("grammar", "write regex or json_schema, or a Lark grammar as structured_outputs.grammar"),
    ("qwen_xml_parameter", "write the parameters as tags with regex or json_schema"),
    ("repeat", "write sequence with optional"),
    ("dispatch", "write triggered_tags"),
    ("token", "write const_string"),
    ("any_tokens", "write any_text"),
    ("exclude_token", "write any_text with excludes"),
    ("token_triggered_tags", "write triggered_tags"),
    ("token_dispatch", "write triggered_tags"),
];

pub fn read(format: &Value, context: &mut Context) -> Result<Part, String> {
    part_of(format, "format", &[], context)
}

/// The members of an object by name; each must be read, or it is unknown.
struct Fields<'a> {
    place: &'a str,
    members: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn new(place: &'a str, value: &'a Value) -> Result<Self, String> {
        let members = value.as_object().ok_or_else(|| format!("{place} is an object with the member type"))?;
        Ok(Fields { place, members, known: vec!["type"] })
    }

    fn find(&mut self, name: &'static str) -> &'a Value {
        self.known.push(name);
        self.members.get(name).unwrap_or(&Value::Null)
    }

    fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.place)
    }

    fn text(&mut self, name: &'static str) -> Result<&'a str, String> {
        self.find(name).as_str().ok_or_else(|| format!("{} is missing, or no text", self.at(name)))
    }

    fn flag(&mut self, name: &'static str) -> Result<bool, String> {
        match self.find(name) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(format!("{} is true or false", self.at(name))),
        }
    }

    fn list(&mut self, name: &'static str) -> Result<&'a Vec<Value>, String> {
        let list = self.find(name).as_array().filter(|list| !list.is_empty());
        list.ok_or_else(|| format!("{} is a list of at least one format", self.at(name)))
    }

    /// Those that no text may have: none if there is no such member.
    fn excludes(&mut self, ends: &[String]) -> Result<Vec<String>, String> {
        let place = self.at("excludes");
        let mut excludes = match self.find("excludes") {
            Value::Null => Vec::new(),
            Value::Array(list) if list.is_empty() => Vec::new(),
            list => texts_of(list, &place)?,
        };
        if excludes.iter().any(String::is_empty) {
            return Err(format!("{place} has an empty text, which every text has"));
        }
        excludes.extend(ends.iter().filter(|end| !end.is_empty()).cloned());
        let excludes = sorted(excludes);
        check_count(excludes.len(), &place)?;
        Ok(excludes)
    }

    /// Refuses members that were not read.
    fn finish(self) -> Result<(), String> {
        let other = self.members.iter().find(|(name, value)| !value.is_null() && !self.known.contains(&name.as_str()));
        other.map_or(Ok(()), |(name, _)| Err(format!("{} is not supported; leave it out", self.at(name))))
    }
}

/// `ends`: of the tag around it. Free text ends there.
fn part_of(value: &Value, place: &str, ends: &[String], context: &mut Context) -> Result<Part, String> {
    let mut fields = Fields::new(place, value)?;
    let kind = fields.members.get("type").and_then(Value::as_str).ok_or_else(|| format!("{place}.type is missing, or no text"))?;
    let part = match kind {
        "const_string" => context.text(fields.text("value")?)?,
        "any_text" => Part::Word(Word::Free(fields.excludes(ends)?)),
        "regex" => match fields.text("pattern")? {
            "" => return Err(format!("{place}.pattern is empty; give at least one character")),
            pattern => context.pattern(pattern)?,
        },
        "json_schema" => schema_of(&mut fields, context)?,
        "sequence" => Part::Sequence(elements_of(&mut fields, ends, context)?),
        "or" => Part::Or(elements_of(&mut fields, ends, context)?),
        "optional" => repeated(&mut fields, ends, context, 0, Some(1))?,
        "star" => repeated(&mut fields, ends, context, 0, None)?,
        "plus" => repeated(&mut fields, ends, context, 1, None)?,
        "tag" => tag_of(value, place, context)?.part(0, context)?,
        "triggered_tags" => triggered_of(&mut fields, ends, context)?,
        "tags_with_separator" => separated_of(&mut fields, context)?,
        other => {
            let instead =
                REFUSED.iter().find(|(name, _)| *name == other).map_or("see docs/jobs.md for those that are", |(_, instead)| instead);
            return Err(format!("{place}.type '{other}' is not supported; {instead}"));
        }
    };
    if kind != "tag" {
        fields.finish()?;
    }
    Ok(part)
}

fn schema_of(fields: &mut Fields, context: &mut Context) -> Result<Part, String> {
    if !matches!(fields.find("style"), Value::Null) && fields.find("style") != "json" {
        return Err(format!("{} {} is not supported; leave it out for JSON", fields.at("style"), fields.find("style")));
    }
    for neutral in ["any_order", "excludes"] {
        let value = fields.find(neutral);
        if !value.is_null() && *value != Value::Bool(false) && *value != Value::Array(Vec::new()) {
            return Err(format!("{} is not supported; leave it out", fields.at(neutral)));
        }
    }
    match fields.find("json_schema") {
        Value::Null => Err(format!("{} is missing", fields.at("json_schema"))),
        schema => context.schema(schema.clone()).map_err(|error| format!("{}: {error}", fields.at("json_schema"))),
    }
}

fn elements_of(fields: &mut Fields, ends: &[String], context: &mut Context) -> Result<Vec<Part>, String> {
    let place = fields.at("elements");
    let elements = fields.list("elements")?;
    elements.iter().enumerate().map(|(index, element)| part_of(element, &format!("{place}[{index}]"), ends, context)).collect()
}

fn repeated(fields: &mut Fields, ends: &[String], context: &mut Context, least: u32, most: Option<u32>) -> Result<Part, String> {
    let content = part_of(fields.find("content"), &fields.at("content"), ends, context)?;
    Ok(Part::Repeat(Box::new(content), least, most))
}

fn tag_of(value: &Value, place: &str, context: &mut Context) -> Result<Tag, String> {
    let mut fields = Fields::new(place, value)?;
    if fields.members.get("type").is_some_and(|kind| kind != "tag") {
        return Err(format!("{place} is a format of the type tag"));
    }
    let begin = fields.text("begin")?.to_string();
    let ends = match fields.find("end") {
        Value::String(end) => vec![end.clone()],
        Value::Array(_) => texts_of(fields.find("end"), &fields.at("end"))?,
        _ => return Err(format!("{} is missing, or neither a text nor a list of texts", fields.at("end"))),
    };
    let content = part_of(fields.find("content"), &fields.at("content"), &ends, context)?;
    fields.finish()?;
    Ok(Tag { begin, content, ends })
}

fn tags_of(fields: &mut Fields, context: &mut Context) -> Result<Vec<Tag>, String> {
    let place = fields.at("tags");
    let tags = fields.list("tags")?;
    check_count(tags.len(), &place)?;
    tags.iter().enumerate().map(|(index, tag)| tag_of(tag, &format!("{place}[{index}]"), context)).collect()
}

fn triggered_of(fields: &mut Fields, ends: &[String], context: &mut Context) -> Result<Part, String> {
    let tags = tags_of(fields, context)?;
    let how = Triggered {
        triggers: texts_of(fields.find("triggers"), &fields.at("triggers"))?,
        excludes: fields.excludes(ends)?,
        at_least_one: fields.flag("at_least_one")?,
        stop_after_first: fields.flag("stop_after_first")?,
    };
    triggered(tags, how, &fields.at("tags"), context).map_err(|error| format!("{}: {error}", fields.place))
}

fn separated_of(fields: &mut Fields, context: &mut Context) -> Result<Part, String> {
    let tags = tags_of(fields, context)?;
    let separator = context.text(fields.text("separator")?)?;
    let (at_least_one, stop_after_first) = (fields.flag("at_least_one")?, fields.flag("stop_after_first")?);
    let one = tags.into_iter().map(|tag| tag.part(0, context)).collect::<Result<Vec<_>, _>>()?;
    let one = Part::Or(one);
    let all = if stop_after_first {
        one
    } else {
        let more = Part::Sequence(vec![separator, one.clone()]);
        Part::Sequence(vec![one, Part::Repeat(Box::new(more), 0, None)])
    };
    Ok(if at_least_one { all } else { Part::Repeat(Box::new(all), 0, Some(1)) })
}
