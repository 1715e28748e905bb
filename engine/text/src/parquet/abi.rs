//! The C functions of lorry_parquet.h, which documents their contracts.

use super::guard::Source;
use super::rows::Rows;
use super::writer::Writer;
use crate::abi::{guarded_as, Sink, View};

fn guarded(error: Sink, work: impl FnOnce() -> Result<(), String>) -> i32 {
    guarded_as("the Parquet library", error, work)
}

/// SAFETY of all functions below: handles come from the matching _new function and were not freed; views and out pointers are valid during
/// the call; a sink's function may be called with its context during the call.
#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_reader_new(file: View, columns: View, out: *mut *mut Rows, error: Sink) -> i32 {
    guarded(error, || {
        let columns: Option<Vec<String>> = serde_json::from_slice(columns.bytes()).map_err(|error| error.to_string())?;
        let rows = Rows::open(file.text("the file's name")?, columns.as_deref())?;
        *out = Box::into_raw(Box::new(rows));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_reader_free(reader: *mut Rows) {
    drop(Box::from_raw(reader));
}

#[no_mangle]
pub extern "C" fn lorry_parquet_reader_facts(reader: &Rows, json: Sink, error: Sink) -> i32 {
    guarded(error, || {
        json.text(&reader.facts());
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn lorry_parquet_reader_next(reader: &mut Rows, lines: Sink, error: Sink) -> i32 {
    guarded(error, || {
        lines.text(&reader.next()?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_check(file: View, error: Sink) -> i32 {
    guarded(error, || Source::open(file.text("the file's name")?)?.check_pages())
}

#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_writer_new(file: View, description: View, out: *mut *mut Writer, error: Sink) -> i32 {
    guarded(error, || {
        let writer = Writer::new(file.text("the file's name")?, description.text("the description")?)?;
        *out = Box::into_raw(Box::new(writer));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_writer_free(writer: *mut Writer) {
    drop(Box::from_raw(writer));
}

#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_writer_observe(writer: &mut Writer, line: View, error: Sink) -> i32 {
    guarded(error, || writer.observe(line.text("a row")?))
}

#[no_mangle]
pub unsafe extern "C" fn lorry_parquet_writer_add(writer: &mut Writer, row: i64, line: View, error: Sink) -> i32 {
    guarded(error, || writer.add(row, line.text("a row")?))
}

#[no_mangle]
pub extern "C" fn lorry_parquet_writer_finish(writer: &mut Writer, error: Sink) -> i32 {
    guarded(error, || writer.finish())
}
