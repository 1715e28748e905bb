//! Jinja's filters for lists and other things with items. Part of filters.rs.

use super::arguments::{is_true, size, text, Arguments};
use super::ast::{Name, Operator};
use super::dict::Dict;
use super::error::{failed, Result};
use super::filters::{without_case, Filter};
use super::generators::{items_of, Cursor, Generator};
use super::interpreter::Interpreter;
use super::lookup;
use super::operators::{binary, equal, order};
use super::sequences::sorted;
use super::text::str_of;
use super::value::{depth_of, Items, Value, View};
use super::writer::Writer;

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
        Value::list(items_of(&value, interpreter)?)
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
    keys: Items,
    default: Option<Value>,
}

/// A part of a path: an index if it is all digits, otherwise a name.
pub fn path_key(part: &str, interpreter: &Interpreter) -> Result<Value> {
    match part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() {
        true => part.parse().map(Value::Integer).map_err(|_| failed("the index is too large")),
        // Python would take them for an index too.
        false if part.chars().any(|character| !character.is_ascii() && character.is_numeric()) => {
            Err(failed("an attribute with digits other than 0 to 9 is not supported"))
        }
        false => Value::text(part, interpreter.meter),
    }
}

impl Path {
    fn of(attribute: Value, default: Option<Value>, interpreter: &Interpreter) -> Result<Self> {
        let keys = match &attribute {
            Value::None => Items::default(),
            Value::Text { text, .. } => Items::collect(text.split('.').map(|part| path_key(part, interpreter)), interpreter.meter)?,
            _ => Items::copy([attribute], 1, interpreter.meter)?,
        };
        Ok(Path { keys, default: default.filter(|default| !matches!(default, Value::None)) })
    }

    fn optional(attribute: Option<Value>, interpreter: &Interpreter) -> Result<Self> {
        Path::of(attribute.unwrap_or(Value::None), None, interpreter)
    }

    fn depth(&self) -> u32 {
        depth_of(self.keys.iter().chain(&self.default))
    }

    fn part_of(&self, interpreter: &mut Interpreter, item: &Value) -> Result<Value> {
        let mut part = item.clone();
        for key in self.keys.iter() {
            interpreter.meter.steps(1)?;
            part = lookup::item(interpreter, &part, key)?;
            if let (Value::Undefined(_), Some(default)) = (&part, &self.default) {
                part = default.clone();
            }
        }
        Ok(part)
    }

    /// What filters compare items by.
    fn key_of(&self, interpreter: &mut Interpreter, item: &Value, case_sensitive: bool) -> Result<Value> {
        let key = self.part_of(interpreter, item)?;
        if case_sensitive {
            Ok(key)
        } else {
            without_case(key, interpreter.meter)
        }
    }
}

/// An item with the value that it is compared by.
struct Keyed {
    key: Value,
    item: Value,
}

fn keyed(
    interpreter: &mut Interpreter,
    value: &Value,
    mut key_of: impl FnMut(&mut Interpreter, &Value) -> Result<Value>,
) -> Result<Vec<Keyed>> {
    let mut keyed = Vec::new();
    for item in items_of(value, interpreter)? {
        interpreter.meter.bytes(size_of::<Keyed>())?;
        keyed.push(Keyed { key: key_of(interpreter, &item)?, item });
    }
    Ok(keyed)
}

fn sorted_items(interpreter: &Interpreter, keyed: Vec<Keyed>, reverse: bool) -> Result<Vec<Keyed>> {
    let meter = interpreter.meter;
    sorted(keyed, &|a, b| if reverse { order(&b.key, &a.key, meter) } else { order(&a.key, &b.key, meter) })
}

fn list_of(interpreter: &Interpreter, keyed: Vec<Keyed>) -> Result<Value> {
    let count = keyed.len();
    Value::list(Items::copy(keyed.into_iter().map(|keyed| keyed.item), count, interpreter.meter)?)
}

