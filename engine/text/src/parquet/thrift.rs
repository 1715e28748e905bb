//! The parts of Parquet's Thrift structures that guard.rs checks before the crate reads them: github.com/apache/thrift,
//! doc/specs/thrift-compact-protocol.md, and parquet-format's parquet.thrift.

use std::io::Read;

const NESTING_MAX: usize = 64;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

fn damaged<E>(_: E) -> String {
    "its metadata is damaged".to_string()
}

struct Reader<R: Read> {
    input: R,
    taken: u64,
}

struct Field {
    id: i64,
    kind: u8,
}

impl<R: Read> Reader<R> {
    fn byte(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        self.input.read_exact(&mut byte).map_err(damaged)?;
        self.taken += 1;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged(()))
    }

    fn integer(&mut self) -> Result<i64, String> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The next field of a struct whose last field had the id `before`; None at the struct's end.
    fn field(&mut self, before: i64) -> Result<Option<Field>, String> {
        let byte = self.byte()?;
        let kind = byte & 0x0F;
        if kind == 0 {
            return Ok(None);
        }
        let id = if byte >> 4 == 0 { self.integer()? } else { before + i64::from(byte >> 4) };
        Ok(Some(Field { id, kind }))
    }

    /// Size and kind of the elements.
    fn list(&mut self) -> Result<(u64, u8), String> {
        let byte = self.byte()?;
        let size = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        Ok((size, byte & 0x0F))
    }

    fn skip_bytes(&mut self, count: u64) -> Result<(), String> {
        let skipped = std::io::copy(&mut self.input.by_ref().take(count), &mut std::io::sink()).map_err(damaged)?;
        self.taken += skipped;
        if skipped == count {
            Ok(())
        } else {
            Err(damaged(()))
        }
    }

    fn skip(&mut self, kind: u8, nesting: usize) -> Result<(), String> {
        if nesting > NESTING_MAX {
            return Err(damaged(()));
        }
        match kind {
            TRUE | FALSE => {}
            BYTE => self.skip_bytes(1)?,
            I16 | I32 | I64 => {
                self.varint()?;
            }
            DOUBLE => self.skip_bytes(8)?,
            BINARY => {
                let size = self.varint()?;
                self.skip_bytes(size)?;
            }
            LIST | SET => {
                let (size, kind) = self.list()?;
                for _ in 0..size {
                    self.skip_element(kind, nesting)?;
                }
            }
            MAP => {
                let size = self.varint()?;
                let kinds = if size > 0 { self.byte()? } else { 0 };
                for _ in 0..size {
                    self.skip_element(kinds >> 4, nesting)?;
                    self.skip_element(kinds & 0x0F, nesting)?;
                }
            }
            STRUCT => self.walk(|reader, field| reader.skip(field.kind, nesting + 1))?,
            _ => return Err(damaged(())),
        }
        Ok(())
    }

    /// Of a list, set or map, where truth values take a byte.
    fn skip_element(&mut self, kind: u8, nesting: usize) -> Result<(), String> {
        match kind {
            TRUE | FALSE => self.skip_bytes(1),
            _ => self.skip(kind, nesting + 1),
        }
    }

    /// Calls `visit` for each field of a struct; it must read or skip the value.
    fn walk(&mut self, mut visit: impl FnMut(&mut Self, &Field) -> Result<(), String>) -> Result<(), String> {
        let mut before = 0;
        while let Some(field) = self.field(before)? {
            visit(self, &field)?;
            before = field.id;
        }
        Ok(())
    }
}

/// What a page's header says of its sizes, in bytes.
#[derive(Clone, Copy, Default)]
pub struct PageSizes {
    pub header: u64,
    pub unpacked: i64,
    /// Of a version 2 page: its levels, which are not compressed.
    pub levels: i64,
}

pub fn page_sizes(input: impl Read) -> Result<PageSizes, String> {
    let mut sizes = PageSizes::default();
    let mut header = Reader { input, taken: 0 };
    header.walk(|reader, field| {
        match (field.id, field.kind) {
            (2, I32) => sizes.unpacked = reader.integer()?,
            (8, STRUCT) => reader.walk(|reader, field| {
                match (field.id, field.kind) {
                    (5 | 6, I32) => sizes.levels += reader.integer()?,
                    _ => reader.skip(field.kind, 0)?,
                }
                Ok(())
            })?,
            _ => reader.skip(field.kind, 0)?,
        }
        Ok(())
    })?;
    sizes.header = header.taken;
    Ok(sizes)
}

/// Checks the schema in a footer: the crate reserves room for as many children as an element claims, and calls itself for each level.
pub fn check_schema(footer: &[u8]) -> Result<(), String> {
    Reader { input: footer, taken: 0 }.walk(|reader, field| {
        if (field.id, field.kind) != (2, LIST) {
            return reader.skip(field.kind, 0);
        }
        let (size, kind) = reader.list()?;
        if kind != STRUCT {
            return Err(damaged(()));
        }
        let mut open: Vec<i64> = Vec::new(); // children that are missing, by level
        for _ in 0..size {
            let mut children = 0;
            reader.walk(|reader, field| {
                match (field.id, field.kind) {
                    (5, I32) => children = reader.integer()?,
                    _ => reader.skip(field.kind, 0)?,
                }
                Ok(())
            })?;
            if children < 0 || children as u64 > size {
                return Err(damaged(()));
            }
            if let Some(last) = open.last_mut() {
                *last -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            while open.last().is_some_and(|missing| *missing <= 0) {
                open.pop();
            }
            if open.len() > NESTING_MAX {
                return Err(format!("its columns are nested more than {NESTING_MAX} levels deep"));
            }
        }
        Ok(())
    })
}
