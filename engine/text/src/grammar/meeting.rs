//! How many patterns meet in one string of a JSON schema. The library merges schemas (`allOf`, `$ref` beside other keywords, `anyOf` beside
//! them), and looks at once for a text that all patterns match, which takes as long as crossing.rs says. Called by mod.rs.

use std::collections::{BTreeMap, HashMap, HashSet};

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use super::crossing::{ways_of, TOO_MANY_WAYS, WAYS_MAX};

/// Keywords that say nothing of values.
const NOTES: [&str; 9] = ["$defs", "definitions", "$schema", "$id", "$comment", "title", "description", "default", "examples"];
/// Of formats, which are the library's: more than any has.
const FORMAT_WAYS: u64 = 12;
/// Of schemas that describe themselves, each round finds what the one before left out.
const ROUNDS_MAX: usize = 64;
/// Of members that are joined, about 100 ns each.
const NAMES_MAX: usize = 2_000_000;

/// Checks a schema of which no more is changed before the library reads it.
pub fn check(root: &Value) -> Result<(), String> {
    let mut texts = HashMap::new();
    let mut all: u64 = 1;
    collect(root, &mut texts, &mut all)?;
    // Most schemas have few patterns, or such as go on in one way.
    if all <= WAYS_MAX {
        return Ok(());
    }
    let mut meeting =
        Meeting { root, texts, merges: merges(root), known: HashMap::new(), before: HashMap::new(), open: HashSet::new(), names: 0 };
    for _ in 0..ROUNDS_MAX {
        meeting.of(root);
        if meeting.names > NAMES_MAX || meeting.known.values().any(|ways| ways.most() > WAYS_MAX) {
            break;
        }
        if meeting.known == meeting.before {
            return Ok(());
        }
        meeting.before = std::mem::take(&mut meeting.known);
    }
    Err(TOO_MANY_WAYS.to_string())
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
        found.push((key_of("pattern", pattern), of_pattern(pattern)?));
    }
    if let Some(format) = schema.get("format").and_then(Value::as_str) {
        found.push((key_of("format", format), FORMAT_WAYS));
    }
    Ok(found)
}

fn key_of(keyword: &str, text: &str) -> String {
    format!("{keyword} {text}")
}

/// What cannot be read is refused by the library.
fn ways_of_pattern(pattern: &str) -> Result<u64, String> {
    let mut builder = RegexBuilder::new();
    let Ok(expression) = builder.mk(&RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))) else { return Ok(1) };
    ways_of(builder.exprset(), expression)
}

/// The most ways of one string, by where strings may stand in what a schema describes. Deeper down they are taken for one another: what
/// is merged there is never more than that.
#[derive(Clone, PartialEq)]
struct Ways<'a> {
    /// The value itself.
    own: u64,
    /// In these members of an object,
    named: BTreeMap<&'a str, u64>,
    /// in others, which `patternProperties` and `additionalProperties` describe: where two schemas meet, also those that only one names,
    others: u64,
    /// and in elements of a list.
    elements: u64,
}

impl<'a> Ways<'a> {
    fn none() -> Self {
        Ways { own: 1, named: BTreeMap::new(), others: 1, elements: 1 }
    }

    fn most(&self) -> u64 {
        self.named.values().copied().fold(self.own.max(self.others).max(self.elements), u64::max)
    }

    /// Of values that both schemas describe (`merged`), or one of them.
    fn with(mut self, other: &Ways<'a>, merged: bool) -> Self {
        let join = |one: u64, two: u64| if merged { one.saturating_mul(two) } else { one.max(two) };
        for (name, ways) in &mut self.named {
            if !other.named.contains_key(name) {
                *ways = join(*ways, other.others);
            }
        }
        for (&name, &ways) in &other.named {
            let own = self.named.get(name).copied().unwrap_or(self.others);
            self.named.insert(name, join(own, ways));
        }
        self.own = join(self.own, other.own);
        self.others = join(self.others, other.others);
        self.elements = join(self.elements, other.elements);
        self
    }
}

