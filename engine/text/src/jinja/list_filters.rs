//! Jinja's filters for lists and other things with items. Part of filters.rs.

use super::arguments::{size, text, Arguments};
use super::ast::{Name, Operator};
use super::error::{failed, Result};
use super::filters::{without_case, Filter};
use super::interpreter::Interpreter;
use super::lookup;
use super::operators::{binary, equal, order};
use super::sequences::{items_of, sort_by};
use super::text::str_of;
use super::value::{Dict, Value, View};

pub const LIST_FILTERS: [(&str, Filter); 20] = [
    ("batch", batch),
    ("dictsort", dict_sort),
    ("first", first),
    ("groupby", group_by),
    ("items", items),
    ("join", join),
    ("last", last),
    ("list", |interpreter, value, arguments| {
        arguments.none("list")?;
        Value::list(items_of(&value, &interpreter.meter)?)
    }),
    ("map", map),
    ("max", |interpreter, value, arguments| extreme(interpreter, value, arguments, true)),
    ("min", |interpreter, value, arguments| extreme(interpreter, value, arguments, false)),
    ("reject", |interpreter, value, arguments| select(interpreter, value, arguments, false, false)),
    ("rejectattr", |interpreter, value, arguments| select(interpreter, value, arguments, true, false)),
    ("reverse", reverse),
    ("select", |interpreter, value, arguments| select(interpreter, value, arguments, false, true)),
    ("selectattr", |interpreter, value, arguments| select(interpreter, value, arguments, true, true)),
    ("slice", slice),
    ("sort", sort),
    ("sum", sum),
    ("unique", unique),
];

/// A path such as "a.b.0" from an item to one of its parts.
struct Path {
    keys: Vec<Value>,
    default: Option<Value>,
}

impl Path {
    fn of(attribute: &Value) -> Result<Self> {
        let keys = match attribute {
            Value::None => Vec::new(),
            Value::Text { text, .. } => {
                let key = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() {
                    true => part.parse().map(Value::Integer).map_err(|_| failed("an index that is too large")),
                    false => Ok(Value::text(part)),
                };
                text.split('.').map(key).collect::<Result<_>>()?
            }
            other => vec![other.clone()],
        };
        Ok(Path { keys, default: None })
    }

    fn optional(attribute: Option<Value>) -> Result<Self> {
        Path::of(&attribute.unwrap_or(Value::None))
    }

    fn part_of(&self, interpreter: &Interpreter, item: &Value) -> Result<Value> {
        let mut part = item.clone();
        for key in &self.keys {
            part = lookup::item(interpreter, &part, key)?;
            if let (Value::Undefined(_), Some(default)) = (&part, &self.default) {
                part = default.clone();
            }
        }
        Ok(part)
    }
}

/// Each item with the value that it is compared by.
fn keyed(interpreter: &Interpreter, value: &Value, path: &Path, case_sensitive: bool) -> Result<Vec<(Value, Value)>> {
    let mut keyed = Vec::new();
    for item in items_of(value, &interpreter.meter)? {
        let key = path.part_of(interpreter, &item)?;
        keyed.push((if case_sensitive { key } else { without_case(key)? }, item));
    }
    Ok(keyed)
}

fn is_true(flag: Option<Value>) -> bool {
    flag.is_some_and(|flag| flag.is_true())
}

fn first(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("first")?;
    let found = match &value {
        Value::Iterator(generator) => generator.items.borrow_mut().pop_front(),
        _ => items_of(&value, &interpreter.meter)?.into_iter().next(),
    };
    Ok(found.unwrap_or_else(|| Value::undefined("the first item of nothing")))
}

fn last(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("last")?;
    if matches!(value, Value::Iterator(_)) {
        return Err(failed("last of a generator is not defined: make a list of it"));
    }
    Ok(items_of(&value, &interpreter.meter)?.pop().unwrap_or_else(|| Value::undefined("the last item of nothing")))
}

fn join(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [separator, attribute] = arguments.bind("join", 0, ["d", "attribute"])?;
    let path = Path::optional(attribute)?;
    let separator = str_of(&separator.unwrap_or(Value::text("")), &interpreter.meter)?;
    let mut out = String::new();
    for (index, item) in items_of(&value, &interpreter.meter)?.iter().enumerate() {
        let part = str_of(&path.part_of(interpreter, item)?, &interpreter.meter)?;
        interpreter.meter.text(separator.len() + part.len())?;
        if index > 0 {
            out.push_str(&separator);
        }
        out.push_str(&part);
    }
    Ok(Value::text(out))
}

