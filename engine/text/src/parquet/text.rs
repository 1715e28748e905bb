//! Values of a Parquet file as JSON: what a JSON line or the prompt's template sees of them.

use std::fmt::Write;

use chrono::{DateTime, NaiveTime, SecondsFormat, TimeDelta};
use num_bigint::BigInt;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::Decimal;
use parquet::record::Field;
use parquet::schema::types::Type;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Why a column of this type cannot be read; None: it can.
pub fn obstacle_in(kind: &Type) -> Option<String> {
    if kind.is_group() {
        return kind.get_fields().iter().find_map(|field| obstacle_in(field));
    }
    let info = kind.get_basic_info();
    let refused = match (info.converted_type(), info.logical_type_ref()) {
        (ConvertedType::INTERVAL, _) => "INTERVAL",
        (ConvertedType::BSON, _) => "BSON",
        (_, Some(LogicalType::Variant { .. })) => "VARIANT",
        (_, Some(LogicalType::Geometry { .. } | LogicalType::Geography { .. })) => "GEOMETRY",
        (_, Some(LogicalType::_Unknown { .. })) => "unknown to this version",
        _ => return None,
    };
    Some(format!("has the type {refused}, which is not read: leave it out or convert it"))
}

/// Appends a value of that type. The error says what is wrong with the value.
pub fn write_json(field: &Field, kind: &Type, out: &mut String) -> Result<(), String> {
    match field {
        Field::Null => out.push_str("null"),
        Field::Bool(value) => add(out, value),
        Field::Byte(value) => add(out, value),
        Field::Short(value) => add(out, value),
        Field::Int(value) => add(out, value),
        Field::Long(value) => write_long(*value, kind, out)?,
        Field::UByte(value) => add(out, value),
        Field::UShort(value) => add(out, value),
        Field::UInt(value) => add(out, value),
        Field::ULong(value) => add(out, value),
        Field::Float16(value) => write_float(value.to_f32(), f64::from(value.to_f32()), out),
        Field::Float(value) => write_float(*value, f64::from(*value), out),
        Field::Double(value) => write_float(*value, *value, out),
        Field::Decimal(value) => write_string(&decimal(value), out),
        Field::Str(value) => write_string(value, out),
        Field::Bytes(value) => write_string(&bytes(value.data(), kind)?, out),
        Field::Date(days) => write_string(&moment(i64::from(*days) * 86_400, 0, false)?[..10], out),
        Field::TimeMillis(value) => write_string(&time(i64::from(*value), 1_000)?, out),
        Field::TimeMicros(value) => write_string(&time(*value, 1_000_000)?, out),
        Field::TimestampMillis(value) => write_string(&timestamp(*value, 1_000, is_utc(kind))?, out),
        Field::TimestampMicros(value) => write_string(&timestamp(*value, 1_000_000, is_utc(kind))?, out),
        Field::Group(row) => {
            out.push('{');
            for (index, ((name, value), kind)) in row.get_column_iter().zip(kind.get_fields()).enumerate() {
                write_member(index, name, out);
                write_json(value, kind, out)?;
            }
            out.push('}');
        }
        Field::ListInternal(list) => {
            let element = element_of(kind);
            out.push('[');
            for (index, value) in list.elements().iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(value, element, out)?;
            }
            out.push(']');
        }
        Field::MapInternal(map) => write_map(map.entries(), kind, out)?,
    }
    Ok(())
}

pub fn write_member(index: usize, name: &str, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
    write_string(name, out);
    out.push(':');
}

/// An object, whose names are the keys as text.
fn write_map(entries: &[(Field, Field)], kind: &Type, out: &mut String) -> Result<(), String> {
    let pair = kind.get_fields().first().ok_or("its map has no entries")?.get_fields();
    let [key_kind, value_kind] = pair else { return Err("its map is not made of keys and values".to_string()) };
    out.push('{');
    for (index, (key, value)) in entries.iter().enumerate() {
        let mut name = String::new();
        write_json(key, key_kind, &mut name)?;
        if index > 0 {
            out.push(',');
        }
        if name.starts_with('"') {
            out.push_str(&name);
        } else {
            write_string(&name, out);
        }
        out.push(':');
        write_json(value, value_kind, out)?;
    }
    out.push('}');
    Ok(())
}

