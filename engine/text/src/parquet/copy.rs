//! Copies chosen rows of a column from one Parquet file to another, value by value: every type, also those that text.rs does not read.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96Type,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::writer::SerializedColumnWriter;

/// Rows that are copied at a time.
const ROWS: usize = 1024;

/// Passes over `skip` rows, then takes `take`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub skip: usize,
    pub take: usize,
}

/// Stretches that take these rows, in ascending order, from a row group whose next row is `next`.
pub fn stretches_of(rows: &[i64], mut next: i64) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for row in rows {
        match stretches.last_mut() {
            Some(last) if *row == next => last.take += 1,
            _ => stretches.push(Stretch { skip: (*row - next) as usize, take: 1 }),
        }
        next = *row + 1;
    }
    stretches
}

/// Copies a leaf.
pub fn copy(from: &mut ColumnReader, stretches: &[Stretch], to: &mut SerializedColumnWriter) -> ParquetResult<()> {
    match from {
        ColumnReader::BoolColumnReader(from) => copy_typed::<BoolType>(from, stretches, to),
        ColumnReader::Int32ColumnReader(from) => copy_typed::<Int32Type>(from, stretches, to),
        ColumnReader::Int64ColumnReader(from) => copy_typed::<Int64Type>(from, stretches, to),
        ColumnReader::Int96ColumnReader(from) => copy_typed::<Int96Type>(from, stretches, to),
        ColumnReader::FloatColumnReader(from) => copy_typed::<FloatType>(from, stretches, to),
        ColumnReader::DoubleColumnReader(from) => copy_typed::<DoubleType>(from, stretches, to),
        ColumnReader::ByteArrayColumnReader(from) => copy_typed::<ByteArrayType>(from, stretches, to),
        ColumnReader::FixedLenByteArrayColumnReader(from) => copy_typed::<FixedLenByteArrayType>(from, stretches, to),
    }
}

fn copy_typed<T: DataType>(from: &mut ColumnReaderImpl<T>, stretches: &[Stretch], to: &mut SerializedColumnWriter) -> ParquetResult<()> {
    let ends_early = || ParquetError::General("a column has fewer rows than its row group".to_string());
    let to = to.typed::<T>();
    let descriptor = to.get_descriptor().clone();
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    for stretch in stretches {
        if from.skip_records(stretch.skip)? != stretch.skip {
            return Err(ends_early());
        }
        let mut left = stretch.take;
        while left > 0 {
            values.clear();
            definitions.clear();
            repetitions.clear();
            let (rows, _, _) = from.read_records(left.min(ROWS), Some(&mut definitions), Some(&mut repetitions), &mut values)?;
            if rows == 0 {
                return Err(ends_early());
            }
            left -= rows;
            let definitions = (descriptor.max_def_level() > 0).then_some(&definitions[..]);
            let repetitions = (descriptor.max_rep_level() > 0).then_some(&repetitions[..]);
            to.write_batch(&values, definitions, repetitions)?;
        }
    }
    Ok(())
}