fn reverse(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("reverse")?;
    let mut items = items_of(&value, &interpreter.meter)?;
    items.reverse();
    match &value {
        Value::Text { text, safe } => {
            interpreter.meter.text(text.len())?;
            Ok(Value::Text { text: text.chars().rev().collect::<String>().into(), safe: *safe })
        }
        Value::Iterator(_) => Value::list(items),
        _ => Value::generator(items),
    }
}

fn sort(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [reverse, case_sensitive, attribute] = arguments.bind("sort", 0, ["reverse", "case_sensitive", "attribute"])?;
    let (reverse, case_sensitive) = (is_true(reverse), is_true(case_sensitive));
    let paths: Vec<Path> = match &attribute {
        Some(Value::Text { text, .. }) => text.split(',').map(|part| Path::of(&Value::text(part))).collect::<Result<_>>()?,
        _ => vec![Path::optional(attribute)?],
    };
    let mut keyed = Vec::new();
    for item in items_of(&value, &interpreter.meter)? {
        let mut key = Vec::new();
        for path in &paths {
            let part = path.part_of(interpreter, &item)?;
            key.push(if case_sensitive { part } else { without_case(part)? });
        }
        keyed.push((Value::list(key)?, item));
    }
    let meter = &interpreter.meter;
    sort_by(&mut keyed, |(a, _), (b, _)| if reverse { order(b, a, meter) } else { order(a, b, meter) })?;
    Value::list(keyed.into_iter().map(|(_, item)| item).collect())
}

fn unique(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [case_sensitive, attribute] = arguments.bind("unique", 0, ["case_sensitive", "attribute"])?;
    let path = Path::optional(attribute)?;
    let mut seen = Dict::default();
    let mut kept = Vec::new();
    for (key, item) in keyed(interpreter, &value, &path, is_true(case_sensitive))? {
        if seen.get(&key)?.is_none() {
            seen.insert(key, Value::None)?;
            kept.push(item);
        }
    }
    Value::generator(kept)
}

fn extreme(interpreter: &mut Interpreter, value: Value, arguments: Arguments, largest: bool) -> Result<Value> {
    let [case_sensitive, attribute] = arguments.bind("min or max", 0, ["case_sensitive", "attribute"])?;
    let path = Path::optional(attribute)?;
    let mut items = keyed(interpreter, &value, &path, is_true(case_sensitive))?.into_iter();
    let Some(mut best) = items.next() else { return Ok(Value::undefined("the extreme of nothing")) };
    for candidate in items {
        let ordering = order(&candidate.0, &best.0, &interpreter.meter)?;
        if if largest { ordering.is_gt() } else { ordering.is_lt() } {
            best = candidate;
        }
    }
    Ok(best.1)
}

fn sum(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [attribute, start] = arguments.bind("sum", 0, ["attribute", "start"])?;
    let path = Path::optional(attribute)?;
    let mut total = start.unwrap_or(Value::Integer(0));
    if total.as_text().is_some() {
        return Err(failed("sum of strings is not defined: use join"));
    }
    for item in items_of(&value, &interpreter.meter)? {
        let part = path.part_of(interpreter, &item)?;
        total = binary(Operator::Add, &total, &part, &interpreter.meter)?;
    }
    Ok(total)
}

