//! What one rendering may use, so that a hostile template ends as an error and not as a worker without memory, time or stack. Each part of
//! jinja/ that loops over values or makes text asks the meter first.

use std::cell::Cell;

use super::error::{failed, Result};

/// Expressions, statements and elements of lists that a rendering may touch: seconds of work.
const STEPS_MAX: u64 = 20_000_000;
/// Bytes of text that a rendering may make, intermediate texts included.
const TEXT_MAX: u64 = 256 << 20;
/// Statements, expressions and macro calls within each other while rendering.
const DEPTH_MAX: u32 = 1200;
/// Statements and expressions within each other in a source, and lists within lists as values.
pub const NESTING_MAX: u32 = 200;

#[derive(Default)]
pub struct Meter {
    steps: Cell<u64>,
    text: Cell<u64>,
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
        let total = self.text.get().saturating_add(bytes as u64);
        self.text.set(total);
        if total > TEXT_MAX {
            return Err(failed(format!("the template makes more than {} MiB of text", TEXT_MAX >> 20)));
        }
        Ok(())
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
