//! What Lorry does not take of llguidance's Lark grammars: tokens by name or number, which would put special tokens into answers, and
//! grammars and schemas within, which would pass by what schema.rs checks.

const RULES_MAX: usize = 1_000;
const DIRECTIVES: [&str; 4] = ["ignore", "import", "declare", "regex"];

/// Why a grammar is refused. Looks outside texts, regular expressions and comments.
pub fn check(grammar: &str) -> Result<(), String> {
    let mut characters = grammar.chars().peekable();
    let mut rules = 0;
    while let Some(character) = characters.next() {
        match character {
            '<' => return Err("the grammar names tokens (<name>, <[7]>), which is not supported: write texts".to_string()),
            '%' => {
                let mut directive = String::new();
                while let Some(letter) = characters.next_if(|next| next.is_ascii_alphabetic()) {
                    directive.push(letter);
                }
                if !DIRECTIVES.contains(&directive.as_str()) {
                    return Err(format!("%{directive} is not supported in a grammar"));
                }
            }
            ':' => rules += 1,
            '"' => skip_to('"', &mut characters),
            '/' if characters.peek() == Some(&'/') => skip_to('\n', &mut characters),
            '/' => skip_to('/', &mut characters),
            '#' => skip_to('\n', &mut characters),
            _ => {}
        }
    }
    if rules > RULES_MAX {
        return Err(format!("the grammar is too large: it has {rules} rules; supported are up to {RULES_MAX}"));
    }
    Ok(())
}

/// Past the next `end` that no backslash precedes.
fn skip_to(end: char, characters: &mut impl Iterator<Item = char>) {
    while let Some(character) = characters.next() {
        if character == end {
            return;
        }
        if character == '\\' && end != '\n' {
            characters.next();
        }
    }
}
