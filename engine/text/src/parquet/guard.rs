//! Opens a Parquet file and reads its pages, with limits on what a damaged or hostile file can make the crate allocate: the crate believes
//! the sizes that a file claims.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length, RowGroupReader};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::delta::after_integers;
use super::thrift::{check_schema, page_sizes, PageSizes};

/// Writers aim at 1 MB for a page; DuckDB's have up to 100 MB.
const PAGE_BYTES_MAX: i64 = 256 << 20;
/// Runs of equal values take few bytes, so the bytes do not bound them.
const PAGE_VALUES_MAX: usize = 1 << 27;
/// A row's lists are in memory as a whole, so their values are bounded more closely: these, and eight for each byte.
const PAGE_LIST_VALUES: usize = 1 << 22;
const FOOTER_BYTES_MAX: u64 = 128 << 20;
const TAIL_BYTES: u64 = 8;
/// With statistics of its values.
const HEADER_BYTES_MAX: u64 = 1 << 20;
const HEADERS_KEPT: usize = 4;

/// An open file.
pub struct Source {
    file: Arc<File>,
    pub metadata: ParquetMetaData,
}

impl Source {
    pub fn open(path: &str) -> Result<Source, String> {
        let file = File::open(path).map_err(|error| format!("the file cannot be opened: {error}"))?;
        let length = file.metadata().map_err(|error| format!("the file cannot be read: {error}"))?.len();
        let footer_length = footer_length(&file, length)?;
        let mut footer = vec![0; footer_length as usize];
        file.read_exact_at(&mut footer, length - TAIL_BYTES - footer_length).map_err(|error| format!("its end cannot be read: {error}"))?;
        check_schema(&footer)?;
        let metadata = ParquetMetaDataReader::decode_metadata(&footer).map_err(text_of)?;
        if metadata.row_groups().iter().any(|group| group.num_rows() < 0) {
            return Err("its metadata is damaged".to_string());
        }
        for column in metadata.row_groups().iter().flat_map(RowGroupMetaData::columns) {
            let refused = match column.compression() {
                Compression::BROTLI(_) => "Brotli",
                Compression::LZO => "LZO",
                _ => continue,
            };
            return Err(format!("it is compressed with {refused}, which is not read: write it with zstd or snappy"));
        }
        Ok(Source { file: Arc::new(file), metadata })
    }

    pub fn schema(&self) -> &Type {
        self.metadata.file_metadata().schema()
    }

    pub fn row_count(&self) -> i64 {
        self.metadata.row_groups().iter().map(RowGroupMetaData::num_rows).sum()
    }

    /// Reads each page of all columns, one at a time, so that what cannot be read is found before anything depends on it.
    pub fn check_pages(&self) -> Result<(), String> {
        for index in 0..self.metadata.num_row_groups() {
            let group = self.group(index);
            for column in 0..group.num_columns() {
                group.check_pages(column).map_err(|error| {
                    let path = group.metadata.column(column).column_path().string();
                    format!("row group {}, column '{path}': {}", index + 1, text_of(error))
                })?;
            }
        }
        Ok(())
    }

    pub fn group(&self, index: usize) -> Group<'_> {
        Group { file: &self.file, metadata: self.metadata.row_group(index) }
    }
}

pub fn text_of(error: ParquetError) -> String {
    match error {
        ParquetError::General(text) | ParquetError::EOF(text) | ParquetError::NYI(text) => text,
        other => other.to_string(),
    }
}

fn footer_length(file: &File, length: u64) -> Result<u64, String> {
    let mut start = [0; 4];
    let mut tail = [0; TAIL_BYTES as usize];
    if length >= TAIL_BYTES + 4 {
        file.read_exact_at(&mut start, 0).map_err(|error| format!("the file cannot be read: {error}"))?;
        file.read_exact_at(&mut tail, length - TAIL_BYTES).map_err(|error| format!("the file cannot be read: {error}"))?;
    }
    match (&start, &tail[4..]) {
        (_, b"PARE") | (b"PARE", _) => return Err("the file is encrypted Parquet, which is not read".to_string()),
        (b"PAR1", b"PAR1") => {}
        (b"PAR1", _) => return Err("the file ends in the middle: it begins as Parquet, but was cut off or is still written".to_string()),
        _ => return Err("the file is not Parquet".to_string()),
    }
    let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if footer > length - TAIL_BYTES - 4 {
        return Err("its end is damaged: it claims more metadata than the file has bytes".to_string());
    }
    if footer > FOOTER_BYTES_MAX {
        return Err(format!("it has {footer} bytes of metadata; {FOOTER_BYTES_MAX} are read at most: write it with larger row groups"));
    }
    Ok(footer)
}

/// A row group.
pub struct Group<'a> {
    file: &'a Arc<File>,
    metadata: &'a RowGroupMetaData,
}

impl Group<'_> {
    fn check_pages(&self, column: usize) -> ParquetResult<()> {
        let mut pages = self.get_column_page_reader(column)?;
        while pages.get_next_page()?.is_some() {}
        Ok(())
    }
}

