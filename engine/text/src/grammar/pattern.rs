//! `\d` and `\w` in regular expressions as JSON Schema has them (ECMA-262): ASCII's. In Rust's they are those of Unicode, and a validator
//! would then reject an answer with other digits.

use serde_json::Value;

/// Keywords whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Rewrites the patterns within the value of a schema's member `key`.
pub fn make_ascii(key: &str, value: &mut Value) {
    match value {
        _ if DATA.contains(&key) => {}
        Value::String(pattern) if key == "pattern" => *pattern = ascii(pattern),
        Value::Object(members) if key == "patternProperties" => {
            let named = std::mem::take(members);
            members.extend(named.into_iter().map(|(pattern, mut schema)| {
                make_ascii("", &mut schema);
                (ascii(&pattern), schema)
            }));
        }
        // Members of these are named by the user: one named "pattern" is a schema.
        Value::Object(members) => members.iter_mut().for_each(|(key, value)| make_ascii(key, value)),
        Value::Array(values) => values.iter_mut().for_each(|value| make_ascii("", value)),
        _ => {}
    }
}

/// The same regular expression with classes in place of `\d`, `\D`, `\w` and `\W`. Classes may stand within brackets, too.
pub fn ascii(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some(escaped) => out.extend(['\\', escaped]),
            None => out.push('\\'),
        }
    }
    out
}
