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
    let mut open_groups = 0;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' | '\r' => out.push(character),
            '\\' => match characters.next() {
                Some(letter @ ('n' | 'r' | 't')) => out.extend(['\\', letter]),
                Some('s') => out.push_str(if in_class { r" \t\n\r" } else { r"[ \t\n\r]" }),
                other => return Err(refusal(&other.map_or("\\".to_string(), |letter| format!("\\{letter}")))),
            },
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            other if in_class => return Err(refusal(&format!("[{other}"))),
            '[' => {
                in_class = true;
                out.push('[');
            }
            '{' => {
                out.push('{');
                while let Some(digit) = characters.next_if(|next| next.is_ascii_digit() || *next == ',') {
                    out.push(digit);
                }
                if characters.next() != Some('}') {
                    return Err(refusal("{"));
                }
                out.push('}');
            }
            '(' => {
                if characters.next_if_eq(&'?').is_some() && characters.next() != Some(':') {
                    return Err(refusal("(?"));
                }
                open_groups += 1;
                out.push_str("(?:");
            }
            ')' if open_groups > 0 => {
                open_groups -= 1;
                out.push(')');
            }
            '|' | '?' | '*' | '+' => out.push(character),
            other => return Err(refusal(&other.to_string())),
        }
    }
    if in_class || open_groups > 0 {
        return Err("whitespace_pattern has a class or a group that does not end".to_string());
    }
    Ok(out)
}

fn refusal(part: &str) -> String {
    format!(
        "whitespace_pattern has '{part}'; it may have blanks, \\n, \\r, \\t, \\s, groups, classes and repetitions only, as JSON has no \
         other white space"
    )
}
