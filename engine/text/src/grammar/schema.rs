//! What Lorry refuses of JSON schemas before llguidance compiles them, because llguidance would take very long, run out of memory or of
//! stack, or let answers through that do not match.

use serde_json::{json, Map, Value};

use super::bounds::{self, EXACT};
use super::pattern::Readers;
use super::{formats, pattern, references};

type Object = Map<String, Value>;

/// Keywords whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords whose values have schemas under names of the user's.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Of a number: literal.rs lets no more through.
const DECIMALS_MAX: usize = 100;
/// Of one object. The time to compile grows with their square, and any of those that are not required may come next.
const PROPERTIES_MAX: usize = 2_000;
const OPTIONAL_MAX: usize = 400;
/// Of all schemas of a grammar together.
const REFERENCES_MAX: usize = 5_000;
const VALUES_MAX: usize = 50_000;
const PATTERNS_BYTES_MAX: usize = 128 << 10;
/// Of patternProperties, which are compared with one another, and again where a reference is merged.
const PAIRS_MAX: usize = 100_000;
/// A pattern for multiples takes memory for each remainder.
const MULTIPLE_MAX: u64 = 1_000;

/// Of a grammar: what its schemas have together.
#[derive(Default)]
pub struct Size {
    references: usize,
    /// JSON values, with all that they consist of.
    values: usize,
    patterns_bytes: usize,
    /// Of patternProperties of one object.
    pairs: usize,
}

impl Size {
    fn check(&self) -> Result<(), String> {
        let counted = [
            (self.references, REFERENCES_MAX, "references"),
            (self.values, VALUES_MAX, "values"),
            (self.patterns_bytes, PATTERNS_BYTES_MAX, "bytes of patterns"),
            (self.pairs.saturating_mul(1 + self.references), PAIRS_MAX, "pairs of patternProperties"),
        ];
        match counted.into_iter().find(|(count, most, _)| count > most) {
            Some((count, most, what)) => Err(format!("it is too large: it has {count} {what}; supported are up to {most}")),
            None => Ok(()),
        }
    }
}

/// Of one schema.
struct Seen<'a> {
    size: &'a mut Size,
    closed: bool,
    merges: bool,
    multiples: Vec<u64>,
}

/// Checks a schema, and makes its patterns those of JSON Schema (pattern.rs). `closed`: objects that list properties have no others, unless
/// their schema says which. `size`: of its grammar, to which it is added. The error says what is not supported.
pub fn prepare(schema: &mut Object, closed: bool, size: &mut Size) -> Result<(), String> {
    size.values += schema.values().map(count_values).sum::<usize>();
    size.check()?;
    let mut seen = Seen { size, closed, merges: false, multiples: Vec::new() };
    prepare_object(schema, true, &mut seen)?;
    seen.size.check()?;
    // Where schemas are merged, a number may have to be a multiple of several.
    let together = if seen.merges { seen.multiples.iter().copied().fold(1, least_common_multiple) } else { 1 };
    match seen.multiples.into_iter().chain([together]).find(|&multiple| multiple > MULTIPLE_MAX) {
        Some(_) => Err(format!("multipleOf, without its decimal point and together with those of allOf, may be up to {MULTIPLE_MAX}")),
        None => Ok(()),
    }
}

fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Object(members) => members.values().map(count_values).sum(),
        Value::Array(values) => values.iter().map(count_values).sum(),
        _ => 0,
    }
}

fn prepare_object(schema: &mut Object, is_root: bool, seen: &mut Seen) -> Result<(), String> {
    if !is_root && schema.contains_key("$id") {
        return Err("$id within a schema is not supported".to_string());
    }
    references::replace(schema);
    // The library knows uniqueItems only as a keyword that it does not support.
    if schema.get("uniqueItems") == Some(&Value::Bool(false)) {
        schema.remove("uniqueItems");
    }
    seen.size.references += usize::from(schema.contains_key("$ref"));
    seen.merges |= schema.contains_key("allOf") || (schema.contains_key("$ref") && schema.len() > 1);
    let lists = ["properties", "patternProperties"].iter().any(|&key| schema.get(key).is_some_and(Value::is_object));
    if seen.closed && lists && !schema.contains_key("additionalProperties") {
        schema.insert("additionalProperties".to_string(), Value::Bool(false));
    }
    check_properties(schema)?;
    give_names_their_patterns(schema, seen.size)?;
    // Other names are those that no pattern matches.
    let is_open = schema.get("additionalProperties") != Some(&Value::Bool(false));
    let multiple = schema.get("multipleOf").and_then(Value::as_f64);
    seen.multiples.extend(multiple.map(without_point));
    for (key, value) in schema.iter_mut() {
        match value {
            Value::Number(number) => check_exact(key, number.as_f64())?,
            _ if DATA.contains(&key.as_str()) => check_data(key, value)?,
            Value::String(pattern) if key == "pattern" => {
                seen.size.patterns_bytes += pattern.len();
                *pattern = pattern::in_json(pattern, Readers::All)?;
            }
            Value::Object(members) if key == "patternProperties" => {
                seen.size.patterns_bytes += members.keys().map(String::len).sum::<usize>();
                *members = with_patterns(std::mem::take(members), is_open)?;
            }
            _ => {}
        }
        let is_named = NAMED.contains(&key.as_str());
        match value {
            _ if DATA.contains(&key.as_str()) => {}
            Value::Object(members) if is_named => members.values_mut().try_for_each(|schema| prepare_value(schema, seen))?,
            _ => prepare_value(value, seen)?,
        }
    }
    formats::replace(schema);
    bounds::prepare(schema, multiple)
}

