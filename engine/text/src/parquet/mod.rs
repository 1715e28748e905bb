//! Parquet files: their rows as lines of JSON, and lines of JSON as the rows of a file. Exported as the C functions of lorry_parquet.h.
//! The crate `parquet` reads and writes; guard.rs holds back what a damaged or hostile file could make it allocate.

mod abi;
mod arrow_schema;
mod columns;
mod copy;
mod delta;
mod guard;
mod line;
mod rows;
mod text;
mod thrift;
mod writer;
