//! Rewrites the one tag that transformers adds to Jinja and that minijinja does not have. Called by chat_template.rs before it compiles a
//! template.

/// `{% generation %} ... {% endgeneration %}` marks the assistant's words for training masks. It prints its body unchanged, in its own
/// scope, and so equals `{% with %} ... {% endwith %}`. Tags in comments, strings, expressions and raw blocks are not changed.
pub fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, at) = rest.split_at(start);
        out.push_str(before);
        let length = match at.as_bytes().get(1) {
            Some(b'#') => at.find("#}").map_or(at.len(), |end| end + 2),
            Some(b'{') => end_outside_strings(at, "}}"),
            Some(b'%') => {
                let tag = &at[..end_outside_strings(at, "%}")];
                let word = tag_word(tag);
                if word == "generation" || word == "endgeneration" {
                    out.push_str(&tag.replacen(word, if word == "generation" { "with" } else { "endwith" }, 1));
                    rest = &at[tag.len()..];
                    continue;
                }
                if word == "raw" {
                    end_of_raw(at, tag.len())
                } else {
                    tag.len()
                }
            }
            _ => 1,
        };
        out.push_str(&at[..length]);
        rest = &at[length..];
    }
    out.push_str(rest);
    out
}

/// "if" of "{%- if x %}".
fn tag_word(tag: &str) -> &str {
    let inner = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(inner.len());
    &inner[..end]
}

/// The length of the tag or expression at the start of `at`.
fn end_outside_strings(at: &str, close: &str) -> usize {
    let bytes = at.as_bytes();
    let mut quote = None;
    let mut index = 2;
    while index < bytes.len() {
        match (quote, bytes[index]) {
            (Some(_), b'\\') => index += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[index..].starts_with(close.as_bytes()) => return index + close.len(),
            (None, _) => {}
        }
        index += 1;
    }
    bytes.len()
}

fn end_of_raw(at: &str, mut from: usize) -> usize {
    while let Some(start) = at[from..].find("{%") {
        let tag_start = from + start;
        let tag_length = at[tag_start..].find("%}").map_or(at.len() - tag_start, |end| end + 2);
        if tag_word(&at[tag_start..tag_start + tag_length]) == "endraw" {
            return tag_start + tag_length;
        }
        from = tag_start + 2;
    }
    at.len()
}
