//! Writes a Parquet file from lines of JSON. The columns of an input that is Parquet are copied from it (copy.rs), row by row, and the
//! lines have only those that are added. Otherwise the lines have all columns, whose types follow from their values.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde::Deserialize;

use super::arrow_schema;
use super::columns::{Column, ColumnKind};
use super::copy::{copy, stretches_of};
use super::guard::{text_of, Source};
use super::line::{kind_of, Kind, Line};

/// A row group is written when its lines have so many bytes.
const GROUP_BYTES: usize = 64 << 20;
const GROUP_ROWS: usize = 1 << 20;

/// What a file is made of.
#[derive(Deserialize)]
pub struct Description {
    /// The file whose columns are copied.
    input: Option<String>,
    /// Names of columns of the lines, first those that are in no line. More may follow.
    columns: Vec<String>,
    added: Vec<Added>,
}

#[derive(Deserialize)]
struct Added {
    name: String,
    kind: String,
}

/// Call order: observe() for each line in any order, add() for each in ascending order of rows, finish().
pub struct Writer {
    path: String,
    input: Option<Input>,
    added: Vec<(String, ColumnKind)>,
    /// Columns of the lines, and what was seen in them.
    seen: Vec<(String, Option<ColumnKind>)>,
    places: HashMap<String, usize>,
    open: Option<Open>,
}

/// The input, and where its copy is.
struct Input {
    source: Source,
    group: usize,
    /// The first row of the group, and of those that were not copied.
    group_begin: i64,
    next: i64,
    readers: Vec<ColumnReader>,
}

struct Open {
    file: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Column>,
    places: HashMap<String, usize>,
    rows: Vec<i64>,
    bytes: usize,
}

impl Writer {
    pub fn new(path: &str, description: &str) -> Result<Writer, String> {
        let description: Description = serde_json::from_str(description).map_err(|error| format!("the description is wrong: {error}"))?;
        let mut added = Vec::new();
        for column in description.added {
            added.push((column.name, ColumnKind::named(&column.kind)?));
        }
        let source = description.input.map(|input| Source::open(&input)).transpose()?;
        let mut writer = Writer {
            path: path.to_string(),
            input: source.map(|source| Input { source, group: 0, group_begin: 0, next: 0, readers: Vec::new() }),
            added,
            seen: Vec::new(),
            places: HashMap::new(),
            open: None,
        };
        for name in description.columns {
            writer.place_of(&name);
        }
        Ok(writer)
    }

    fn place_of(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.seen.push((name.to_string(), None));
        self.places.insert(name.to_string(), self.seen.len() - 1);
        self.seen.len() - 1
    }

    /// Learns the columns of a line and the types of their values.
    pub fn observe(&mut self, line: &str) -> Result<(), String> {
        for (name, value) in Line::parse(line)?.0 {
            if let Some((_, kind)) = self.added.iter_mut().find(|(added, _)| *added == name) {
                let fits = matches!(kind_of(value), Kind::Null | Kind::Integer | Kind::LongInteger);
                if *kind == ColumnKind::Integer && !fits {
                    *kind = ColumnKind::Number; // an integer of more digits than 64 bits hold
                }
            } else {
                let place = self.place_of(&name);
                self.seen[place].1 = ColumnKind::widened(self.seen[place].1, kind_of(value));
            }
        }
        Ok(())
    }

    /// Adds a row. `row` is its number in the input, from 0.
    pub fn add(&mut self, row: i64, line: &str) -> Result<(), String> {
        if self.is_full(row) {
            self.write_group()?;
        }
        if let Some(input) = &mut self.input {
            input.seek(row)?;
        }
        let open = self.opened()?;
        let members = Line::parse(line)?.0;
        let mut values = vec![None; open.columns.len()];
        for (name, value) in members {
            let place = open.places.get(&name).ok_or_else(|| format!("the column '{name}' came without notice"))?;
            values[*place] = Some(value);
        }
        for (column, value) in open.columns.iter_mut().zip(values) {
            column.add(value)?;
        }
        open.rows.push(row);
        open.bytes += line.len();
        Ok(())
    }

    fn is_full(&self, row: i64) -> bool {
        let Some(open) = &self.open else { return false };
        let is_large = open.bytes >= GROUP_BYTES || open.rows.len() >= GROUP_ROWS;
        !open.rows.is_empty() && (is_large || self.input.as_ref().is_some_and(|input| row >= input.group_end()))
    }

