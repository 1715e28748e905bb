//! The columns that a writer adds to a file: their types, and the values of a row group until it is written. Levels are those of the
//! Dremel paper, as Parquet counts them (parquet-format, "Nested Encoding").

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{ColumnPath, Type};
use serde_json::value::RawValue;
use serde_json::Value;

use super::line::{kind_of, Kind};

/// The members of an entity.
pub const ENTITY: [(&str, Physical); 5] = [
    ("entity_group", Physical::BYTE_ARRAY),
    ("score", Physical::DOUBLE),
    ("word", Physical::BYTE_ARRAY),
    ("start", Physical::INT64),
    ("end", Physical::INT64),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    Bool,
    Integer,
    /// Integers of which doubles do not hold all.
    LongInteger,
    Number,
    Text,
    /// A list of 32-bit numbers.
    Vector,
    /// A list of structs.
    Entities,
}

impl ColumnKind {
    pub fn named(name: &str) -> Result<ColumnKind, String> {
        Ok(match name {
            "text" => ColumnKind::Text,
            "boolean" => ColumnKind::Bool,
            "integer" => ColumnKind::Integer,
            "number" => ColumnKind::Number,
            "vector" => ColumnKind::Vector,
            "entities" => ColumnKind::Entities,
            other => return Err(format!("there is no kind of column '{other}'")),
        })
    }

    /// The kind that holds what this one held and a further value; None: no value was seen.
    pub fn widened(seen: Option<ColumnKind>, value: Kind) -> Option<ColumnKind> {
        let new = match value {
            Kind::Null => return seen,
            Kind::Bool => ColumnKind::Bool,
            Kind::Integer => ColumnKind::Integer,
            Kind::LongInteger => ColumnKind::LongInteger,
            Kind::Number => ColumnKind::Number,
            Kind::Text | Kind::Other => ColumnKind::Text,
        };
        Some(match (seen, new) {
            (None, new) => new,
            (Some(seen), new) if seen == new => new,
            (Some(ColumnKind::Integer), ColumnKind::LongInteger) | (Some(ColumnKind::LongInteger), ColumnKind::Integer) => {
                ColumnKind::LongInteger
            }
            (Some(ColumnKind::Integer), ColumnKind::Number) | (Some(ColumnKind::Number), ColumnKind::Integer) => ColumnKind::Number,
            _ => ColumnKind::Text,
        })
    }
}

enum Values {
    Bool(Vec<bool>),
    Integer(Vec<i64>),
    Number(Vec<f64>),
    Float(Vec<f32>),
    Text(Vec<ByteArray>),
}

/// A column of the file's leaves: the values that are not null, and the levels of all.
struct Leaf {
    path: Vec<String>,
    definitions: Vec<i16>,
    /// Empty if no list is around it.
    repetitions: Vec<i16>,
    values: Values,
}

impl Leaf {
    fn new(path: Vec<String>, physical: Physical) -> Leaf {
        let values = match physical {
            Physical::BOOLEAN => Values::Bool(Vec::new()),
            Physical::INT64 => Values::Integer(Vec::new()),
            Physical::DOUBLE => Values::Number(Vec::new()),
            Physical::FLOAT => Values::Float(Vec::new()),
            _ => Values::Text(Vec::new()),
        };
        Leaf { path, definitions: Vec::new(), repetitions: Vec::new(), values }
    }

    /// Writes the values and drops them.
    fn write(&mut self, column: &mut SerializedColumnWriter) -> ParquetResult<()> {
        fn put<T: DataType>(
            values: &mut Vec<T::T>,
            definitions: &[i16],
            repetitions: &[i16],
            column: &mut SerializedColumnWriter,
        ) -> ParquetResult<()> {
            let repetitions = (!repetitions.is_empty()).then_some(repetitions);
            column.typed::<T>().write_batch(values, Some(definitions), repetitions)?;
            values.clear();
            Ok(())
        }
        let (definitions, repetitions) = (&self.definitions, &self.repetitions);
        match &mut self.values {
            Values::Bool(values) => put::<BoolType>(values, definitions, repetitions, column)?,
            Values::Integer(values) => put::<Int64Type>(values, definitions, repetitions, column)?,
            Values::Number(values) => put::<DoubleType>(values, definitions, repetitions, column)?,
            Values::Float(values) => put::<FloatType>(values, definitions, repetitions, column)?,
            Values::Text(values) => put::<ByteArrayType>(values, definitions, repetitions, column)?,
        }
        self.definitions.clear();
        self.repetitions.clear();
        Ok(())
    }
}

pub struct Column {
    pub name: String,
    pub kind: ColumnKind,
    leaves: Vec<Leaf>,
}

fn wrong(name: &str, value: &RawValue) -> String {
    let shown: String = value.get().chars().take(40).collect();
    format!("the column '{name}' cannot hold {shown}")
}

fn primitive(name: &str, physical: Physical, repetition: Repetition) -> Type {
    let logical = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
    let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    builder.build().expect("these are valid types")
}

fn group(name: &str, repetition: Repetition, logical: Option<LogicalType>, fields: Vec<Type>) -> Type {
    let fields = fields.into_iter().map(Arc::new).collect();
    let builder = Type::group_type_builder(name).with_repetition(repetition).with_logical_type(logical).with_fields(fields);
    builder.build().expect("these are valid types")
}

