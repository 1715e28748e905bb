//! Reads the rows of a Parquet file as lines of JSON, in batches that need the memory of a page for each column.

use std::sync::Arc;

use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::schema::types::{SchemaDescriptor, Type};

use super::guard::{text_of, Source};
use super::text::{obstacle_in, write_json, write_member};

/// Values that are held for each column beside its page.
const BATCH: usize = 64;
const LINES_BYTES: usize = 256 << 10;

pub struct Rows {
    source: Source,
    /// The columns that are read.
    schema: Arc<Type>,
    group: usize,
    rows: Option<ReaderIter>,
    row: i64,
}

impl Rows {
    /// Reads these columns, or all.
    pub fn open(path: &str, columns: Option<&[String]>) -> Result<Rows, String> {
        let source = Source::open(path)?;
        let fields = source.schema().get_fields();
        let chosen: Vec<Arc<Type>> =
            fields.iter().filter(|field| columns.is_none_or(|names| names.iter().any(|name| name == field.name()))).cloned().collect();
        for field in &chosen {
            if let Some(obstacle) = obstacle_in(field) {
                return Err(format!("the column '{}' {obstacle}", field.name()));
            }
        }
        let schema = Type::group_type_builder(source.schema().name()).with_fields(chosen).build().map_err(text_of)?;
        Ok(Rows { source, schema: Arc::new(schema), group: 0, rows: None, row: 0 })
    }

    /// The names of all columns, and the number of rows.
    pub fn facts(&self) -> String {
        let names: Vec<&str> = self.source.schema().get_fields().iter().map(|field| field.name()).collect();
        serde_json::json!({"columns": names, "rows": self.source.row_count()}).to_string()
    }

    /// The next rows, each with a line end; empty at the end.
    pub fn next(&mut self) -> Result<String, String> {
        let mut lines = String::new();
        while lines.len() < LINES_BYTES {
            let Some(rows) = &mut self.rows else {
                if self.group == self.source.metadata.num_row_groups() {
                    break;
                }
                let descriptor = Arc::new(SchemaDescriptor::new(Arc::clone(&self.schema)));
                let rows = TreeBuilder::new().with_batch_size(BATCH).as_iter(descriptor, &self.source.group(self.group));
                self.rows = Some(rows.map_err(|error| self.named(&text_of(error)))?);
                self.group += 1;
                continue;
            };
            match rows.next() {
                None => self.rows = None,
                Some(Err(error)) => return Err(self.named(&text_of(error))),
                Some(Ok(row)) => {
                    self.row += 1;
                    lines.push('{');
                    for (index, ((name, value), kind)) in row.get_column_iter().zip(self.schema.get_fields()).enumerate() {
                        write_member(index, name, &mut lines);
                        write_json(value, kind, &mut lines).map_err(|error| format!("row {}, column '{name}': {error}", self.row))?;
                    }
                    lines.push_str("}\n");
                }
            }
        }
        Ok(lines)
    }

    fn named(&self, error: &str) -> String {
        format!("after row {}: {error}", self.row)
    }
}
