//! The columns of a file in Arrow's words, which writers note in its metadata: durations, time zones and categories are only there. Adds
//! the columns of writer.rs, because readers take the note for the whole file. github.com/apache/arrow, format/Message.fbs and Schema.fbs;
//! flatbuffers.dev, "FlatBuffer Internals".

use parquet::basic::Type as Physical;

use super::columns::{Column, ColumnKind, ENTITY};

/// Of the metadata's entry.
pub const KEY: &str = "ARROW:schema";

const CONTINUATION: [u8; 4] = [0xFF; 4];
const SCHEMA_HEADER: u8 = 1;

/// Enumerators of the union Type.
const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const UTF8: u8 = 5;
const BOOL: u8 = 6;
const LIST: u8 = 12;
const STRUCT: u8 = 13;
const SINGLE: u16 = 1;
const DOUBLE: u16 = 2;

/// The note of a file with so many columns, with the added ones at its end. None: it is not such a note.
pub fn with_columns(note: &str, columns: usize, added: &[Column]) -> Option<String> {
    let message = from_base64(note)?;
    let old = Old(message.strip_prefix(&CONTINUATION).unwrap_or(&message).get(4..)?);
    let head = old.follow(0)?;
    let schema = old.follow(old.field(head, 2)?)?;
    if old.0.get(old.field(head, 1)?) != Some(&SCHEMA_HEADER) {
        return None;
    }
    let fields = old.vector(old.field(schema, 1)?)?;
    if fields.len() != columns {
        return None;
    }
    let short = |table, id| old.field(table, id).map_or(Some(0), |place| old.u16(place));
    let kept = |id| old.field(schema, id).and_then(|place| old.follow(place)).map(|place| (id, Value::Old(place)));
    let all = fields.into_iter().map(Value::Old).chain(added.iter().map(|column| field_of(&column.name, column.kind)));
    let mut members = vec![(0, Value::Short(short(schema, 0)?)), (1, Value::List(all.collect()))];
    members.extend(kept(2)); // the file's other notes
    members.extend(kept(3));
    let root = [(0, Value::Short(short(head, 0)?)), (1, Value::Byte(SCHEMA_HEADER)), (2, Value::Table(members)), (3, Value::Long(0))];
    let new = Writer::written(&Value::Table(root.into()), old.0);
    let mut message = CONTINUATION.to_vec();
    message.extend((new.len() as u32).to_le_bytes());
    message.extend(new);
    Some(to_base64(&message))
}

/// A table of the schema's type Field.
fn field_of(name: &str, kind: ColumnKind) -> Value {
    let leaf = |kind| typed(name, true, kind, Vec::new(), Vec::new());
    match kind {
        ColumnKind::Bool => leaf(BOOL),
        ColumnKind::Integer | ColumnKind::LongInteger => number(name, true, Physical::INT64),
        ColumnKind::Number => number(name, true, Physical::DOUBLE),
        ColumnKind::Text => leaf(UTF8),
        ColumnKind::Vector => typed(name, true, LIST, Vec::new(), vec![number("element", false, Physical::FLOAT)]),
        ColumnKind::Entities => {
            let members = ENTITY.iter().map(|(member, physical)| number(member, false, *physical)).collect();
            typed(name, true, LIST, Vec::new(), vec![typed("element", false, STRUCT, Vec::new(), members)])
        }
    }
}

fn number(name: &str, nullable: bool, physical: Physical) -> Value {
    let (kind, members) = match physical {
        Physical::INT64 => (INT, vec![(0, Value::Int(64)), (1, Value::Byte(1))]),
        Physical::DOUBLE => (FLOATING_POINT, vec![(0, Value::Short(DOUBLE))]),
        Physical::FLOAT => (FLOATING_POINT, vec![(0, Value::Short(SINGLE))]),
        _ => (UTF8, Vec::new()),
    };
    typed(name, nullable, kind, members, Vec::new())
}

fn typed(name: &str, nullable: bool, kind: u8, members: Vec<(usize, Value)>, children: Vec<Value>) -> Value {
    Value::Table(vec![
        (0, Value::Text(name.to_string())),
        (1, Value::Byte(u8::from(nullable))),
        (2, Value::Byte(kind)),
        (3, Value::Table(members)),
        (5, Value::List(children)),
    ])
}

/// A FlatBuffer that may be damaged.
struct Old<'a>(&'a [u8]);

