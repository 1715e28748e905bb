//! Chat templates, rendered as transformers' apply_chat_template renders them: minijinja with Python's methods, the functions and filters
//! that transformers adds, and Python's way of printing values. Called by abi.rs; any number of threads may share a template.

use std::ffi::CString;
use std::fmt::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Rest, Tuple, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};
use serde_json::{Map, Value as Json};

use crate::python::{json_of, str_of, JsonStyle};
use crate::template_source::without_generation_tags;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Variables that the renderer sets itself; a job may not set them in `extra`.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: Map<String, Json>,
    has_default: bool,
    has_tool_use: bool,
}

pub struct ChatRequest<'a> {
    /// JSON: a list of objects.
    pub messages: &'a str,
    /// JSON: a list; empty: no tools.
    pub tools: &'a str,
    /// JSON: an object of further variables; may be empty.
    pub extra: &'a str,
    pub add_generation_prompt: bool,
}

/// The argument of raise_exception, carried as the source of minijinja's error.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    /// `description` is JSON: {"templates": {name: source, ...}, "special_tokens": {"bos_token": "<s>", ...}}.
    pub fn new(description: &str) -> Result<Self, String> {
        let mut description = object_from("description", description)?;
        let mut take = |key: &str| match description.remove(key) {
            Some(Json::Object(object)) => Ok(object),
            _ => Err(format!("description: {key} is missing or not an object")),
        };
        let (templates, special_tokens) = (take("templates")?, take("special_tokens")?);
        let mut environment = environment()?;
        for (name, source) in &templates {
            let source = source.as_str().ok_or_else(|| format!("description: template {name} is not a string"))?;
            environment.add_template_owned(name.clone(), without_generation_tags(source)).map_err(|error| message_of(&error))?;
        }
        let has = |name| templates.contains_key(name);
        Ok(ChatTemplate { environment, special_tokens, has_default: has(DEFAULT), has_tool_use: has(TOOL_USE) })
    }

    pub fn render(&self, request: &ChatRequest) -> Result<String, String> {
        let tools = match request.tools {
            "" => Json::Null,
            text => match parse("tools", text)? {
                list @ Json::Array(_) => list,
                other => return Err(format!("tools must be a list, not {}", kind_of(&other))),
            },
        };
        let name = match (tools.is_null(), self.has_tool_use, self.has_default) {
            (false, true, _) => TOOL_USE,
            (_, _, true) => DEFAULT,
            _ => return Err("the model has a chat template for tools only: set tools, or use /v1/completions".to_string()),
        };
        let mut variables = self.special_tokens.clone();
        variables.insert("documents".to_string(), Json::Null);
        if !request.extra.is_empty() {
            for (key, value) in object_from("chat_template_kwargs", request.extra)? {
                if RESERVED.contains(&key.as_str()) {
                    return Err(format!("chat_template_kwargs: {key} cannot be set here; use the field of that name"));
                }
                variables.insert(key, value);
            }
        }
        variables.insert("messages".to_string(), messages_from(request.messages)?);
        variables.insert("tools".to_string(), tools);
        variables.insert("add_generation_prompt".to_string(), Json::Bool(request.add_generation_prompt));
        let template = self.environment.get_template(name).map_err(|error| message_of(&error))?;
        template.render(value_of(&Json::Object(variables))).map_err(|error| message_of(&error))
    }
}

fn environment() -> Result<Environment<'static>, String> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|error| message_of(&error))?;
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, _, value| out.write_str(&str_of(value)).map_err(Error::from));
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| str_of(value));
    // These tests follow Python: strings and mappings are sequences and iterable, None is not, and a boolean is a number.
    environment.add_test("iterable", |value: &Value| value.kind() == ValueKind::Iterable || is_sequence(value));
    environment.add_test("sequence", is_sequence);
    environment.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    Ok(environment)
}

fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = str_of(message);
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The methods of Python's str that pycompat lacks, then pycompat's.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args) };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(three_parts(text.split_once(separator).map_or((text, "", ""), |(before, after)| (before, separator, after))))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(three_parts(text.rsplit_once(separator).map_or(("", "", text), |(before, after)| (before, separator, after))))
        }
        "rsplit" => {
            let (separator, limit): (&str, Option<usize>) = from_args(args)?;
            let parts = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
            let mut pieces: Vec<Value> = text.rsplitn(parts, separator).map(Value::from).collect();
            pieces.reverse();
            Ok(Value::from(pieces))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn three_parts((before, separator, after): (&str, &str, &str)) -> Value {
    Value::from(Tuple::from([before, separator, after].map(Value::from)))
}

/// The filter with which transformers replaces Jinja's: json.dumps with ensure_ascii off, no HTML escapes, and these arguments in this
/// order.
fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Result<Value, Error> {
        match positional.get(index) {
            Some(value) => Ok(value.clone()),
            None => Ok(named.get::<Option<Value>>(name)?.unwrap_or_default()),
        }
    };
    let indent = argument(1, "indent")?;
    let indent = match indent.kind() {
        ValueKind::None | ValueKind::Undefined => None,
        ValueKind::String => Some(str_of(&indent)),
        _ => Some(" ".repeat(usize::try_from(indent)?)),
    };
    let separators = argument(2, "separators")?;
    let (item_separator, key_separator) = match separators.kind() {
        ValueKind::None | ValueKind::Undefined => ((if indent.is_some() { "," } else { ", " }).to_string(), ": ".to_string()),
        _ => (str_of(&separators.get_item_by_index(0)?), str_of(&separators.get_item_by_index(1)?)),
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_true();
    let sort_keys = argument(3, "sort_keys")?.is_true();
    named.assert_all_used()?;
    json_of(value, &JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys })
}

/// datetime.now().strftime(format): local time without a time zone, so %z and %Z are empty. %f is microseconds, which libc does not have.
fn strftime_now(format: &str) -> Result<String, Error> {
    let failed = |why: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {why}"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(|_| failed("the clock is before 1970"))?;
    let seconds = now.as_secs() as libc::time_t;
    let mut calendar = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and localtime_r fills the structure when it returns one.
    let calendar = unsafe {
        if libc::localtime_r(&seconds, calendar.as_mut_ptr()).is_null() {
            return Err(failed("the time has no calendar form"));
        }
        calendar.assume_init()
    };
    let mut for_libc = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            ('%', Some('f')) => {
                let _ = write!(for_libc, "{:06}", now.subsec_micros());
                characters.next();
            }
            ('%', Some('z' | 'Z')) => {
                characters.next();
            }
            ('%', Some(directive)) => {
                for_libc.extend(['%', directive]);
                characters.next();
            }
            _ => for_libc.push(character),
        }
    }
    // strftime returns 0 both for an empty result and for one that does not fit; the extra byte makes the result non-empty.
    let for_libc = CString::new(for_libc + "|").map_err(|_| failed("the format contains a NUL byte"))?;
    let mut buffer = vec![0u8; 256 + 64 * for_libc.as_bytes().len()];
    // SAFETY: the buffer, the format (ended by NUL) and the calendar live through the call.
    let length = unsafe { libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), for_libc.as_ptr(), &calendar) };
    if length == 0 {
        return Err(failed("the result is too long"));
    }
    buffer.truncate(length - 1);
    String::from_utf8(buffer).map_err(|_| failed("the locale's names are not UTF-8"))
}

/// The messages, with `thinking` and `reasoning_content` set from any of the names of a model's reasoning, as transformers does.
fn messages_from(text: &str) -> Result<Json, String> {
    let mut messages = match parse("messages", text)? {
        Json::Array(messages) => messages,
        other => return Err(format!("messages must be a list, not {}", kind_of(&other))),
    };
    for (index, message) in messages.iter_mut().enumerate() {
        let Json::Object(fields) = message else {
            return Err(format!("messages[{index}] must be an object, not {}", kind_of(message)));
        };
        let reasoning =
            ["reasoning_content", "thinking", "reasoning"].iter().find_map(|&name| fields.get(name).filter(|value| !value.is_null()));
        if let Some(reasoning) = reasoning.cloned() {
            let mut aliased = Map::new();
            aliased.insert("thinking".to_string(), reasoning.clone());
            aliased.extend(std::mem::take(fields));
            aliased.insert("reasoning_content".to_string(), reasoning);
            *fields = aliased;
        }
    }
    Ok(Json::Array(messages))
}

fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (_, Some(integer)) => Value::from(integer),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value_of).collect::<Vec<_>>()),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(key, field)| (key.as_str(), value_of(field)))),
    }
}

fn object_from(what: &str, text: &str) -> Result<Map<String, Json>, String> {
    match parse(what, text)? {
        Json::Object(object) => Ok(object),
        other => Err(format!("{what} must be an object, not {}", kind_of(&other))),
    }
}

fn parse(what: &str, text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|error| format!("{what}: not JSON: {error}"))
}

fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// The message of raise_exception if the template called it, otherwise what failed and in which line.
fn message_of(error: &Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return raised.0.clone();
        }
        cause = inner.source();
    }
    format!("chat template: {error}")
}