struct Meeting<'a> {
    root: &'a Value,
    texts: HashMap<String, u64>,
    merges: bool,
    /// By the address of a schema: as found in this round and in the one before.
    known: HashMap<*const Value, Ways<'a>>,
    before: HashMap<*const Value, Ways<'a>>,
    /// Those being looked at.
    open: HashSet<*const Value>,
    /// Of members, in all that was joined.
    names: usize,
}

impl<'a> Meeting<'a> {
    fn of(&mut self, value: &'a Value) -> Ways<'a> {
        let (Value::Object(schema), true) = (value, self.names <= NAMES_MAX) else { return Ways::none() };
        let address = value as *const Value;
        if let Some(ways) = self.known.get(&address) {
            return ways.clone();
        }
        if !self.open.insert(address) {
            // It describes itself. Only what is merged can make more of it.
            return self.before.get(&address).filter(|_| self.merges).cloned().unwrap_or_else(Ways::none);
        }
        let mut ways = Ways::none();
        let own = own(schema, |pattern| Ok(self.texts.get(&key_of("pattern", pattern)).copied().unwrap_or(1))).unwrap_or_default();
        ways.own = own.into_iter().fold(1, |all, (_, ways)| all.saturating_mul(ways));
        let matched = self.most(schema.get("patternProperties"));
        ways.others = matched.saturating_mul(self.most_of_list(schema.get("additionalProperties")));
        ways.elements =
            ["prefixItems", "items", "additionalItems"].map(|key| self.most_of_list(schema.get(key))).into_iter().fold(1, u64::max);
        for (name, schema) in members(schema.get("properties")) {
            let most = self.of(schema).most().saturating_mul(matched);
            ways.named.insert(name, most);
        }
        for schema in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            let part = self.of(schema);
            ways = self.join(ways, &part, true);
        }
        for key in ["anyOf", "oneOf"] {
            let schemas = schema.get(key).and_then(Value::as_array);
            let Some((first, others)) = schemas.and_then(|schemas| schemas.split_first()) else { continue };
            let mut either = self.of(first);
            for schema in others {
                let other = self.of(schema);
                either = self.join(either, &other, false);
            }
            ways = self.join(ways, &either, true);
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|reference| self.target_of(reference)) {
            let target = self.of(target);
            ways = self.join(ways, &target, true);
        }
        for key in ["$defs", "definitions"] {
            self.most(schema.get(key));
        }
        self.open.remove(&address);
        self.known.insert(address, ways.clone());
        ways
    }

    fn join(&mut self, ways: Ways<'a>, other: &Ways<'a>, merged: bool) -> Ways<'a> {
        self.names += ways.named.len() + other.named.len();
        ways.with(other, merged)
    }

    fn most(&mut self, schemas: Option<&'a Value>) -> u64 {
        members(schemas).map(|(_, schema)| self.of(schema).most()).fold(1, u64::max)
    }

    /// Of a schema, or of a list of schemas.
    fn most_of_list(&mut self, schemas: Option<&'a Value>) -> u64 {
        match schemas {
            Some(Value::Array(schemas)) => schemas.iter().map(|schema| self.of(schema).most()).fold(1, u64::max),
            Some(schema) => self.of(schema).most(),
            None => 1,
        }
    }

    fn target_of(&self, reference: &str) -> Option<&'a Value> {
        let segments = reference.strip_prefix("#/").unwrap_or_default().split('/').filter(|segment| !segment.is_empty());
        segments.into_iter().try_fold(self.root, |value, segment| match value {
            Value::Array(values) => segment.parse::<usize>().ok().and_then(|index| values.get(index)),
            value => value.get(segment),
        })
    }
}

fn members(schemas: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    schemas.and_then(Value::as_object).into_iter().flatten().map(|(name, schema)| (name.as_str(), schema))
}
