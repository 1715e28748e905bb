//! The methods of Python's str. Called by methods.rs and by the filters that are the same.

use std::collections::HashSet;

use super::arguments::{integer, integer_or, is_true, size, text, Arguments};
use super::error::{failed, shown, Result};
use super::format_spec::format_method;
use super::generators::{items_of, Cursor};
use super::interpreter::Interpreter;
use super::limits::{Meter, CHARACTERS_PER_STEP};
use super::unicode::{self, is_space, split_lines};
use super::value::{Items, Value};
use super::writer::Writer;

pub const STRING_METHODS: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

/// The methods of Markup that escape an argument.
const ESCAPING: [&str; 6] = ["center", "format", "join", "ljust", "replace", "rjust"];

pub fn call_string_method(interpreter: &mut Interpreter, own: &str, safe: bool, name: &str, arguments: Arguments) -> Result<Value> {
    let meter = interpreter.meter;
    // Going through characters takes longer than reading.
    meter.read(own.len().saturating_mul(4))?;
    let result = match name {
        _ if name.starts_with("is") => {
            arguments.none(name)?;
            meter.steps(own.len() / CHARACTERS_PER_STEP)?;
            return classify(own, name).map(Value::Bool);
        }
        _ if safe && ESCAPING.contains(&name) => return escaping(interpreter, own, name, arguments),
        "capitalize" | "casefold" | "lower" | "swapcase" | "title" | "upper" => {
            arguments.none(name)?;
            Value::text(cased(own, name)?, meter)?
        }
        "count" | "find" | "index" | "rfind" | "rindex" => find(own, name, arguments)?,
        "startswith" | "endswith" => starts_or_ends(own, name, arguments, meter)?,
        "strip" | "lstrip" | "rstrip" => {
            let [characters] = arguments.bind(name, 0, ["_chars"])?;
            Value::text(strip(own, name, &characters.unwrap_or(Value::None), meter)?, meter)?
        }
        "split" | "rsplit" => {
            let [separator, limit] = arguments.bind(name, 0, ["sep", "maxsplit"])?;
            split(own, name, &separator.unwrap_or(Value::None), integer_or("maxsplit", &limit, -1)?, meter)?
        }
        "splitlines" => {
            let [keep_ends] = arguments.bind(name, 0, ["keepends"])?;
            Value::list(texts(split_lines(own, is_true(keep_ends)), meter)?)?
        }
        "partition" | "rpartition" => partition(own, name, arguments, meter)?,
        "removeprefix" | "removesuffix" => {
            let [part] = arguments.bind(name, 1, ["_part"])?;
            let part = part.unwrap_or(Value::None);
            let part = text("the argument of removeprefix and removesuffix", &part)?;
            let rest = if name == "removeprefix" { own.strip_prefix(part) } else { own.strip_suffix(part) };
            Value::text(rest.unwrap_or(own), meter)?
        }
        "replace" => {
            let [old, new, count] = arguments.bind(name, 2, ["_old", "_new", "_count"])?;
            let (old, new) = (old.unwrap_or(Value::None), new.unwrap_or(Value::None));
            let count = integer_or("the count of replace", &count, -1)?;
            replace(own, text("what replace replaces", &old)?, text("what replace inserts", &new)?, count, meter)?
        }
        "join" => {
            let [items] = arguments.bind(name, 1, ["_iterable"])?;
            join(interpreter, own, &items.unwrap_or(Value::None))?
        }
        "center" | "ljust" | "rjust" | "zfill" => padded(own, name, arguments, meter)?,
        "expandtabs" => {
            let [width] = arguments.bind(name, 0, ["tabsize"])?;
            expand_tabs(own, size("the tabsize", &width.unwrap_or(Value::Integer(8)))?, meter)?
        }
        "format" => format_method(interpreter, own, arguments)?,
        _ => return Err(failed(format!("method {name} of a string is not supported"))),
    };
    if safe {
        marked_safe(result, meter)
    } else {
        Ok(result)
    }
}

/// A method of Markup that escapes its arguments: only what needs no escapes in them is supported.
fn escaping(interpreter: &mut Interpreter, own: &str, name: &str, mut arguments: Arguments) -> Result<Value> {
    let meter = interpreter.meter;
    if name == "join" {
        let [items] = arguments.bind(name, 1, ["_iterable"])?;
        let items = items_of(items.unwrap_or(Value::None).defined()?, interpreter)?;
        refuse_escapes(name, items.iter())?;
        arguments = Arguments::one(Value::list(items)?, meter)?;
    } else {
        refuse_escapes(name, arguments.positional.iter().chain(arguments.named.iter().map(|(_, value)| value)))?;
    }
    call_string_method(interpreter, own, false, name, arguments).map(|value| value.marked(true))
}

