//! The C functions of lorry_grammar.h, which documents their contracts.

use std::sync::Arc;

use super::{Answer, CompileError, Compiler, Grammar, Structure, Style};
use crate::abi::{guarded_as, ids_from, Sink, View};
use crate::tokenizer::Tokenizer;

fn guarded(error: Sink, work: impl FnOnce() -> Result<(), String>) -> i32 {
    guarded_as("the grammar library", error, work)
}

/// As LORRY_TEXT_NO_THREAD.
const NO_THREAD: i32 = 2;

/// As lorry_grammar_structure.
#[repr(C)]
pub struct GrammarStructure {
    kind: i32,
    text: View,
    space: View,
    closed: bool,
}

/// As lorry_grammar_size.
#[repr(C)]
pub struct GrammarSize {
    bytes: usize,
    answer_bytes: usize,
}

/// SAFETY of all functions below: handles come from the matching _new, _compile or _begin function and were not freed; views, ids, words
/// and out pointers are valid during the call; a sink's function may be called with its context during the call.
#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_compiler_new(
    tokenizer: &Arc<Tokenizer>,
    vocabulary: usize,
    end_tokens: *const i32,
    count: usize,
    out: *mut *mut Compiler,
    error: Sink,
) -> i32 {
    guarded(error, || {
        *out = Box::into_raw(Box::new(Compiler::new(tokenizer, vocabulary, ids_from(end_tokens, count))?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_compiler_free(compiler: *mut Compiler) {
    drop(Box::from_raw(compiler));
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_compile(
    compiler: &Compiler,
    structure: GrammarStructure,
    out: *mut *mut Grammar,
    error: Sink,
) -> i32 {
    let mut has_thread = true;
    let status = guarded(error, || {
        let text = structure.text.text("the structure")?;
        let style = Style { space: structure.space.text("the white space")?, closed: structure.closed };
        let structure = match structure.kind {
            0 => Structure::JsonSchema(text),
            1 => Structure::Regex(text),
            2 => Structure::Choices(text),
            3 => Structure::Lark(text),
            4 => Structure::Rules(text),
            5 => Structure::Tags(text),
            other => return Err(format!("there is no kind {other} of structures")),
        };
        let grammar = compiler.compile(&structure, style).map_err(|error| match error {
            CompileError::Structure(why) => why,
            CompileError::NoThread(why) => {
                has_thread = false;
                format!("no thread could be started: {why}")
            }
        })?;
        *out = Box::into_raw(Box::new(grammar));
        Ok(())
    });
    if has_thread {
        status
    } else {
        NO_THREAD
    }
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_size_of(grammar: &Grammar) -> GrammarSize {
    GrammarSize { bytes: grammar.bytes, answer_bytes: grammar.answer_bytes }
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_free(grammar: *mut Grammar) {
    drop(Box::from_raw(grammar));
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_begin(grammar: &Grammar, out: *mut *mut Answer, error: Sink) -> i32 {
    guarded(error, || {
        *out = Box::into_raw(Box::new(grammar.begin()));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_answer_copy(answer: &Answer, out: *mut *mut Answer, error: Sink) -> i32 {
    guarded(error, || {
        *out = Box::into_raw(Box::new(answer.copy()));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_answer_free(answer: *mut Answer) {
    drop(Box::from_raw(answer));
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_accept(answer: &mut Answer, token: i32, complete: *mut bool, error: Sink) -> i32 {
    guarded(error, || {
        *complete = answer.accept(token as u32)?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_force(answer: &mut Answer, ids: Sink, complete: *mut bool, error: Sink) -> i32 {
    guarded(error, || {
        let (tokens, is_complete) = answer.force()?;
        ids.words(&tokens);
        *complete = is_complete;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_grammar_allowed(answer: &mut Answer, words: Sink, error: Sink) -> i32 {
    guarded(error, || {
        let allowed = answer.allowed()?;
        words.words(allowed.as_slice());
        Ok(())
    })
}
