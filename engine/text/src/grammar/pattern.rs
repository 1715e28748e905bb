//! Regular expressions as JSON Schema has them (ECMA-262): `\d` and `\w` are ASCII's. In Rust's they are Unicode's, and a validator would
//! then reject an answer with other digits.

/// Classes of a pattern that name control characters.
const CONTROLS: [&str; 10] = ["[:cntrl:]", "\\pC", "\\p{C", "\\PC", "\\P{C", "\\x0", "\\x1", "\\x{", "\\u00", "\\c"];

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

/// The same for a text within JSON, without control characters. llguidance takes a class that has all of them for one that also has
/// the quote and the backslash: `[^"]` would let quotes through. So classes of what is not listed leave them out, and others must not list
/// them.
pub fn in_json(pattern: &str) -> Result<String, String> {
    let named = CONTROLS.iter().find(|&&name| pattern.contains(name)).map(|name| name.to_string());
    if let Some(name) = named.or_else(|| pattern.chars().any(|c| c.is_ascii_control()).then(|| "one".to_string())) {
        return Err(format!("control characters in patterns are not supported ({name})"));
    }
    let pattern = ascii(pattern);
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        out.push(character);
        match (character, characters.peek()) {
            ('\\', Some(_)) => out.extend(characters.next()),
            ('[', Some('^')) => {
                characters.next();
                out.push_str("^\\x00-\\x1f\\x7f");
            }
            _ => {}
        }
    }
    Ok(out)
}
