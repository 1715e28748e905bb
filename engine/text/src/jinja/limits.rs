//! What one rendering may use, so that a template ends as an error and not as a worker without memory, time or stack. A part of jinja/ that
//! loops over values or makes text asks the meter first.

use std::cell::Cell;

use super::error::{failed, Result};
use super::value::Value;

/// Expressions, statements and elements of lists that a rendering may touch: seconds of work.
const STEPS_MAX: u64 = 20_000_000;
/// Bytes of text and of lists that a rendering may make, intermediate ones included.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes that are read in the time of a step.
const READ_PER_STEP: usize = 64;
/// What an item takes in a list.
const ITEM_BYTES: usize = 32;
/// Statements, expressions and macro calls within each other while rendering.
const DEPTH_MAX: u32 = 600;
/// Statements and expressions within each other in a source, and lists within lists as values.
pub const NESTING_MAX: u32 = 200;

#[derive(Default)]
pub struct Meter {
    steps: Cell<u64>,
    bytes: Cell<u64>,
    depth: Cell<u32>,
}

impl Meter {
    pub fn steps(&self, count: usize) -> Result<()> {
        let total = self.steps.get().saturating_add(count as u64);
        self.steps.set(total);
        if total > STEPS_MAX {
            return Err(failed(format!("the template takes more than {STEPS_MAX} steps")));
        }
        Ok(())
    }

    pub fn text(&self, bytes: usize) -> Result<()> {
        let total = self.bytes.get().saturating_add(bytes as u64);
        self.bytes.set(total);
        if total > BYTES_MAX {
            return Err(failed(format!("the template makes more than {} MiB of text and lists", BYTES_MAX >> 20)));
        }
        Ok(())
    }

    /// For a list of so many items.
    pub fn items(&self, count: usize) -> Result<()> {
        self.steps(count)?;
        self.text(count.saturating_mul(ITEM_BYTES))
    }

    /// For an operation that may read the whole of a text.
    pub fn read(&self, value: &Value) -> Result<()> {
        self.steps(value.as_text().map_or(0, |text| text.len() / READ_PER_STEP))
    }

    /// One level deeper; leave() must follow if there is no error.
    pub fn enter(&self) -> Result<()> {
        if self.depth.get() >= DEPTH_MAX {
            return Err(failed("the template's calls are nested too deeply"));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }
}
