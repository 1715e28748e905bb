//! How many patterns meet in one string of a JSON schema. The library merges schemas (`allOf`, `$ref` beside other keywords, `anyOf` beside
//! them), and looks at once for a text that all patterns match, which takes as long as crossing.rs says. Called by mod.rs.

use std::collections::{HashMap, HashSet};

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use super::crossing::{ways_of, TOO_MANY_WAYS, WAYS_MAX};

/// Keywords that say nothing of values.
const NOTES: [&str; 9] = ["$defs", "definitions", "$schema", "$id", "$comment", "title", "description", "default", "examples"];
/// Of formats, which are the library's: more than any has.
const FORMAT_WAYS: u64 = 12;

/// Checks a schema of which no more is changed before the library reads it.
pub fn check(root: &Value) -> Result<(), String> {
    let mut texts = HashMap::new();
    let mut all: u64 = 1;
    collect(root, &mut texts, &mut all)?;
    // Most schemas have few patterns, or such as go on in one way.
    if all <= WAYS_MAX {
        return Ok(());
    }
    let mut meeting = Meeting { root, texts, all, merges: merges(root), known: HashMap::new(), open: HashSet::new() };
    meeting.of(root);
    if meeting.known.values().any(|&ways| ways > WAYS_MAX) {
        return Err(TOO_MANY_WAYS.to_string());
    }
    Ok(())
}

/// Whether any of its schemas are merged.
fn merges(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            let applies = ["$ref", "anyOf", "oneOf"].iter().any(|&key| members.contains_key(key));
            let demands = members.keys().filter(|key| !NOTES.contains(&key.as_str())).count();
            members.contains_key("allOf") || (applies && demands > 1) || members.values().any(merges)
        }
        Value::Array(values) => values.iter().any(merges),
        _ => false,
    }
}

/// The ways of each pattern and format, and of all together.
fn collect(value: &Value, texts: &mut HashMap<String, u64>, all: &mut u64) -> Result<(), String> {
    match value {
        Value::Object(members) => {
            for (key, ways) in own(members, ways_of_pattern)? {
                if texts.insert(key, ways).is_none() {
                    *all = all.saturating_mul(ways);
                }
            }
            members.values().try_for_each(|value| collect(value, texts, all))
        }
        Value::Array(values) => values.iter().try_for_each(|value| collect(value, texts, all)),
        _ => Ok(()),
    }
}

/// What a schema itself demands of a string.
fn own(schema: &Map<String, Value>, of_pattern: impl Fn(&str) -> Result<u64, String>) -> Result<Vec<(String, u64)>, String> {
    let mut found = Vec::new();
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        found.push((format!("pattern {pattern}"), of_pattern(pattern)?));
    }
    if let Some(format) = schema.get("format").and_then(Value::as_str) {
        found.push((format!("format {format}"), FORMAT_WAYS));
    }
    Ok(found)
}

/// What cannot be read is refused by the library.
fn ways_of_pattern(pattern: &str) -> Result<u64, String> {
    let mut builder = RegexBuilder::new();
    let Ok(expression) = builder.mk(&RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))) else { return Ok(1) };
    ways_of(builder.exprset(), expression)
}

struct Meeting<'a> {
    root: &'a Value,
    texts: HashMap<String, u64>,
    /// Of all patterns together; no string has more.
    all: u64,
    merges: bool,
    /// By the address of a schema.
    known: HashMap<*const Value, u64>,
    /// Those being looked at.
    open: HashSet<*const Value>,
}

impl Meeting<'_> {
    /// Of the strings that a schema describes, itself or within, the most that one has. Members of objects and elements of lists are
    /// taken for one another: what is merged is never more than that.
    fn of(&mut self, value: &Value) -> u64 {
        let Value::Object(schema) = value else { return 1 };
        if let Some(&ways) = self.known.get(&(value as *const Value)) {
            return ways;
        }
        if !self.open.insert(value) {
            // It describes itself, and is merged with itself where anything is merged.
            return if self.merges { self.all } else { 1 };
        }
        let own = own(schema, |pattern| Ok(self.texts.get(&format!("pattern {pattern}")).copied().unwrap_or(1))).unwrap_or_default();
        let own = own.into_iter().fold(1_u64, |all, (_, ways)| all.saturating_mul(ways));
        let members = ["properties", "patternProperties"].map(|key| self.most(schema.get(key)));
        let lists = ["prefixItems", "items", "additionalItems"].map(|key| self.most_of_list(schema.get(key)));
        let rest = schema.get("additionalProperties").map_or(1, |schema| self.of(schema));
        let within = product(members).saturating_mul(rest).max(lists.into_iter().max().unwrap_or(1));
        let all_of = schema.get("allOf").and_then(Value::as_array);
        let all_of = all_of.map_or(1, |schemas| schemas.iter().fold(1_u64, |all, schema| all.saturating_mul(self.of(schema))));
        let either = ["anyOf", "oneOf"].map(|key| self.most_of_list(schema.get(key)));
        let target = schema.get("$ref").and_then(Value::as_str).map_or(1, |reference| self.of_reference(reference));
        let ways = own.max(within).saturating_mul(all_of).saturating_mul(product(either)).saturating_mul(target).min(self.all);
        for key in ["$defs", "definitions"] {
            self.most(schema.get(key));
        }
        self.open.remove(&(value as *const Value));
        self.known.insert(value, ways);
        ways
    }

    fn most(&mut self, members: Option<&Value>) -> u64 {
        let members = members.and_then(Value::as_object);
        members.map_or(1, |members| members.values().map(|schema| self.of(schema)).max().unwrap_or(1))
    }

    /// Of a schema, or of a list of schemas.
    fn most_of_list(&mut self, schemas: Option<&Value>) -> u64 {
        match schemas {
            Some(Value::Array(schemas)) => schemas.iter().map(|schema| self.of(schema)).max().unwrap_or(1),
            Some(schema) => self.of(schema),
            None => 1,
        }
    }

    fn of_reference(&mut self, reference: &str) -> u64 {
        let root = self.root;
        let mut target = Some(root);
        for segment in reference.strip_prefix("#/").unwrap_or_default().split('/').filter(|segment| !segment.is_empty()) {
            target = target.and_then(|value| match value {
                Value::Array(values) => segment.parse::<usize>().ok().and_then(|index| values.get(index)),
                value => value.get(segment),
            });
        }
        target.map_or(1, |target| self.of(target))
    }
}

fn product(ways: [u64; 2]) -> u64 {
    ways[0].saturating_mul(ways[1])
}