fn first(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("first")?;
    let found = Cursor::of(&value)?.next(interpreter)?;
    Ok(found.unwrap_or_else(|| Value::undefined("the first item of nothing")))
}

fn last(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("last")?;
    let found = match &value {
        Value::Iterator(_) => return Err(failed("last of a generator is not defined: make a list of it")),
        Value::List(sequence) | Value::Tuple(sequence) => sequence.items.last().cloned(),
        Value::Text { text, safe } => match text.chars().next_back() {
            Some(character) => Some(Value::character(character, interpreter.meter)?.marked(*safe)),
            None => None,
        },
        _ => items_of(&value, interpreter)?.pop(),
    };
    Ok(found.unwrap_or_else(|| Value::undefined("the last item of nothing")))
}

fn join(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [separator, attribute] = arguments.bind("join", 0, ["d", "attribute"])?;
    let path = Path::optional(attribute, interpreter)?;
    let meter = interpreter.meter;
    let separator = separator.map_or(Ok(Name::from("")), |separator| str_of(&separator, meter))?;
    let mut out = Writer::new(meter);
    let mut cursor = Cursor::of(&value)?;
    let mut is_first = true;
    while let Some(item) = cursor.next(interpreter)? {
        if !std::mem::take(&mut is_first) {
            out.push(&separator)?;
        }
        out.push(&str_of(&path.part_of(interpreter, &item)?, meter)?)?;
    }
    Ok(out.value())
}

fn reverse(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("reverse")?;
    if let Value::Text { text, safe } = &value {
        let mut out = Writer::new(interpreter.meter);
        for character in text.chars().rev() {
            out.push_char(character)?;
        }
        return Ok(out.value().marked(*safe));
    }
    let mut items = items_of(&value, interpreter)?;
    items.reverse();
    match &value {
        Value::Iterator(_) => Value::list(items),
        _ => Generator::of_items(items, interpreter.meter),
    }
}

fn sort(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [reverse, case_sensitive, attribute] = arguments.bind("sort", 0, ["reverse", "case_sensitive", "attribute"])?;
    let case_sensitive = is_true(case_sensitive);
    let mut paths = Vec::new();
    match &attribute {
        Some(Value::Text { text, .. }) => {
            for part in text.split(',') {
                paths.push(Path::of(Value::text(part, interpreter.meter)?, None, interpreter)?);
            }
        }
        _ => paths.push(Path::optional(attribute, interpreter)?),
    }
    let keyed = keyed(interpreter, &value, |interpreter, item| {
        let meter = interpreter.meter;
        Value::list(Items::collect(paths.iter().map(|path| path.key_of(interpreter, item, case_sensitive)), meter)?)
    })?;
    let sorted = sorted_items(interpreter, keyed, is_true(reverse))?;
    list_of(interpreter, sorted)
}

fn unique(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [case_sensitive, attribute] = arguments.bind("unique", 0, ["case_sensitive", "attribute"])?;
    let path = Path::optional(attribute, interpreter)?;
    let case_sensitive = is_true(case_sensitive);
    let mut seen = Dict::default();
    generator(interpreter, &value, path.depth(), move |interpreter, cursor| {
        while let Some(item) = cursor.next(interpreter)? {
            let key = path.key_of(interpreter, &item, case_sensitive)?;
            if seen.get(&key, interpreter.meter)?.is_none() {
                seen.insert(key, Value::None, interpreter.meter)?;
                return Ok(Some(item));
            }
        }
        Ok(None)
    })
}

/// A generator that takes the items of `value` when it is asked for its own. `held`: the levels of the other values within `next`.
fn generator(
    interpreter: &Interpreter,
    value: &Value,
    held: u32,
    mut next: impl FnMut(&mut Interpreter, &mut Cursor) -> Result<Option<Value>> + 'static,
) -> Result<Value> {
    let mut cursor = Cursor::of(value)?;
    Generator::new(value.depth().max(held), interpreter.meter, move |interpreter| next(interpreter, &mut cursor)).map(Value::Iterator)
}