/// The type of a list's elements, as the crate's reader finds it.
fn element_of(list: &Type) -> &Type {
    if !list.is_group() || !matches!(list.get_basic_info().converted_type(), ConvertedType::LIST | ConvertedType::MAP) {
        return list; // a repeated field without a list around it
    }
    let Some(repeated) = list.get_fields().first() else { return list };
    if repeated.is_primitive() {
        return repeated;
    }
    let fields = repeated.get_fields();
    let is_nested_list = repeated.get_basic_info().converted_type() == ConvertedType::LIST
        || (fields.len() == 1
            && fields[0].get_basic_info().has_repetition()
            && fields[0].get_basic_info().repetition() == Repetition::REPEATED);
    let is_element =
        !is_nested_list && (fields.len() > 1 || repeated.name() == "array" || repeated.name() == format!("{}_tuple", list.name()));
    match fields.first() {
        Some(child) if !is_element => child,
        _ => repeated,
    }
}

fn add(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a String takes all");
}

/// With the fewest digits that give the value back. JSON has no word for what is not finite.
fn write_float(value: impl serde::Serialize, wide: f64, out: &mut String) {
    if wide.is_finite() {
        out.push_str(&serde_json::to_string(&value).expect("a finite number is JSON"));
    } else if wide.is_nan() {
        out.push_str("\"NaN\"");
    } else {
        out.push_str(if wide > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
    }
}

pub fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("text is JSON"));
}

fn is_utc(kind: &Type) -> bool {
    match kind.get_basic_info().logical_type_ref() {
        Some(LogicalType::Timestamp(timestamp)) => timestamp.is_adjusted_to_u_t_c,
        _ => kind.get_physical_type() != Physical::INT96, // older files have only times in UTC
    }
}

/// The crate knows no nanoseconds.
fn write_long(value: i64, kind: &Type, out: &mut String) -> Result<(), String> {
    match kind.get_basic_info().logical_type_ref() {
        Some(LogicalType::Timestamp(kind_of_time)) if kind_of_time.unit == TimeUnit::NANOS => {
            write_string(&timestamp(value, NANOS_PER_SECOND, is_utc(kind))?, out)
        }
        Some(LogicalType::Time(kind_of_time)) if kind_of_time.unit == TimeUnit::NANOS => write_string(&time(value, NANOS_PER_SECOND)?, out),
        _ => add(out, value),
    }
    Ok(())
}

fn timestamp(value: i64, per_second: i64, is_utc: bool) -> Result<String, String> {
    let nanos = value.rem_euclid(per_second) * (NANOS_PER_SECOND / per_second);
    moment(value.div_euclid(per_second), nanos as u32, is_utc)
}

/// "2026-01-31T12:00:00.5", with as many digits of three as needed; with a Z if it is in UTC.
fn moment(seconds: i64, nanos: u32, is_utc: bool) -> Result<String, String> {
    let moment = DateTime::from_timestamp(seconds, nanos).ok_or("has a date that is out of range")?;
    let mut text = moment.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    if !is_utc {
        text.pop();
    }
    Ok(text)
}

fn time(value: i64, per_second: i64) -> Result<String, String> {
    let nanos = value.checked_mul(NANOS_PER_SECOND / per_second).filter(|nanos| (0..86_400 * NANOS_PER_SECOND).contains(nanos));
    let nanos = nanos.ok_or("has a time of day that is out of range")?;
    Ok((NaiveTime::MIN + TimeDelta::nanoseconds(nanos)).format("%H:%M:%S%.f").to_string())
}

fn decimal(value: &Decimal) -> String {
    let number = BigInt::from_signed_bytes_be(value.data());
    let scale = usize::try_from(value.scale()).unwrap_or(0);
    let digits = format!("{:0>width$}", number.magnitude(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if number.sign() == num_bigint::Sign::Minus { "-" } else { "" };
    if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

/// Bytes that are text, as older writers store it, or an UUID.
fn bytes(value: &[u8], kind: &Type) -> Result<String, String> {
    if matches!(kind.get_basic_info().logical_type_ref(), Some(LogicalType::Uuid)) && value.len() == 16 {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        return Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"));
    }
    String::from_utf8(value.to_vec()).map_err(|_| {
        "holds bytes that are not UTF-8 text: leave the column out or convert it; an output in Parquet copies columns that the prompt does \
         not use"
            .to_string()
    })
}