fn refuse_escapes<'v>(name: &str, mut parts: impl Iterator<Item = &'v Value>) -> Result<()> {
    let is_plain = |part: &Value| match part {
        Value::Text { text, safe } => *safe || !text.contains(['&', '>', '<', '\'', '"']),
        Value::Integer(_) | Value::None => true,
        _ => false,
    };
    match parts.all(is_plain) {
        true => Ok(()),
        false => {
            Err(failed(format!("method {name} of a string that is marked as safe would escape its arguments, which is not supported")))
        }
    }
}

/// The texts that a method of Markup returns are Markup too.
fn marked_safe(value: Value, meter: &Meter) -> Result<Value> {
    let marked = |items: &Items| Items::copy(items.iter().cloned().map(|item| item.marked(true)), items.len(), meter);
    match value {
        Value::List(list) => Value::list(marked(&list.items)?),
        Value::Tuple(tuple) => Value::tuple(marked(&tuple.items)?),
        other => Ok(other.marked(true)),
    }
}

fn texts<'p>(pieces: impl IntoIterator<Item = &'p str>, meter: &Meter) -> Result<Items> {
    Items::collect(pieces.into_iter().map(|piece| Value::text(piece, meter)), meter)
}

pub fn cased(own: &str, name: &str) -> Result<String> {
    Ok(match name {
        "lower" => own.to_lowercase(),
        "upper" => own.to_uppercase(),
        "swapcase" => {
            let mut out = String::new();
            for character in own.chars() {
                if character.is_uppercase() {
                    out.extend(character.to_lowercase());
                } else if character.is_lowercase() {
                    out.extend(character.to_uppercase());
                } else {
                    out.push(character);
                }
            }
            out
        }
        "casefold" => {
            let known =
                own.chars().all(|character| matches!(character, '\0'..='\u{17e}' | '\u{4e00}'..='\u{9fff}' | '\u{1f300}'..='\u{1faff}'));
            if !known {
                return Err(failed("casefold of this string's letters is not supported: use lower"));
            }
            own.to_lowercase().replace('ß', "ss").replace('µ', "μ").replace('\u{149}', "\u{2bc}n")
        }
        "capitalize" => {
            let mut out = String::new();
            if let Some(first) = own.chars().next() {
                title(first, &mut out)?;
                // The rest in its context: a Greek sigma at the end has its own form.
                out.push_str(own.to_lowercase().strip_prefix(first.to_lowercase().collect::<String>().as_str()).unwrap_or_default());
            }
            out
        }
        _ => {
            let mut out = String::new();
            let mut within_word = false;
            for character in own.chars() {
                if within_word {
                    out.extend(character.to_lowercase());
                } else {
                    title(character, &mut out)?;
                }
                within_word = unicode::is_cased(character);
            }
            out
        }
    })
}

fn title(character: char, out: &mut String) -> Result<()> {
    unicode::push_title(character, out).ok_or_else(|| failed("the title case of old Greek letters is not supported"))
}

/// The methods whose names begin with `is`.
fn classify(own: &str, name: &str) -> Result<bool> {
    let all = |class: fn(char) -> bool| !own.is_empty() && own.chars().all(class);
    Ok(match name {
        "isalpha" => all(unicode::is_letter),
        "isalnum" => all(unicode::is_alphanumeric),
        "isascii" => own.is_ascii(),
        "isdecimal" => all(unicode::is_decimal),
        "isspace" => all(is_space),
        "isidentifier" => unicode::is_identifier(own),
        "isprintable" => own.chars().all(unicode::is_printable),
        "isdigit" if own.chars().any(|character| character.is_numeric() && !unicode::is_decimal(character) && !is_raised(character)) => {
            return Err(failed("isdigit of circled and other rare digits is not supported: use isdecimal"))
        }
        "isdigit" => all(|character| unicode::is_decimal(character) || is_raised(character)),
        "isnumeric" if own.chars().any(|character| ('\u{3400}'..='\u{2fa1f}').contains(&character)) => {
            return Err(failed("isnumeric of Chinese characters is not supported: use isdigit"))
        }
        "isnumeric" => all(char::is_numeric),
        "islower" | "isupper" => {
            let (wanted, other): (fn(char) -> bool, fn(char) -> bool) =
                if name == "islower" { (char::is_lowercase, char::is_uppercase) } else { (char::is_uppercase, char::is_lowercase) };
            own.chars().any(wanted) && !own.chars().any(|character| other(character) || unicode::is_title(character))
        }
        _ => {
            let mut within_word = false;
            let mut any = false;
            for character in own.chars() {
                let begins = character.is_uppercase() || unicode::is_title(character);
                if unicode::is_cased(character) {
                    if begins == within_word {
                        return Ok(false);
                    }
                    any = true;
                }
                within_word = unicode::is_cased(character);
            }
            any
        }
    })
}

