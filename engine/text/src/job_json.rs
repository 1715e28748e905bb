//! The JSON of a job, with the numbers that Python's json reads. Called by chat_template.rs.

use std::borrow::Cow;

use serde_json::Value as Json;

/// `what` names the text in errors. Integers beyond 64 bits are errors, because serde_json would round them to floats.
pub fn parse(what: &str, text: &str) -> Result<Json, String> {
    serde_json::from_str(&with_python_integers(what, text)?).map_err(|error| format!("{what}: not JSON: {error}"))
}

/// The text with `-0`, which is a float for serde_json and the integer 0 for Python, as `0`.
fn with_python_integers<'t>(what: &str, text: &'t str) -> Result<Cow<'t, str>, String> {
    let bytes = text.as_bytes();
    let mut out = Cow::Borrowed(text);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let length = text[at..].find(|c: char| !matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9')).unwrap_or(text.len() - at);
                let number = &text[at..at + length];
                let is_integer = number.strip_prefix('-').unwrap_or(number).bytes().all(|byte| byte.is_ascii_digit());
                if number == "-0" {
                    out.to_mut().replace_range(at..at + 1, " ");
                } else if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    let shown: String = number.chars().take(50).collect();
                    return Err(format!("{what}: the integer {shown} has more than 64 bits"));
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    Ok(out)
}

/// The position after the string that begins at `at`.
fn after_string(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(&byte) = bytes.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    bytes.len()
}