fn group_by(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [attribute, default, case_sensitive] = arguments.bind("groupby", 1, ["attribute", "default", "case_sensitive"])?;
    let mut path = Path::optional(attribute)?;
    path.default = default.filter(|default| !matches!(default, Value::None));
    let mut keyed = keyed(interpreter, &value, &path, is_true(case_sensitive))?;
    let meter = &interpreter.meter;
    sort_by(&mut keyed, |(a, _), (b, _)| order(a, b, meter))?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in keyed {
        match groups.last_mut() {
            Some((last, items)) if equal(last, &key, meter)? => items.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    // The group's name is the first item's, as it was before its case was lost.
    let group = |(_, items): (Value, Vec<Value>)| Value::group(path.part_of(interpreter, &items[0])?, items);
    Value::list(groups.into_iter().map(group).collect::<Result<_>>()?)
}

fn batch(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [count, fill] = arguments.bind("batch", 1, ["linecount", "fill_with"])?;
    let count = size("the size of batch", &count.unwrap_or(Value::None))?;
    let items = items_of(&value, &interpreter.meter)?;
    if count == 0 {
        return Err(failed("batch: the size must not be 0"));
    }
    let mut rows: Vec<Vec<Value>> = items.chunks(count).map(<[Value]>::to_vec).collect();
    if let (Some(row), Some(fill)) = (rows.last_mut(), fill.filter(|fill| !matches!(fill, Value::None))) {
        interpreter.meter.items(count)?;
        row.resize(count, fill);
    }
    Value::generator(rows.into_iter().map(Value::list).collect::<Result<_>>()?)
}

fn slice(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [count, fill] = arguments.bind("slice", 1, ["slices", "fill_with"])?;
    let count = size("the number of slices", &count.unwrap_or(Value::None))?;
    let items = items_of(&value, &interpreter.meter)?;
    interpreter.meter.items(count)?;
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    if count == 0 {
        return Err(failed("slice: the number of slices must not be 0"));
    }
    let (each, longer) = (items.len() / count, items.len() % count);
    let mut rest = items.into_iter();
    let mut slices = Vec::new();
    for index in 0..count {
        let mut part: Vec<Value> = rest.by_ref().take(each + usize::from(index < longer)).collect();
        if index >= longer {
            part.extend(fill.clone());
        }
        slices.push(Value::list(part)?);
    }
    Value::generator(slices)
}

fn items(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("items")?;
    match value {
        Value::Undefined(_) => Value::generator(Vec::new()),
        Value::Dict(dict) => Value::generator(items_of(&Value::View(View::Items, dict), &interpreter.meter)?),
        other => Err(failed(format!("{} has no items with keys", other.type_name()))),
    }
}

fn dict_sort(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [case_sensitive, by, reverse] = arguments.bind("dictsort", 0, ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(dict) = value.defined()? else { return Err(failed(format!("dictsort of {} is not defined", value.type_name()))) };
    let by = by.unwrap_or(Value::text("key"));
    let position = match text("what dictsort sorts by", &by)? {
        "key" => 0,
        "value" => 1,
        other => return Err(failed(format!("dictsort sorts by key or value, not by {other}"))),
    };
    let path = Path::of(&Value::Integer(position))?;
    let reverse = is_true(reverse);
    let mut keyed = keyed(interpreter, &Value::View(View::Items, dict.clone()), &path, is_true(case_sensitive))?;
    let meter = &interpreter.meter;
    sort_by(&mut keyed, |(a, _), (b, _)| if reverse { order(b, a, meter) } else { order(a, b, meter) })?;
    Value::list(keyed.into_iter().map(|(_, item)| item).collect())
}

fn map(interpreter: &mut Interpreter, value: Value, mut arguments: Arguments) -> Result<Value> {
    if !value.is_true() {
        return Value::generator(Vec::new());
    }
    let items = items_of(&value, &interpreter.meter)?;
    let mut mapped = Vec::with_capacity(items.len());
    if arguments.positional.is_empty() {
        let [attribute, default] = arguments.bind("map", 1, ["attribute", "default"])?;
        let mut path = Path::optional(attribute)?;
        path.default = default.filter(|default| !matches!(default, Value::None));
        for item in items {
            mapped.push(path.part_of(interpreter, &item)?);
        }
    } else {
        let name = arguments.positional.remove(0);
        let name = text("the filter of map", &name)?;
        for item in items {
            mapped.push(interpreter.filter(name, item, arguments.clone())?);
        }
    }
    Value::generator(mapped)
}

/// The items that pass a test, or that fail it. `by_attribute`: the test is of the attribute that the first argument names.
fn select(interpreter: &mut Interpreter, value: Value, mut arguments: Arguments, by_attribute: bool, wanted: bool) -> Result<Value> {
    if !value.is_true() {
        return Value::generator(Vec::new());
    }
    let mut path = Path::of(&Value::None)?;
    if by_attribute {
        if arguments.positional.is_empty() {
            return Err(failed("selectattr and rejectattr need the name of an attribute"));
        }
        path = Path::of(&arguments.positional.remove(0))?;
    }
    let test = match arguments.positional.is_empty() {
        true => None,
        false => Some(Name::from(text("the test of a filter", &arguments.positional.remove(0))?)),
    };
    let mut kept = Vec::new();
    for item in items_of(&value, &interpreter.meter)? {
        let part = path.part_of(interpreter, &item)?;
        let passes = match &test {
            Some(test) => interpreter.test(test, &part, arguments.clone())?,
            None => part.is_true(),
        };
        if passes == wanted {
            kept.push(item);
        }
    }
    Value::generator(kept)
}
