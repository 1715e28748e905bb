//! References within a JSON schema, as RFC 6901 and RFC 3986 write them: `~1`, `~0` and `%20` stand for characters of a name. The library
//! takes a name as it is written, and a slash for the end of one. Called by schema.rs.

use serde_json::{Map, Value};

/// In place of a slash in the names of definitions.
const SLASH: &str = "\u{0}";

/// Writes a reference as the library reads it. The names of definitions that have a slash must be renamed, too.
pub fn replace(schema: &mut Map<String, Value>) {
    if let Some(Value::String(reference)) = schema.get_mut("$ref") {
        if let Some(path) = reference.strip_prefix("#/") {
            let names: Vec<String> = path.split('/').map(name_of).collect();
            *reference = format!("#/{}", names.join("/"));
        }
    }
    for key in ["$defs", "definitions"] {
        if let Some(Value::Object(members)) = schema.get_mut(key) {
            if members.keys().any(|name| name.contains('/')) {
                *members = std::mem::take(members).into_iter().map(|(name, schema)| (name.replace('/', SLASH), schema)).collect();
            }
        }
    }
}

fn name_of(segment: &str) -> String {
    decoded(segment).replace("~1", SLASH).replace("~0", "~").replace('/', SLASH)
}

/// Without percent-encoding. What is not encoded rightly stays as it is.
fn decoded(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let code = bytes.get(place + 1..place + 3).filter(|code| bytes[place] == b'%' && code.iter().all(u8::is_ascii_hexdigit));
        let byte = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        out.push(byte.unwrap_or(bytes[place]));
        place += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| segment.to_string())
}