fn nothing(interpreter: &Interpreter) -> Result<Value> {
    Generator::of_items(Items::default(), interpreter.meter)
}

fn extreme(interpreter: &mut Interpreter, value: Value, arguments: Arguments, largest: bool) -> Result<Value> {
    let [case_sensitive, attribute] = arguments.bind("min or max", 0, ["case_sensitive", "attribute"])?;
    let path = Path::optional(attribute, interpreter)?;
    let case_sensitive = is_true(case_sensitive);
    let mut items = keyed(interpreter, &value, |interpreter, item| path.key_of(interpreter, item, case_sensitive))?.into_iter();
    let Some(mut best) = items.next() else { return Ok(Value::undefined("the extreme of nothing")) };
    for candidate in items {
        let ordering = order(&candidate.key, &best.key, interpreter.meter)?;
        if if largest { ordering.is_gt() } else { ordering.is_lt() } {
            best = candidate;
        }
    }
    Ok(best.item)
}

fn sum(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [attribute, start] = arguments.bind("sum", 0, ["attribute", "start"])?;
    let path = Path::optional(attribute, interpreter)?;
    let mut total = start.unwrap_or(Value::Integer(0));
    if total.as_text().is_some() {
        return Err(failed("sum of strings is not defined: use join"));
    }
    let mut cursor = Cursor::of(&value)?;
    while let Some(item) = cursor.next(interpreter)? {
        let part = path.part_of(interpreter, &item)?;
        total = binary(Operator::Add, &total, &part, interpreter.meter)?;
    }
    Ok(total)
}

fn group_by(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [attribute, default, case_sensitive] = arguments.bind("groupby", 1, ["attribute", "default", "case_sensitive"])?;
    let path = Path::of(attribute.unwrap_or(Value::None), default, interpreter)?;
    let case_sensitive = is_true(case_sensitive);
    let meter = interpreter.meter;
    let keyed = keyed(interpreter, &value, |interpreter, item| path.key_of(interpreter, item, case_sensitive))?;
    let mut groups: Vec<(Value, Items)> = Vec::new();
    for Keyed { key, item } in sorted_items(interpreter, keyed, false)? {
        match groups.last_mut() {
            Some((last, items)) if equal(last, &key, meter)? => items.push(item, meter)?,
            _ => groups.push((key, Items::copy([item], 1, meter)?)),
        }
    }
    // The group's name is the first item's, as it was before its case was lost.
    let groups = groups.into_iter().map(|(_, items)| Value::group(path.part_of(interpreter, &items[0])?, items, meter));
    Value::list(Items::collect(groups, meter)?)
}

fn batch(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [count, fill] = arguments.bind("batch", 1, ["linecount", "fill_with"])?;
    let count = size("the size of batch", &count.unwrap_or(Value::None))?;
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    if count == 0 {
        return Err(failed("batch: the size must not be 0"));
    }
    let mut pending: Option<Value> = None;
    let held = depth_of(&fill);
    generator(interpreter, &value, held, move |interpreter, cursor| {
        let meter = interpreter.meter;
        let mut row = Items::collect(pending.take().map(Ok), meter)?;
        while pending.is_none() {
            match (cursor.next(interpreter)?, &fill) {
                (Some(item), _) if row.len() == count => pending = Some(item),
                (Some(item), _) => row.push(item, meter)?,
                (None, _) if row.is_empty() => return Ok(None),
                (None, Some(fill)) if row.len() < count => row.push(fill.clone(), meter)?,
                (None, _) => break,
            }
        }
        Value::list(row).map(Some)
    })
}

