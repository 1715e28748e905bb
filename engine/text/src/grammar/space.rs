//! Regular expressions of the white space between the parts of a JSON text.

/// Of a pattern.
const BYTES_MAX: usize = 200;

/// The pattern for the library. It may match white space of JSON only, or answers would not parse; `\s` is all of it.
pub fn checked(pattern: &str) -> Result<String, String> {
    if pattern.len() > BYTES_MAX {
        return Err(format!("whitespace_pattern has {} bytes; supported are up to {BYTES_MAX}", pattern.len()));
    }
    let mut out = String::new();
    let mut in_class = false;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(letter @ ('n' | 'r' | 't')) => out.extend(['\\', letter]),
                Some('s') => out.push_str(if in_class { r" \t\n\r" } else { r"[ \t\n\r]" }),
                other => return Err(refusal(&other.map_or("\\".to_string(), |letter| format!("\\{letter}")))),
            },
            '[' | ']' => {
                in_class = character == '[';
                out.push(character);
            }
            '{' => {
                out.push(character);
                while let Some(digit) = characters.next_if(|next| next.is_ascii_digit() || *next == ',') {
                    out.push(digit);
                }
                if characters.next() != Some('}') {
                    return Err(refusal("{"));
                }
                out.push('}');
            }
            '(' => out.push_str(if characters.next_if_eq(&'?').is_none() {
                "(?:"
            } else if characters.next() == Some(':') {
                "(?:"
            } else {
                return Err(refusal("(?"));
            }),
            ' ' | '\t' | '\n' | '\r' | ')' | '|' | '?' | '*' | '+' => out.push(character),
            other => return Err(refusal(&other.to_string())),
        }
    }
    Ok(out)
}

fn refusal(part: &str) -> String {
    format!(
        "whitespace_pattern has '{part}'; it may have blanks, \\n, \\r, \\t, \\s, groups, classes and repetitions only, as JSON has no \
         other white space"
    )
}