fn prepare_value(value: &mut Value, seen: &mut Seen) -> Result<(), String> {
    match value {
        Value::Object(schema) => prepare_object(schema, false, seen),
        Value::Array(schemas) => schemas.iter_mut().try_for_each(|schema| prepare_value(schema, seen)),
        _ => Ok(()),
    }
}

/// A pattern that matches listed names only becomes part of their schemas: the library would let a comma through after which no name may
/// come.
fn give_names_their_patterns(schema: &mut Object, size: &mut Size) -> Result<(), String> {
    let Some(Value::Object(patterns)) = schema.get("patternProperties") else { return Ok(()) };
    size.pairs += patterns.len() * patterns.len();
    size.check()?;
    let mut names: Vec<String> = Vec::new();
    if let Some(Value::Object(properties)) = schema.get("properties") {
        names.extend(properties.keys().cloned());
    }
    if let Some(Value::Array(required)) = schema.get("required") {
        names.extend(required.iter().filter_map(Value::as_str).map(str::to_string));
    }
    let mut moved = Vec::new();
    for (pattern, of_pattern) in patterns {
        if let Some(matched) = pattern::only_of(&pattern::in_json(pattern, Readers::Ecma)?, &names) {
            moved.push((pattern.clone(), matched, of_pattern.clone()));
        }
    }
    for (pattern, matched, of_pattern) in moved {
        for name in matched {
            let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) else { return Ok(()) };
            let own = properties.get(&name).cloned().unwrap_or(Value::Bool(true));
            properties.insert(name, json!({ "allOf": [own, of_pattern] }));
        }
        if let Some(Value::Object(patterns)) = schema.get_mut("patternProperties") {
            patterns.shift_remove(&pattern);
        }
    }
    Ok(())
}

/// `is_open`: an object may have names that no pattern matches.
fn with_patterns(members: Object, is_open: bool) -> Result<Object, String> {
    let mut out = Object::new();
    let mut banned = Vec::new();
    for (key, schema) in members {
        let pattern = pattern::in_json(&key, if is_open { Readers::Ecma } else { Readers::All })?;
        banned.extend(if is_open { pattern::before_line_feed(&key)? } else { None });
        if out.insert(pattern, schema).is_some() {
            return Err(format!("patternProperties '{key}' is not disjoint from another"));
        }
    }
    // Validators in Python would hold them to a pattern's schema, and others to that of the other names.
    for pattern in banned {
        if out.keys().all(|other| pattern::are_apart(other, &pattern)) {
            out.insert(pattern, Value::Bool(false));
        }
    }
    Ok(out)
}

fn check_exact(key: &str, number: Option<f64>) -> Result<(), String> {
    match number {
        Some(number) if bounds::decimals(number) > DECIMALS_MAX => Err(format!("{key} has a number with over {DECIMALS_MAX} decimals")),
        Some(number) if number.abs() < EXACT => Ok(()),
        _ => Err(format!("{key} has a number of 2^53 or more, which not every reader of JSON keeps exact")),
    }
}

fn check_data(key: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::Number(number) => check_exact(key, number.as_f64()),
        Value::String(text) if matches!(key, "const" | "enum") => check_text(key, text),
        Value::Array(values) => values.iter().try_for_each(|value| check_data(key, value)),
        Value::Object(members) => members.values().try_for_each(|value| check_data(key, value)),
        _ => Ok(()),
    }
}

/// The library would leave such characters out.
fn check_text(key: &str, text: &str) -> Result<(), String> {
    match text.chars().find(|&character| pattern::is_unwritable(character)) {
        Some(character) => Err(format!(
            "{key} has a text with the control character U+{:04X}, which is not supported; those with a short escape are \
             (\\b, \\t, \\n, \\f, \\r)",
            u32::from(character)
        )),
        None => Ok(()),
    }
}

fn check_properties(schema: &Object) -> Result<(), String> {
    let count = schema.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    if count > PROPERTIES_MAX || count.saturating_sub(required) > OPTIONAL_MAX {
        return Err(format!(
            "the schema is too large: an object has {count} properties, {required} of them required; supported are up to {PROPERTIES_MAX}, \
             and {OPTIONAL_MAX} that are not required"
        ));
    }
    // A member of a free name may come twice, and counts once.
    let has_free_names = schema.contains_key("patternProperties") || schema.get("additionalProperties") != Some(&Value::Bool(false));
    if has_free_names && schema.get("minProperties").and_then(Value::as_f64).is_some_and(|least| least > 1.0) {
        return Err("minProperties above 1 is supported only with additionalProperties: false and without patternProperties".to_string());
    }
    Ok(())
}

/// 0.05 gives 5, 20 gives 20.
fn without_point(multiple: f64) -> u64 {
    let mut scaled = multiple.abs();
    for _ in 0..18 {
        if scaled.fract() == 0.0 {
            break;
        }
        scaled *= 10.0;
    }
    (scaled as u64).max(1)
}

fn least_common_multiple(one: u64, other: u64) -> u64 {
    let (mut divisor, mut rest) = (one, other);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (one / divisor).saturating_mul(other)
}
