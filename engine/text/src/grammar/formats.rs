//! Formats of strings that llguidance takes less exactly than validators do: it lets 30 February through, the year 0 and leap seconds. Here
//! they are regular expressions without exceptions. Called by schema.rs.

use serde_json::{json, Map, Value};

/// Without the year 0.
const YEAR: &str = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
/// Every fourth year but the hundredth ones, of which every fourth.
const LEAP_YEAR: &str = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
const DAY: &str = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)";
/// RFC 3339, without the second 60, which few readers take.
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
/// Two to six labels: 251 characters at most. Names of one label are no names of the domain name system, and some validators refuse them.
const HOST: &str = "(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,39}[a-zA-Z0-9])?\\.){1,5}[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,39}[a-zA-Z0-9])?";

fn pattern_of(format: &str) -> Option<String> {
    let date = format!("(?:{YEAR}-{DAY}|{LEAP_YEAR}-02-29)");
    match format {
        "date" => Some(format!("^{date}$")),
        "time" => Some(format!("^{TIME}$")),
        "date-time" => Some(format!("^{date}[tT]{TIME}$")),
        "hostname" => Some(format!("^{HOST}$")),
        _ => None,
    }
}

/// Writes the format of a schema as a pattern, beside the pattern that the schema may have.
pub fn replace(schema: &mut Map<String, Value>) {
    let Some(pattern) = schema.get("format").and_then(Value::as_str).and_then(pattern_of) else { return };
    if !schema.contains_key("pattern") {
        schema.remove("format");
        schema.insert("pattern".to_string(), json!(pattern));
        return;
    }
    let all = schema.entry("allOf").or_insert_with(|| json!([]));
    // What is no list is refused by llguidance.
    if let Value::Array(schemas) = all {
        schemas.push(json!({ "pattern": pattern }));
        schema.remove("format");
    }
}