    /// Creates the file once the columns are known.
    fn opened(&mut self) -> Result<&mut Open, String> {
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        Ok(self.open.as_mut().expect("it was just opened"))
    }

    fn create(&self) -> Result<Open, String> {
        // A column without a value has the type of text.
        let seen = self.seen.iter().map(|(name, kind)| Column::new(name, kind.unwrap_or(ColumnKind::Text)));
        let columns: Vec<Column> = seen.chain(self.added.iter().map(|(name, kind)| Column::new(name, *kind))).collect();
        let mut fields: Vec<Arc<Type>> = Vec::new();
        let mut metadata = Vec::new();
        if let Some(input) = &self.input {
            fields.extend(input.source.schema().get_fields().iter().cloned());
            let all = input.source.metadata.file_metadata().key_value_metadata().cloned().unwrap_or_default();
            let field_count = fields.len();
            metadata.extend(all.into_iter().filter_map(|entry| {
                if entry.key != arrow_schema::KEY {
                    return Some(entry);
                }
                let value = arrow_schema::with_columns(entry.value.as_deref()?, field_count, &columns)?;
                Some(KeyValue { value: Some(value), ..entry })
            }));
        }
        fields.extend(columns.iter().map(|column| Arc::new(column.schema())));
        let schema = Type::group_type_builder("schema").with_fields(fields).build().map_err(text_of)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by("lorry".to_string())
            .set_key_value_metadata((!metadata.is_empty()).then_some(metadata));
        for path in columns.iter().filter_map(Column::path_without_dictionary) {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
        let file = File::create(&self.path).map_err(|error| format!("the file cannot be written: {error}"))?;
        let file = SerializedFileWriter::new(BufWriter::new(file), Arc::new(schema), Arc::new(properties.build())).map_err(text_of)?;
        let places = columns.iter().enumerate().map(|(place, column)| (column.name.clone(), place)).collect();
        Ok(Open { file, columns, places, rows: Vec::new(), bytes: 0 })
    }

    fn write_group(&mut self) -> Result<(), String> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.rows.is_empty() {
            return Ok(());
        }
        let mut group = open.file.next_row_group().map_err(text_of)?;
        let missing = || "a row group takes all columns".to_string();
        if let Some(input) = &mut self.input {
            let stretches = stretches_of(&open.rows, input.next);
            for reader in &mut input.readers {
                let mut column = group.next_column().map_err(text_of)?.ok_or_else(missing)?;
                copy(reader, &stretches, &mut column).map_err(text_of)?;
                column.close().map_err(text_of)?;
            }
            input.next = open.rows[open.rows.len() - 1] + 1;
        }
        for column in &mut open.columns {
            for leaf in 0..column.leaf_count() {
                let mut out = group.next_column().map_err(text_of)?.ok_or_else(missing)?;
                column.write_leaf(leaf, &mut out).map_err(text_of)?;
                out.close().map_err(text_of)?;
            }
        }
        group.close().map_err(text_of)?;
        open.rows.clear();
        open.bytes = 0;
        Ok(())
    }

    /// Completes the file and flushes it to disk.
    pub fn finish(&mut self) -> Result<(), String> {
        self.opened()?;
        self.write_group()?;
        let open = self.open.take().expect("it is open");
        let failed = |error: &dyn std::fmt::Display| format!("the file cannot be written: {error}");
        let file = open.file.into_inner().map_err(text_of)?.into_inner().map_err(|error| failed(&error))?;
        file.sync_all().map_err(|error| failed(&error))
    }
}

impl Input {
    fn group_end(&self) -> i64 {
        if self.readers.is_empty() {
            return self.group_begin;
        }
        self.group_begin + self.source.metadata.row_group(self.group).num_rows()
    }

    /// Opens the columns of the group that has the row.
    fn seek(&mut self, row: i64) -> Result<(), String> {
        if row < self.group_end() {
            return Ok(());
        }
        let groups = self.source.metadata.row_groups();
        let mut begin = 0;
        for (index, group) in groups.iter().enumerate() {
            if row < begin + group.num_rows() {
                let reader = self.source.group(index);
                let readers = (0..reader.num_columns()).map(|column| reader.get_column_reader(column));
                self.readers = readers.collect::<Result<_, _>>().map_err(text_of)?;
                (self.group, self.group_begin, self.next) = (index, begin, begin);
                return Ok(());
            }
            begin += group.num_rows();
        }
        Err(format!("the input has no row {}: it was changed", row + 1))
    }
}
