//! Numbers as Python reads and writes them. Used by the lexer, the filters int and float, and text.rs.

use super::error::{failed, Result};
use super::unicode::is_decimal;

/// The length of the number literal at the start of `text`, which begins with a digit, and whether it is a float. After a dot, as in
/// `x.0.1`, only integers are literals.
pub fn literal_length(text: &str, after_dot: bool) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B')) {
        let radix = match bytes[1] | 0x20 {
            b'x' => 16,
            b'o' => 8,
            _ => 2,
        };
        let length = digits_length(text[2..].trim_start_matches('_'), radix);
        let underscore = usize::from(bytes.get(2) == Some(&b'_'));
        return (length > 0).then_some((2 + underscore + length, false));
    }
    let whole = digits_length(text, 10);
    let mut end = whole;
    if !after_dot {
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits_length(&text[end + 1..], 10);
            end += if fraction > 0 { 1 + fraction } else { 0 };
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits_length(&text[end + 1 + sign..], 10);
            end += if exponent > 0 { 1 + sign + exponent } else { 0 };
        }
    }
    if end > whole {
        return Some((end, true));
    }
    // Python has no integers such as 007.
    let digits = &text[..whole];
    (!digits.starts_with('0') || digits.bytes().all(|digit| matches!(digit, b'0' | b'_'))).then_some((whole, false))
}

/// Digits with single underscores between them.
fn digits_length(text: &str, radix: u32) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(|&byte| (byte as char).is_digit(radix));
    let mut at = 0;
    while is_digit(at) || (at > 0 && bytes.get(at) == Some(&b'_') && is_digit(at + 1)) {
        at += 1;
    }
    at
}

/// Python reads the digits of all scripts.
fn only_ascii_digits(text: &str) -> Result<()> {
    match text.chars().any(|character| !character.is_ascii() && is_decimal(character)) {
        true => Err(failed("a number with digits other than 0 to 9 is not supported")),
        false => Ok(()),
    }
}

/// int(text, radix); a radix of 0 takes it from the prefix. None if it is not an integer.
pub fn integer_from(text: &str, radix: u32) -> Result<Option<i128>> {
    only_ascii_digits(text)?;
    let text = text.trim_matches(super::unicode::is_space);
    let (negative, unsigned) = match text.strip_prefix(['-', '+']) {
        Some(unsigned) => (text.starts_with('-'), unsigned),
        None => (false, text),
    };
    let prefix = unsigned.get(..2).map(str::to_ascii_lowercase);
    let named = match prefix.as_deref() {
        Some("0x") => Some(16),
        Some("0o") => Some(8),
        Some("0b") => Some(2),
        _ => None,
    };
    let (radix, digits) = match named {
        Some(named) if radix == 0 || radix == named => (named, unsigned[2..].strip_prefix('_').unwrap_or(&unsigned[2..])),
        _ => (if radix == 0 { 10 } else { radix }, unsigned),
    };
    if digits.is_empty() || digits_length(digits, radix) != digits.len() {
        return Ok(None);
    }
    match i128::from_str_radix(&digits.replace('_', ""), radix) {
        Ok(magnitude) => Ok(Some(if negative { -magnitude } else { magnitude })),
        Err(_) => Err(failed("integers of more than 128 bits are not supported")),
    }
}

/// float(text). None if it is not a number.
pub fn float_from(text: &str) -> Result<Option<f64>> {
    only_ascii_digits(text)?;
    let text = text.trim_matches(super::unicode::is_space);
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('_') {
        let between_digits = at > 0 && bytes[at - 1].is_ascii_digit() && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !between_digits {
            return Ok(None);
        }
    }
    Ok(text.replace('_', "").parse().ok())
}

/// repr of a float: the shortest digits that parse to the same value, with an exponent outside 1e-4 .. 1e16.
pub fn float_text(real: f64, [nan, infinity, minus_infinity]: [&str; 3]) -> String {
    if real.is_nan() {
        return nan.to_string();
    }
    if real.is_infinite() {
        return if real > 0.0 { infinity } else { minus_infinity }.to_string();
    }
    let scientific = format!("{real:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..=15 => {
            let plain = format!("{real}");
            // Rust prints whole numbers without a decimal point.
            if exponent >= 0 && !plain.contains('.') {
                plain + ".0"
            } else {
                plain
            }
        }
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// The digits at the start of `rest`, which are removed: a width or a precision. None if there are none.
pub fn leading_size(rest: &mut &str) -> Result<Option<usize>> {
    let (digits, after) = rest.split_at(rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len()));
    *rest = after;
    match digits {
        "" => Ok(None),
        _ => digits.parse().ok().filter(|&size| size < 1 << 30).map(Some).ok_or_else(|| failed("the width or precision is too large")),
    }
}

/// The prefix and the digits of an integer in the formats x, X, o and b; those of others are decimal.
pub fn digits_of(magnitude: u128, kind: char) -> (&'static str, String) {
    match kind {
        'x' => ("0x", format!("{magnitude:x}")),
        'X' => ("0X", format!("{magnitude:X}")),
        'o' => ("0o", format!("{magnitude:o}")),
        'b' => ("0b", format!("{magnitude:b}")),
        _ => ("", magnitude.to_string()),
    }
}

/// The integer part of a float. None if it has none.
pub fn truncated(real: f64) -> Result<Option<i128>> {
    match real {
        _ if !real.is_finite() => Ok(None),
        _ if real.abs() >= 1e38 => Err(failed("integers of more than 128 bits are not supported")),
        _ => Ok(Some(real.trunc() as i128)),
    }
}