impl RowGroupReader for Group<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.metadata
    }

    fn num_columns(&self) -> usize {
        self.metadata.num_columns()
    }

    fn get_column_page_reader(&self, index: usize) -> ParquetResult<Box<dyn PageReader>> {
        let column = self.metadata.column(index);
        let chunk = Chunk {
            file: Arc::clone(self.file),
            is_gzip: matches!(column.compression(), Compression::GZIP(_)),
            headers: Mutex::new(VecDeque::new()),
        };
        let pages = SerializedPageReader::new(Arc::new(chunk), column, self.metadata.num_rows() as usize, None)?;
        let (repetition_max, definition_max) = (column.column_descr().max_rep_level(), column.column_descr().max_def_level());
        Ok(Box::new(Pages { pages, repetition_max, definition_max }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, _: Option<Type>) -> ParquetResult<RowIter<'_>> {
        Err(refused("rows are read by rows.rs"))
    }
}

fn refused(message: impl Into<String>) -> ParquetError {
    ParquetError::General(message.into())
}

/// The bytes of a column's pages. SerializedPageReader asks for a page's header by get_read(), at times also for what follows it, then for
/// the page by get_bytes().
struct Chunk {
    file: Arc<File>,
    is_gzip: bool,
    /// Where a page begins, and what its header says; of what was read last.
    headers: Mutex<VecDeque<(u64, PageSizes)>>,
}

/// The file from a place on.
pub struct From {
    file: Arc<File>,
    place: u64,
}

impl Read for From {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(out, self.place)?;
        self.place += count as u64;
        Ok(count)
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |facts| facts.len())
    }
}

impl ChunkReader for Chunk {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let read = || BufReader::with_capacity(512, From { file: Arc::clone(&self.file), place: start });
        if let Ok(sizes) = page_sizes(read().take(HEADER_BYTES_MAX)) {
            let mut headers = self.headers.lock().unwrap();
            headers.truncate(HEADERS_KEPT - 1);
            headers.push_front((start.saturating_add(sizes.header), sizes));
        }
        Ok(read())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(refused("a page lies outside the file: the file is damaged"));
        }
        let headers = self.headers.lock().unwrap();
        let (_, sizes) = headers.iter().find(|(begin, _)| *begin == start).ok_or_else(|| refused("a page's header is damaged"))?;
        if !(0..=PAGE_BYTES_MAX).contains(&sizes.unpacked) {
            return Err(refused(format!(
                "a page claims {} bytes; {PAGE_BYTES_MAX} are read at most: write the file with smaller pages",
                sizes.unpacked
            )));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        if self.is_gzip {
            check_gzip(&bytes, sizes)?;
        }
        Ok(bytes.into())
    }
}

/// The crate unpacks gzip without a limit; its other codecs stop at the size that the header claims.
fn check_gzip(page: &[u8], sizes: &PageSizes) -> ParquetResult<()> {
    let levels = usize::try_from(sizes.levels).ok();
    let packed = levels.and_then(|levels| page.get(levels..)).ok_or_else(|| refused("a page is damaged"))?;
    if !packed.starts_with(&[0x1F, 0x8B]) {
        return Ok(()); // not compressed, or not gzip, which the crate refuses
    }
    let mut unpacked = flate2::read::MultiGzDecoder::new(packed).take(sizes.unpacked as u64 + 1);
    if std::io::copy(&mut unpacked, &mut std::io::sink())? > sizes.unpacked as u64 {
        return Err(refused("a page unpacks to more bytes than it claims: the file is damaged"));
    }
    Ok(())
}

/// Pages with plausible numbers of values.
struct Pages {
    pages: SerializedPageReader<Chunk>,
    repetition_max: i16,
    definition_max: i16,
}

impl Pages {
    fn check(&self, page: &Page) -> ParquetResult<()> {
        let values = page.num_values() as usize;
        let bytes = page.buffer().len();
        let values_max = match page {
            Page::DictionaryPage { .. } => bytes,
            _ if self.repetition_max > 0 => PAGE_LIST_VALUES + bytes.saturating_mul(8),
            _ => PAGE_VALUES_MAX,
        };
        if values > values_max {
            return Err(refused(format!(
                "a page of {bytes} bytes claims {values} values, more than are read: write the file with smaller pages"
            )));
        }
        if self.has_good_deltas(page) {
            Ok(())
        } else {
            Err(refused("a page claims more values than it has: the file is damaged"))
        }
    }

    fn has_good_deltas(&self, page: &Page) -> bool {
        if page.is_dictionary_page() {
            return true;
        }
        let Some(data) = self.values_of(page) else { return false };
        let after = |data| after_integers(data, page.num_values());
        match page.encoding() {
            _ if data.is_empty() => true, // all are null
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY => after(data).is_some(),
            Encoding::DELTA_BYTE_ARRAY => after(data).and_then(after).is_some(), // lengths of prefixes, then of suffixes
            _ => true,
        }
    }

    /// What follows the levels of a data page.
    fn values_of<'a>(&self, page: &'a Page) -> Option<&'a [u8]> {
        if let Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } = page {
            return buf.get(*def_levels_byte_len as usize..)?.get(*rep_levels_byte_len as usize..);
        }
        let mut rest: &[u8] = page.buffer();
        for level_max in [self.repetition_max, self.definition_max] {
            if level_max > 0 {
                let (length, levels) = rest.split_first_chunk()?;
                rest = levels.get(u32::from_le_bytes(*length) as usize..)?;
            }
        }
        Some(rest)
    }
}

impl Iterator for Pages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}
