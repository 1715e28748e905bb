//! What one rendering may use, so that a template ends as an error and not as a worker without memory, time or stack.
//!
//! Memory: values charge what they take when they are made (value.rs, dict.rs), and a text that can become larger than what it is made of
//! is made with writer.rs, which charges before it grows. What is freed again is not given back. Time: a statement, an expression and an
//! item are a step; what reads texts charges their bytes. Stack: levels of statements, expressions, calls and generators are counted, and
//! what they take of the stack is measured, because that differs between builds.

use std::cell::Cell;

use super::error::{failed, Error, Result};

/// A few seconds of work.
const STEPS_MAX: u64 = 20_000_000;
/// Bytes that a rendering may make, intermediate ones included. Texts are copied when they are finished, so that the process can need a
/// multiple for a moment.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes that are compared or copied in the time of a step.
const READ_PER_STEP: usize = 64;
/// Bytes whose characters are looked up in tables of Unicode in the time of a step.
pub const CHARACTERS_PER_STEP: usize = 4;
/// Digits of a float that are computed in the time of a step.
pub const DIGITS_PER_STEP: usize = 4;
/// Bytes of a template's source. The longest templates of models have 20 KB.
pub const SOURCE_MAX: usize = 1 << 20;
/// What a small object takes besides its items, with the allocator's part.
pub const OBJECT_BYTES: usize = 80;
/// Statements, expressions, calls and generators within each other while rendering.
const DEPTH_MAX: u32 = 400;
/// Bytes of stack for these, and for reading a source. Values, whose nesting is limited, are walked on top of it: a thread needs 1.5 MiB.
const STACK_MAX: usize = 1 << 20;
/// Statements and expressions within each other in a source.
pub const SOURCE_NESTING_MAX: u32 = 100;
/// Operations within each other in an expression, such as the filters of a chain, and lists within lists as values.
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

    pub fn bytes(&self, count: usize) -> Result<()> {
        let total = self.bytes.get().saturating_add(count as u64);
        self.bytes.set(total);
        if total > BYTES_MAX {
            return Err(too_many_bytes());
        }
        Ok(())
    }

    /// The time of an operation that may read this many bytes of text.
    pub fn read(&self, bytes: usize) -> Result<()> {
        self.steps(bytes / READ_PER_STEP)
    }

    /// One level deeper; leave() must follow if there is no error.
    pub fn enter(&self) -> Result<()> {
        if self.depth.get() >= DEPTH_MAX || is_stack_used(self) {
            return Err(failed("the template's calls are nested too deeply"));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }
}

#[cold]
fn too_many_bytes() -> Error {
    failed(format!("the template makes more than {} MiB of text and lists", BYTES_MAX >> 20))
}

/// Whether too much of the stack is used above the frame in which `base` lies.
pub fn is_stack_used<T>(base: &T) -> bool {
    let here = 0u8;
    std::ptr::from_ref(base).addr().abs_diff(std::ptr::from_ref(&here).addr()) > STACK_MAX
}