impl Column {
    pub fn new(name: &str, kind: ColumnKind) -> Column {
        let path = |rest: &[&str]| std::iter::once(name).chain(rest.iter().copied()).map(String::from).collect();
        let leaves = match kind {
            ColumnKind::Bool => vec![Leaf::new(path(&[]), Physical::BOOLEAN)],
            ColumnKind::Integer | ColumnKind::LongInteger => vec![Leaf::new(path(&[]), Physical::INT64)],
            ColumnKind::Number => vec![Leaf::new(path(&[]), Physical::DOUBLE)],
            ColumnKind::Text => vec![Leaf::new(path(&[]), Physical::BYTE_ARRAY)],
            ColumnKind::Vector => vec![Leaf::new(path(&["list", "element"]), Physical::FLOAT)],
            ColumnKind::Entities => {
                ENTITY.iter().map(|(member, physical)| Leaf::new(path(&["list", "element", member]), *physical)).collect()
            }
        };
        Column { name: name.to_string(), kind, leaves }
    }

    pub fn schema(&self) -> Type {
        let list = |element| {
            let repeated = group("list", Repetition::REPEATED, None, vec![element]);
            group(&self.name, Repetition::OPTIONAL, Some(LogicalType::List), vec![repeated])
        };
        let flat = |physical| primitive(&self.name, physical, Repetition::OPTIONAL);
        match self.kind {
            ColumnKind::Bool => flat(Physical::BOOLEAN),
            ColumnKind::Integer | ColumnKind::LongInteger => flat(Physical::INT64),
            ColumnKind::Number => flat(Physical::DOUBLE),
            ColumnKind::Text => flat(Physical::BYTE_ARRAY),
            ColumnKind::Vector => list(primitive("element", Physical::FLOAT, Repetition::REQUIRED)),
            ColumnKind::Entities => {
                let members = ENTITY.iter().map(|(name, physical)| primitive(name, *physical, Repetition::REQUIRED)).collect();
                list(group("element", Repetition::REQUIRED, None, members))
            }
        }
    }

    /// Vectors do not repeat, so a dictionary of their numbers only costs time.
    pub fn path_without_dictionary(&self) -> Option<ColumnPath> {
        (self.kind == ColumnKind::Vector).then(|| ColumnPath::new(self.leaves[0].path.clone()))
    }

    /// Adds a row's value; None is null.
    pub fn add(&mut self, value: Option<&RawValue>) -> Result<(), String> {
        let value = value.filter(|value| kind_of(value) != Kind::Null);
        match (value, self.kind) {
            (None, _) => self.add_null(),
            (Some(value), ColumnKind::Vector) => {
                let numbers: Vec<f32> = serde_json::from_str(value.get()).map_err(|_| wrong(&self.name, value))?;
                let leaf = &mut self.leaves[0];
                add_list_levels(leaf, numbers.len());
                if let Values::Float(values) = &mut leaf.values {
                    values.extend(numbers);
                }
            }
            (Some(value), ColumnKind::Entities) => {
                let entities: Vec<Value> = serde_json::from_str(value.get()).map_err(|_| wrong(&self.name, value))?;
                for ((member, _), leaf) in ENTITY.iter().zip(&mut self.leaves) {
                    add_list_levels(leaf, entities.len());
                    for entity in &entities {
                        add_member(&mut leaf.values, &entity[*member]).ok_or_else(|| wrong(&self.name, value))?;
                    }
                }
            }
            (Some(value), _) => {
                let leaf = &mut self.leaves[0];
                leaf.definitions.push(1);
                add_flat(&mut leaf.values, value).ok_or_else(|| wrong(&self.name, value))?;
            }
        }
        Ok(())
    }

    fn add_null(&mut self) {
        let is_list = matches!(self.kind, ColumnKind::Vector | ColumnKind::Entities);
        for leaf in &mut self.leaves {
            leaf.definitions.push(0);
            if is_list {
                leaf.repetitions.push(0);
            }
        }
    }

    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    pub fn write_leaf(&mut self, index: usize, column: &mut SerializedColumnWriter) -> ParquetResult<()> {
        self.leaves[index].write(column)
    }
}

fn add_list_levels(leaf: &mut Leaf, count: usize) {
    if count == 0 {
        leaf.definitions.push(1);
        leaf.repetitions.push(0);
    }
    for index in 0..count {
        leaf.definitions.push(2);
        leaf.repetitions.push(i16::from(index > 0));
    }
}

fn add_member(values: &mut Values, value: &Value) -> Option<()> {
    match values {
        Values::Text(values) => values.push(value.as_str()?.as_bytes().to_vec().into()),
        Values::Number(values) => values.push(value.as_f64()?),
        Values::Integer(values) => values.push(value.as_i64()?),
        Values::Bool(_) | Values::Float(_) => return None,
    }
    Some(())
}

/// Text takes every value: a string as it is, others as JSON.
fn add_flat(values: &mut Values, value: &RawValue) -> Option<()> {
    let text = value.get();
    match values {
        Values::Bool(values) => values.push(text.parse().ok()?),
        Values::Integer(values) => values.push(text.parse().ok()?),
        Values::Number(values) => values.push(text.parse().ok()?),
        Values::Float(_) => return None,
        Values::Text(values) if text.starts_with('"') => values.push(serde_json::from_str::<String>(text).ok()?.into_bytes().into()),
        Values::Text(values) => values.push(text.as_bytes().to_vec().into()),
    }
    Some(())
}