impl Old<'_> {
    fn u16(&self, place: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(place..place.checked_add(2)?)?.try_into().ok()?))
    }

    fn u32(&self, place: usize) -> Option<usize> {
        Some(u32::from_le_bytes(self.0.get(place..place.checked_add(4)?)?.try_into().ok()?) as usize)
    }

    /// Where the offset at that place leads.
    fn follow(&self, place: usize) -> Option<usize> {
        place.checked_add(self.u32(place)?).filter(|target| *target < self.0.len())
    }

    /// The place of a table's member; None: it has its default.
    fn field(&self, table: usize, id: usize) -> Option<usize> {
        let back = self.u32(table)? as u32 as i32;
        let layout = usize::try_from(i64::try_from(table).ok()? - i64::from(back)).ok()?;
        let slot = 4 + 2 * id;
        if slot + 2 > usize::from(self.u16(layout)?) {
            return None;
        }
        let offset = usize::from(self.u16(layout + slot)?);
        (offset > 0).then_some(table + offset)
    }

    /// The tables of a vector.
    fn vector(&self, place: usize) -> Option<Vec<usize>> {
        let begin = self.follow(place)?;
        let count = self.u32(begin)?;
        if count > self.0.len() / 4 {
            return None;
        }
        (1..=count).map(|index| self.follow(begin + 4 * index)).collect()
    }
}

enum Value {
    Byte(u8),
    Short(u16),
    Int(u32),
    Long(u64),
    Text(String),
    List(Vec<Value>),
    /// Members by their ids.
    Table(Vec<(usize, Value)>),
    /// A place in the old buffer.
    Old(usize),
}

/// Writes values before the old buffer, which they refer to: offsets lead forwards only.
struct Writer {
    bytes: Vec<u8>,
    /// Places of offsets, and where they lead in the old buffer.
    into_old: Vec<(usize, usize)>,
}

impl Writer {
    const ALIGNMENT: usize = 8;

    fn written(root: &Value, old: &[u8]) -> Vec<u8> {
        let mut writer = Writer { bytes: vec![0; 4], into_old: Vec::new() };
        writer.refer(0, root);
        writer.align();
        let begin = writer.bytes.len();
        for (place, target) in std::mem::take(&mut writer.into_old) {
            writer.put(place, &((begin + target - place) as u32).to_le_bytes());
        }
        writer.bytes.extend(old);
        writer.align();
        writer.bytes
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(Self::ALIGNMENT), 0);
    }

    fn put(&mut self, place: usize, bytes: &[u8]) {
        self.bytes[place..place + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a value, and the offset to it at that place.
    fn refer(&mut self, place: usize, value: &Value) {
        if let Value::Old(target) = value {
            self.into_old.push((place, *target));
            return;
        }
        self.align();
        match value {
            Value::Text(text) => {
                self.point(place);
                self.bytes.extend((text.len() as u32).to_le_bytes());
                self.bytes.extend(text.as_bytes());
                self.bytes.push(0);
            }
            Value::List(values) => {
                self.point(place);
                let begin = self.bytes.len() + 4;
                self.bytes.extend((values.len() as u32).to_le_bytes());
                self.bytes.resize(begin + 4 * values.len(), 0);
                for (index, value) in values.iter().enumerate() {
                    self.refer(begin + 4 * index, value);
                }
            }
            Value::Table(members) => self.table(place, members),
            Value::Byte(_) | Value::Short(_) | Value::Int(_) | Value::Long(_) | Value::Old(_) => unreachable!("it stands in its table"),
        }
    }

    /// What is written next is what the offset leads to.
    fn point(&mut self, place: usize) {
        let offset = (self.bytes.len() - place) as u32;
        self.put(place, &offset.to_le_bytes());
    }

    /// The layout, then the table, where each member takes eight bytes.
    fn table(&mut self, place: usize, members: &[(usize, Value)]) {
        let layout = self.bytes.len();
        let ids = members.iter().map(|(id, _)| id + 1).max().unwrap_or(0);
        let size = 8 * (members.len() + 1);
        let mut slots = vec![0_u16; ids + 2];
        slots[0] = (2 * slots.len()) as u16;
        slots[1] = size as u16;
        for (index, (id, _)) in members.iter().enumerate() {
            slots[id + 2] = (8 * (index + 1)) as u16;
        }
        self.bytes.extend(slots.iter().flat_map(|slot| slot.to_le_bytes()));
        self.align();
        self.point(place);
        let begin = self.bytes.len();
        self.bytes.resize(begin + size, 0);
        self.put(begin, &((begin - layout) as u32).to_le_bytes());
        for (index, (_, value)) in members.iter().enumerate() {
            let place = begin + 8 * (index + 1);
            match value {
                Value::Byte(value) => self.put(place, &[*value]),
                Value::Short(value) => self.put(place, &value.to_le_bytes()),
                Value::Int(value) => self.put(place, &value.to_le_bytes()),
                Value::Long(value) => self.put(place, &value.to_le_bytes()),
                other => self.refer(place, other),
            }
        }
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |number, index| number << 8 | u32::from(three.get(index).copied().unwrap_or(0)));
        for digit in 0..4 {
            let shown = digit <= three.len();
            text.push(if shown { char::from(DIGITS[(number >> (18 - 6 * digit)) as usize % 64]) } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut number = 0_u32;
        for digit in four {
            number = number << 6 | DIGITS.iter().position(|known| known == digit)? as u32;
        }
        number <<= 6 * (4 - four.len()) + 8;
        bytes.extend(&number.to_be_bytes()[..four.len() * 6 / 8]);
    }
    Some(bytes)
}
