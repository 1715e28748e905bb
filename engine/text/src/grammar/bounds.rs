//! Bounds and multiples of numbers as readers of JSON check them, which is in binary: 0.99999999999999999 is 1 there, and 2.4 is no
//! multiple of 0.05. Called by schema.rs.

use serde_json::{json, Map, Value};

type Object = Map<String, Value>;

/// Integers up to it are exact in every program that reads JSON.
pub const EXACT: f64 = 9_007_199_254_740_992.0;
/// Of numbers with an exclusive bound. llguidance computes with multiples of 32 bits.
const DECIMALS_MAX: usize = 6;
/// Of decimal digits, as many are told apart in binary.
const DIGITS_EXACT: usize = 15;
/// 0.5, 0.25 and so on to it are exact in binary, and so are their multiples.
const HALVES: f64 = 1_024.0;
/// To find one that a validator would refuse.
const MULTIPLES_TRIED: u32 = 1_000;

/// Writes exclusive bounds of a schema as the next number that is allowed. `multiple`: of the schema. The error says what is not supported.
pub fn prepare(schema: &mut Object, multiple: Option<f64>) -> Result<(), String> {
    if let Some(multiple) = multiple {
        check_multiple(schema, multiple)?;
    }
    let types = schema.get("type");
    let has_type = |name: &str| match types {
        Some(Value::Array(types)) => types.iter().any(|one| one == name),
        Some(one) => one == name,
        None => true,
    };
    if has_type("number") {
        replace_exclusive(schema, multiple)?;
    }
    Ok(())
}

fn check_multiple(schema: &mut Object, multiple: f64) -> Result<(), String> {
    if (multiple * HALVES).fract() != 0.0 {
        return Err(inexact(multiple));
    }
    // Validators divide. Beyond 2^53 of the multiple's last binary digit, what is read of a number may be no multiple.
    if !schema.get("multipleOf").is_some_and(Value::is_u64) {
        let most = EXACT * last_binary_digit(multiple) - multiple.abs();
        clamp(schema, "minimum", -most, f64::max)?;
        clamp(schema, "maximum", most, f64::min)?;
    }
    Ok(())
}

/// 1 for whole numbers, 0.5 for 12.5.
fn last_binary_digit(multiple: f64) -> f64 {
    let mut unit = 1.0;
    while (multiple / unit).fract() != 0.0 {
        unit /= 2.0;
    }
    unit
}

/// Narrows a bound to `most`. `narrower`: of two.
fn clamp(schema: &mut Object, bound: &str, most: f64, narrower: impl Fn(f64, f64) -> f64) -> Result<(), String> {
    let number = match schema.get(bound) {
        Some(value) => narrower(value.as_f64().ok_or_else(|| format!("{bound} is not a number"))?, most),
        None => most,
    };
    schema.insert(bound.to_string(), json!(number));
    Ok(())
}

/// Validators divide in binary: 19.99 / 0.01 is not whole there.
fn inexact(multiple: f64) -> String {
    let decimals = decimals(multiple);
    let unit = (multiple * 10_f64.powi(decimals as i32)).round();
    let multiples = (1..=MULTIPLES_TRIED).filter_map(|count| format!("{}e-{decimals}", f64::from(count) * unit).parse::<f64>().ok());
    let wrong = multiples.into_iter().find(|number| (number / multiple).fract() != 0.0);
    let example = wrong.map_or(String::new(), |number| format!(" such as {number}"));
    format!(
        "multipleOf {multiple} is not supported: it is not exact in binary, and readers of JSON would find that multiples{example} are \
         none. Ask for an integer of smaller units, such as cents, or for a string with a pattern such as ^[0-9]+\\.[0-9]{{{decimals}}}$. \
         Whole numbers are supported, and 0.5, 0.25 and so on to 1/1024"
    )
}

/// With so many decimals and no more, a number above 0 is one of at least 0.000001, also in binary.
fn replace_exclusive(schema: &mut Object, multiple: Option<f64>) -> Result<(), String> {
    let bound_of = |name: &str| schema.get(name).and_then(Value::as_f64);
    let (low, high) = (bound_of("exclusiveMinimum"), bound_of("exclusiveMaximum"));
    let bounds: Vec<f64> = low.into_iter().chain(high).collect();
    let Some(widest) = bounds.iter().map(|bound| bound.abs()).reduce(f64::max) else { return Ok(()) };
    let most = DECIMALS_MAX.min(DIGITS_EXACT.saturating_sub(format!("{:.0}", widest.trunc()).len()));
    let needed = bounds.iter().copied().chain(multiple).map(decimals).max().unwrap_or(0);
    if needed > most || (most == 0 && multiple.is_none()) {
        return Err(format!(
            "an exclusive bound of {widest} needs more digits than numbers have in binary; use minimum and maximum, or type integer"
        ));
    }
    let decimals = if multiple.is_some() { needed } else { most };
    if let Some(low) = low {
        let next = moved(low, decimals, 1);
        let least = schema.get("minimum").and_then(Value::as_f64).map_or(next, |minimum| minimum.max(next));
        schema.remove("exclusiveMinimum");
        schema.insert("minimum".to_string(), json!(least));
    }
    if let Some(high) = high {
        let next = moved(high, decimals, -1);
        let most = schema.get("maximum").and_then(Value::as_f64).map_or(next, |maximum| maximum.min(next));
        schema.remove("exclusiveMaximum");
        schema.insert("maximum".to_string(), json!(most));
    }
    if multiple.is_none() {
        schema.insert("multipleOf".to_string(), json!(moved(0.0, decimals, 1)));
    }
    Ok(())
}

pub fn decimals(number: f64) -> usize {
    number.to_string().split_once('.').map_or(0, |(_, fraction)| fraction.len())
}

/// `number` and so many units of its last decimal, read from their digits.
fn moved(number: f64, decimals: usize, units: i64) -> f64 {
    let scaled = (number * 10_f64.powi(decimals as i32)).round() as i64 + units;
    format!("{scaled}e-{decimals}").parse().unwrap_or(number)
}
