//! The C functions of lorry_text.h, which documents their contracts. No panic and no owned memory crosses the boundary: results and error
//! messages go to a sink that the caller passes.

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use tokenizers::{TruncationDirection, TruncationStrategy};

use crate::chat_template::{ChatRequest, ChatTemplate};
use crate::convert;
use crate::detokenizer::Detokenizer;
use crate::difference;
use crate::encoding::{Limit, PlacedToken, Windows};
use crate::jinja::cut;
use crate::settings::Settings;
use crate::tokenizer::Tokenizer;

const OK: i32 = 0;
const ERROR: i32 = 1;
/// Longer messages are cut, because a library's errors may quote a whole file.
const MESSAGE_MAX: usize = 1000;

/// lorry_text_sink
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink {
    context: *mut c_void,
    write: extern "C" fn(*mut c_void, *const c_void, usize),
}

impl Sink {
    pub fn text(&self, text: &str) {
        (self.write)(self.context, text.as_ptr().cast(), text.len());
    }

    fn bytes(&self, bytes: &[u8]) {
        (self.write)(self.context, bytes.as_ptr().cast(), bytes.len());
    }

    fn ids(&self, ids: &[i32]) {
        (self.write)(self.context, ids.as_ptr().cast(), std::mem::size_of_val(ids));
    }

    pub fn words(&self, words: &[u32]) {
        (self.write)(self.context, words.as_ptr().cast(), std::mem::size_of_val(words));
    }

    fn tokens(&self, tokens: &[PlacedToken]) {
        (self.write)(self.context, tokens.as_ptr().cast(), std::mem::size_of_val(tokens));
    }
}

/// lorry_text_view
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    /// SAFETY: the caller keeps the bytes alive and unchanged during the call that takes this view.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// SAFETY: as `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()).map_err(|error| format!("{what} is not valid UTF-8 at byte {}", error.valid_up_to()))
    }
}

/// SAFETY: `ids` points at `count` ids that are valid during the call. A negative id, which no token has, becomes one beyond any
/// vocabulary.
pub unsafe fn ids_from<'a>(ids: *const i32, count: usize) -> &'a [u32] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(ids.cast(), count)
    }
}

/// lorry_text_limit
#[repr(C)]
pub struct LimitView {
    max_tokens: usize,
    keep_end: bool,
    /// lorry_text_strategy
    strategy: i32,
}

impl LimitView {
    fn limit(&self) -> Result<Limit, String> {
        let strategy = match self.strategy {
            0 => TruncationStrategy::LongestFirst,
            1 => TruncationStrategy::OnlyFirst,
            2 => TruncationStrategy::OnlySecond,
            other => return Err(format!("there is no truncation strategy {other}")),
        };
        let side = if self.keep_end { TruncationDirection::Left } else { TruncationDirection::Right };
        Ok(Limit { max_tokens: self.max_tokens, side, strategy })
    }
}

/// lorry_text_chat_request
#[repr(C)]
pub struct ChatRequestView {
    messages: View,
    tools: View,
    extra: View,
    add_generation_prompt: bool,
}

/// Runs `work`; an error or a panic becomes a message in the sink and ERROR.
fn guarded(error: Sink, work: impl FnOnce() -> Result<(), String>) -> i32 {
    guarded_as("the text library", error, work)
}

/// The same; `library` panics.
pub fn guarded_as(library: &str, error: Sink, work: impl FnOnce() -> Result<(), String>) -> i32 {
    // The message reaches the caller; the library's own report would stand between a program's lines of JSON on stderr.
    static SILENT: std::sync::Once = std::sync::Once::new();
    SILENT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let message = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(message)) => message,
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            format!("{library} failed: {}", why.unwrap_or("no reason given"))
        }
    };
    error.text(&cut(message, MESSAGE_MAX));
    ERROR
}