/// A digit above or below the line.
fn is_raised(character: char) -> bool {
    matches!(character, '²' | '³' | '¹' | '\u{2070}' | '\u{2074}'..='\u{2079}' | '\u{2080}'..='\u{2089}')
}

/// The part of `own` between two positions in characters, and where it starts; None if the start is beyond the end.
fn between<'o>(own: &'o str, start: &Option<Value>, end: &Option<Value>) -> Result<Option<(&'o str, usize)>> {
    let length = own.chars().count() as i128;
    let position = |value: &Option<Value>, default: i128| -> Result<i128> {
        Ok(match value {
            None | Some(Value::None) => default,
            Some(value) => match integer("a position in a string", value)? {
                position if position < 0 => (position + length).max(0),
                position => position,
            },
        })
    };
    let (start, end) = (position(start, 0)?, position(end, length)?.min(length));
    if start > end {
        return Ok(None);
    }
    let byte = |position: i128| own.char_indices().nth(position as usize).map_or(own.len(), |(at, _)| at);
    Ok(Some((&own[byte(start)..byte(end)], start as usize)))
}

fn find(own: &str, name: &str, arguments: Arguments) -> Result<Value> {
    let [part, start, end] = arguments.bind(name, 1, ["_part", "_start", "_end"])?;
    let part = part.unwrap_or(Value::None);
    let part = text("what is searched in a string", &part)?;
    let within = between(own, &start, &end)?;
    if name == "count" {
        let count = within.map_or(0, |(own, _)| if part.is_empty() { own.chars().count() + 1 } else { own.matches(part).count() });
        return Ok(Value::Integer(count as i128));
    }
    let found = within.and_then(|(own, start)| {
        let at = if name.starts_with('r') { own.rfind(part) } else { own.find(part) };
        at.map(|at| start + own[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::Integer(at as i128)),
        None if name.ends_with("index") => Err(failed(format!("{name}: the string does not contain {}", shown(part)))),
        None => Ok(Value::Integer(-1)),
    }
}

fn starts_or_ends(own: &str, name: &str, arguments: Arguments, meter: &Meter) -> Result<Value> {
    let [parts, start, end] = arguments.bind(name, 1, ["_part", "_start", "_end"])?;
    let parts = parts.unwrap_or(Value::None);
    let parts = match &parts {
        Value::Tuple(tuple) => &tuple.items[..],
        part => std::slice::from_ref(part),
    };
    let within = between(own, &start, &end)?;
    for part in parts {
        meter.steps(1)?;
        meter.read(part.text_length().min(own.len()))?;
        let part = text(&format!("an argument of {name}"), part)?;
        let found = within.is_some_and(|(own, _)| if name == "startswith" { own.starts_with(part) } else { own.ends_with(part) });
        if found {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn strip<'o>(own: &'o str, name: &str, characters: &Value, meter: &Meter) -> Result<&'o str> {
    let set: Option<HashSet<char>> = match characters {
        Value::None => None,
        _ => {
            let characters = text(&format!("the argument of {name}"), characters)?;
            meter.steps(characters.len())?;
            meter.bytes(characters.len())?;
            Some(characters.chars().collect())
        }
    };
    let stripped = |character: char| set.as_ref().map_or_else(|| is_space(character), |set| set.contains(&character));
    let own = if name == "rstrip" { own } else { own.trim_start_matches(stripped) };
    Ok(if name == "lstrip" { own } else { own.trim_end_matches(stripped) })
}

fn split(own: &str, name: &str, separator: &Value, limit: i128, meter: &Meter) -> Result<Value> {
    let from_end = name == "rsplit";
    // Pieces, counted one more than splits.
    let most = usize::try_from(limit).map_or(usize::MAX, |limit| limit.saturating_add(1));
    let mut pieces = match separator {
        Value::None => texts(words(own, most, from_end), meter)?,
        _ => {
            let separator = text(&format!("the separator of {name}"), separator)?;
            match (separator.is_empty(), from_end) {
                (true, _) => return Err(failed(format!("{name}: the separator is empty"))),
                (false, true) => texts(own.rsplitn(most, separator), meter)?,
                (false, false) => texts(own.splitn(most, separator), meter)?,
            }
        }
    };
    if from_end {
        pieces.reverse();
    }
    Value::list(pieces)
}

/// The words of `own`; from the end, in reverse order. The last of `most` words keeps the space at its other end.
fn words(own: &str, most: usize, from_end: bool) -> impl Iterator<Item = &str> {
    let mut rest = own;
    let mut count = 0;
    std::iter::from_fn(move || {
        rest = if from_end { unicode::trim_end(rest) } else { unicode::trim_start(rest) };
        if rest.is_empty() {
            return None;
        }
        count += 1;
        let (word, after) = match (count == most, from_end) {
            (true, _) => (rest, ""),
            (false, true) => {
                let (before, word) = rest.split_at(rest.trim_end_matches(|character| !is_space(character)).len());
                (word, before)
            }
            (false, false) => rest.split_at(rest.find(is_space).unwrap_or(rest.len())),
        };
        rest = after;
        Some(word)
    })
}

fn partition(own: &str, name: &str, arguments: Arguments, meter: &Meter) -> Result<Value> {
    let [separator] = arguments.bind(name, 1, ["_sep"])?;
    let separator = separator.unwrap_or(Value::None);
    let separator = text(&format!("the separator of {name}"), &separator)?;
    if separator.is_empty() {
        return Err(failed(format!("{name}: the separator is empty")));
    }
    let parts = if name == "partition" {
        own.split_once(separator).map_or((own, "", ""), |(before, after)| (before, separator, after))
    } else {
        own.rsplit_once(separator).map_or(("", "", own), |(before, after)| (before, separator, after))
    };
    Value::tuple(texts([parts.0, parts.1, parts.2], meter)?)
}

pub fn replace(own: &str, old: &str, new: &str, count: i128, meter: &Meter) -> Result<Value> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    meter.read(own.len().saturating_mul(4))?;
    let found = if old.is_empty() { own.chars().count() + 1 } else { own.matches(old).count() };
    meter.bytes(new.len().saturating_mul(found.min(count)))?;
    Value::text(own.replacen(old, new, count), meter)
}

fn join(interpreter: &mut Interpreter, own: &str, items: &Value) -> Result<Value> {
    let mut out = Writer::new(interpreter.meter);
    let mut cursor = Cursor::of(items.defined()?)?;
    let mut is_first = true;
    while let Some(item) = cursor.next(interpreter)? {
        if !std::mem::take(&mut is_first) {
            out.push(own)?;
        }
        out.push(text("an item of join", &item)?)?;
    }
    Ok(out.value())
}

fn surrounded(left: usize, own: &str, right: usize, fill: &str, meter: &Meter) -> Result<Value> {
    let mut out = Writer::new(meter);
    out.push_repeated(fill, left)?;
    out.push(own)?;
    out.push_repeated(fill, right)?;
    Ok(out.value())
}

pub fn center(own: &str, width: usize, fill: &str, meter: &Meter) -> Result<Value> {
    let missing = width.saturating_sub(own.chars().count());
    // CPython's rule for an odd number of fill characters.
    let left = missing / 2 + (missing & width & 1);
    surrounded(left, own, missing - left, fill, meter)
}

fn padded(own: &str, name: &str, arguments: Arguments, meter: &Meter) -> Result<Value> {
    let [width, fill] = arguments.bind(name, 1, ["_width", "_fillchar"])?;
    let width = size(&format!("the width of {name}"), &width.unwrap_or(Value::None))?;
    let missing = width.saturating_sub(own.chars().count());
    if name == "zfill" {
        if fill.is_some() {
            return Err(failed("zfill takes one argument"));
        }
        let (sign, digits) = own.split_at(usize::from(own.starts_with(['+', '-'])));
        let mut out = Writer::new(meter);
        out.push(sign)?;
        out.push_repeated("0", missing)?;
        out.push(digits)?;
        return Ok(out.value());
    }
    let fill = fill.as_ref().map_or(Ok(" "), |fill| text(&format!("the fill character of {name}"), fill))?;
    if fill.chars().count() != 1 {
        return Err(failed(format!("the fill character of {name} must be one character")));
    }
    match name {
        "center" => center(own, width, fill, meter),
        "ljust" => surrounded(0, own, missing, fill, meter),
        _ => surrounded(missing, own, 0, fill, meter),
    }
}

fn expand_tabs(own: &str, width: usize, meter: &Meter) -> Result<Value> {
    let mut out = Writer::new(meter);
    for line in own.split_inclusive(['\n', '\r']) {
        let mut column = 0;
        for (index, part) in line.split('\t').enumerate() {
            meter.steps(1)?;
            if index > 0 && width > 0 {
                let spaces = width - column % width;
                out.push_repeated(" ", spaces)?;
                column += spaces;
            }
            out.push(part)?;
            column += part.chars().count();
        }
    }
    Ok(out.value())
}
