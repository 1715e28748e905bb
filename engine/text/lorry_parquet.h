/* The C functions of the Rust crate in this folder for Parquet files. Called only by parquet.cpp. Sinks, views, statuses and panics are as
 * in lorry_text.h. One thread per handle. */
#pragma once

#include "engine/text/lorry_text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lorry_parquet_reader lorry_parquet_reader;
typedef struct lorry_parquet_writer lorry_parquet_writer;

/* `columns` is JSON: a list of the names of the columns to read, or null for all. */
lorry_text_status lorry_parquet_reader_new(lorry_text_view file, lorry_text_view columns, lorry_parquet_reader** out,
                                           lorry_text_sink error);
void lorry_parquet_reader_free(lorry_parquet_reader* reader);
/* `json` takes {"columns": [NAME, ...], "rows": N}: all columns of the file. */
lorry_text_status lorry_parquet_reader_facts(const lorry_parquet_reader* reader, lorry_text_sink json, lorry_text_sink error);
/* `lines` takes the next rows, each a JSON object with a line end; no bytes at the end. */
lorry_text_status lorry_parquet_reader_next(lorry_parquet_reader* reader, lorry_text_sink lines, lorry_text_sink error);

/* Reads each page of all columns. */
lorry_text_status lorry_parquet_check(lorry_text_view file, lorry_text_sink error);

/* `description` is JSON:
 *   "input": a Parquet file whose columns are copied, or null; "columns": names of columns of the rows, as far as they are known;
 *   "added": [{"name", "kind": "text", "boolean", "integer", "number", "vector" or "entities"}, ...], the columns at the end.
 * Call observe for each row in any order, then add for each, ascending by `number` (from 0, in the input), then finish. A row is a JSON
 * object of the columns that are not copied. */
lorry_text_status lorry_parquet_writer_new(lorry_text_view file, lorry_text_view description, lorry_parquet_writer** out,
                                           lorry_text_sink error);
void lorry_parquet_writer_free(lorry_parquet_writer* writer);
lorry_text_status lorry_parquet_writer_observe(lorry_parquet_writer* writer, lorry_text_view row, lorry_text_sink error);
lorry_text_status lorry_parquet_writer_add(lorry_parquet_writer* writer, int64_t number, lorry_text_view row, lorry_text_sink error);
/* The file is complete and on disk on return. */
lorry_text_status lorry_parquet_writer_finish(lorry_parquet_writer* writer, lorry_text_sink error);

#ifdef __cplusplus
}
#endif