/// SAFETY of all functions below: handles come from the matching _new function and were not freed; views, ids and out pointers are valid
/// during the call; a sink's function may be called with its context during the call.
#[no_mangle]
pub unsafe extern "C" fn lorry_text_tokenizer_new(json: View, settings: View, out: *mut *mut Arc<Tokenizer>, error: Sink) -> i32 {
    guarded(error, || {
        let settings = Settings::from_json(settings.text("the settings of the tokenizer")?)?;
        let tokenizer = Tokenizer::from_json(json.bytes(), &settings)?;
        *out = Box::into_raw(Box::new(Arc::new(tokenizer)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_tokenizer_files(settings: View, names: Sink, error: Sink) -> i32 {
    guarded(error, || {
        let settings = Settings::from_json(settings.text("the settings of the tokenizer")?)?;
        names.text(&convert::files_of(&settings)?.join("\n"));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_convert(settings: View, files: *const View, count: usize, json: Sink, error: Sink) -> i32 {
    guarded(error, || {
        let settings = Settings::from_json(settings.text("the settings of the tokenizer")?)?;
        let files: Vec<&[u8]> = (0..count).map(|i| (*files.add(i)).bytes()).collect();
        json.text(&convert::to_json(&settings, &files)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_tokenizer_free(tokenizer: *mut Arc<Tokenizer>) {
    drop(Box::from_raw(tokenizer));
}

#[no_mangle]
pub extern "C" fn lorry_text_difference(tokenizer: &Arc<Tokenizer>, base: &Arc<Tokenizer>, difference: Sink, error: Sink) -> i32 {
    guarded(error, || {
        difference.text(&difference::between(tokenizer, base)?.unwrap_or_default());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_encode(
    tokenizer: &Arc<Tokenizer>,
    text: View,
    add_special_tokens: bool,
    ids: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        ids.ids(&tokenizer.encode(text.text("the text")?, add_special_tokens)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_encode_pair(
    tokenizer: &Arc<Tokenizer>,
    first: View,
    second: Option<&View>,
    limit: Option<&LimitView>,
    tokens: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let second = second.map(|text| text.text("the second text")).transpose()?;
        let limit = limit.map(LimitView::limit).transpose()?;
        tokens.tokens(&tokenizer.encode_pair(first.text("the text")?, second, limit.as_ref())?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_encode_windows(
    tokenizer: &Arc<Tokenizer>,
    text: View,
    windows: &Windows,
    tokens: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        tokens.tokens(&tokenizer.encode_windows(text.text("the text")?, windows)?);
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn lorry_text_takes_pairs(tokenizer: &Arc<Tokenizer>) -> bool {
    catch_unwind(AssertUnwindSafe(|| tokenizer.takes_pairs())).unwrap_or(false)
}

#[no_mangle]
pub extern "C" fn lorry_text_special_tokens_added(tokenizer: &Arc<Tokenizer>, pair: bool) -> usize {
    tokenizer.special_tokens_added(pair)
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_named_token(tokenizer: &Arc<Tokenizer>, name: View, id: *mut i32) -> bool {
    let found = name.text("the name").ok().and_then(|name| tokenizer.named_token(name));
    if let Some(found) = found {
        *id = found as i32;
    }
    found.is_some()
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_decode(
    tokenizer: &Arc<Tokenizer>,
    ids: *const i32,
    count: usize,
    skip_special_tokens: bool,
    text: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        text.text(&tokenizer.decode(ids_from(ids, count), skip_special_tokens)?);
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn lorry_text_vocabulary_size(tokenizer: &Arc<Tokenizer>) -> usize {
    tokenizer.vocabulary_size()
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_find(tokenizer: &Arc<Tokenizer>, token: View, id: *mut i32) -> bool {
    let found = token.text("the token").ok().and_then(|token| tokenizer.find(token));
    if let Some(found) = found {
        *id = found as i32;
    }
    found.is_some()
}

#[no_mangle]
pub extern "C" fn lorry_text_token_bytes(tokenizer: &Arc<Tokenizer>, id: i32, bytes: Sink) {
    bytes.bytes(tokenizer.facts(id as u32).map_or(&[], |token| &token.bytes));
}

#[no_mangle]
pub extern "C" fn lorry_text_token_spelling(tokenizer: &Arc<Tokenizer>, id: i32, spelling: Sink) {
    spelling.bytes(tokenizer.token(id as u32).unwrap_or_default().as_bytes());
}

#[no_mangle]
pub extern "C" fn lorry_text_marks_subwords(tokenizer: &Arc<Tokenizer>) -> bool {
    tokenizer.marks_subwords()
}

#[no_mangle]
pub extern "C" fn lorry_text_is_special(tokenizer: &Arc<Tokenizer>, id: i32) -> bool {
    tokenizer.facts(id as u32).is_some_and(|token| token.special)
}

#[no_mangle]
pub extern "C" fn lorry_text_detokenizer_new(tokenizer: &Arc<Tokenizer>, skip_special_tokens: bool) -> *mut Detokenizer {
    Box::into_raw(Box::new(Detokenizer::new(Arc::clone(tokenizer), skip_special_tokens)))
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_detokenizer_free(detokenizer: *mut Detokenizer) {
    drop(Box::from_raw(detokenizer));
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_detokenizer_prime(detokenizer: &mut Detokenizer, ids: *const i32, count: usize, error: Sink) -> i32 {
    guarded(error, || detokenizer.prime(ids_from(ids, count)))
}

#[no_mangle]
pub extern "C" fn lorry_text_detokenizer_push(detokenizer: &mut Detokenizer, id: i32, text: Sink, error: Sink) -> i32 {
    guarded(error, || {
        let mut piece = String::new();
        detokenizer.push(id as u32, &mut piece)?;
        text.text(&piece);
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn lorry_text_detokenizer_finish(detokenizer: &mut Detokenizer, text: Sink) {
    let mut piece = String::new();
    detokenizer.finish(&mut piece);
    text.text(&piece);
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_chat_template_new(description: View, out: *mut *mut ChatTemplate, error: Sink) -> i32 {
    guarded(error, || {
        *out = Box::into_raw(Box::new(ChatTemplate::new(description.text("the description")?)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_chat_template_free(template: *mut ChatTemplate) {
    drop(Box::from_raw(template));
}

#[no_mangle]
pub unsafe extern "C" fn lorry_text_chat_template_render(
    template: &ChatTemplate,
    request: &ChatRequestView,
    text: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let request = ChatRequest {
            messages: request.messages.text("messages")?,
            tools: request.tools.text("tools")?,
            extra: request.extra.text("chat_template_kwargs")?,
            add_generation_prompt: request.add_generation_prompt,
        };
        text.text(&template.render(&request)?);
        Ok(())
    })
}