fn slice(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [count, fill] = arguments.bind("slice", 1, ["slices", "fill_with"])?;
    let count = size("the number of slices", &count.unwrap_or(Value::None))?;
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    if count == 0 {
        return Err(failed("slice: the number of slices must not be 0"));
    }
    let mut index = 0;
    let mut items = None;
    let held = depth_of(&fill);
    generator(interpreter, &value, held, move |interpreter, cursor| {
        let meter = interpreter.meter;
        if items.is_none() {
            let all = super::generators::rest_of(cursor, interpreter)?;
            items = Some((all.len(), all.into_iter()));
        }
        let Some((length, rest)) = items.as_mut().filter(|_| index < count) else { return Ok(None) };
        let is_longer = index < *length % count;
        let mut part = Items::collect(rest.by_ref().take(*length / count + usize::from(is_longer)).map(Ok), meter)?;
        if let (false, Some(fill)) = (is_longer, &fill) {
            part.push(fill.clone(), meter)?;
        }
        index += 1;
        Value::list(part).map(Some)
    })
}

fn items(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    arguments.none("items")?;
    match value {
        Value::Undefined(_) => nothing(interpreter),
        Value::Dict(dict) => generator(interpreter, &Value::View(View::Items, dict), 0, |interpreter, cursor| cursor.next(interpreter)),
        other => Err(failed(format!("{} has no items with keys", other.type_name()))),
    }
}

fn dict_sort(interpreter: &mut Interpreter, value: Value, arguments: Arguments) -> Result<Value> {
    let [case_sensitive, by, reverse] = arguments.bind("dictsort", 0, ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(dict) = value.defined()? else { return Err(failed(format!("dictsort of {} is not defined", value.type_name()))) };
    let position = match by.as_ref().map_or(Ok("key"), |by| text("what dictsort sorts by", by))? {
        "key" => 0,
        "value" => 1,
        other => return Err(failed(format!("dictsort sorts by key or value, not by {other}"))),
    };
    let path = Path::of(Value::Integer(position), None, interpreter)?;
    let case_sensitive = is_true(case_sensitive);
    let view = Value::View(View::Items, dict.clone());
    let keyed = keyed(interpreter, &view, |interpreter, item| path.key_of(interpreter, item, case_sensitive))?;
    let sorted = sorted_items(interpreter, keyed, is_true(reverse))?;
    list_of(interpreter, sorted)
}

fn map(interpreter: &mut Interpreter, value: Value, mut arguments: Arguments) -> Result<Value> {
    if !value.is_true() {
        return nothing(interpreter);
    }
    let Some(name) = arguments.take_first() else {
        let [attribute, default] = arguments.bind("map", 1, ["attribute", "default"])?;
        let path = Path::of(attribute.unwrap_or(Value::None), default, interpreter)?;
        return generator(interpreter, &value, path.depth(), move |interpreter, cursor| match cursor.next(interpreter)? {
            Some(item) => path.part_of(interpreter, &item).map(Some),
            None => Ok(None),
        });
    };
    let name = Name::from(text("the filter of map", &name)?);
    generator(interpreter, &value, arguments.depth(), move |interpreter, cursor| match cursor.next(interpreter)? {
        Some(item) => interpreter.filter(&name, item, arguments.copy(interpreter.meter)?).map(Some),
        None => Ok(None),
    })
}

/// The items that pass a test, or that fail it. `by_attribute`: the test is of the attribute that the first argument names.
fn select(interpreter: &mut Interpreter, value: Value, mut arguments: Arguments, by_attribute: bool, wanted: bool) -> Result<Value> {
    if !value.is_true() {
        return nothing(interpreter);
    }
    let mut path = Path::optional(None, interpreter)?;
    if by_attribute {
        let attribute = arguments.take_first().ok_or_else(|| failed("selectattr and rejectattr need the name of an attribute"))?;
        path = Path::of(attribute, None, interpreter)?;
    }
    let test = arguments.take_first().map(|test| text("the test of a filter", &test).map(Name::from)).transpose()?;
    generator(interpreter, &value, arguments.depth().max(path.depth()), move |interpreter, cursor| {
        while let Some(item) = cursor.next(interpreter)? {
            let part = path.part_of(interpreter, &item)?;
            let passes = match &test {
                Some(test) => interpreter.test(test, &part, arguments.copy(interpreter.meter)?)?,
                None => part.is_true(),
            };
            if passes == wanted {
                return Ok(Some(item));
            }
        }
        Ok(None)
    })
}
