//! Chat templates, rendered as transformers' apply_chat_template renders them. jinja/ is the language; here are a model's templates and
//! the variables that transformers sets. Called by abi.rs; any number of threads may share a template.

use std::collections::HashMap;

use serde_json::{json, Map, Value as Json};

use crate::jinja::{Error, ErrorKind, Template};
use crate::job_json::parse;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Variables that the renderer sets itself; a job may not set them in `extra`.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

pub struct ChatTemplate {
    /// By name.
    templates: HashMap<String, Template>,
    special_tokens: Map<String, Json>,
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

impl ChatTemplate {
    /// `description` is JSON: {"templates": {name: source, ...}, "special_tokens": {"bos_token": "<s>", ...}}.
    pub fn new(description: &str) -> Result<Self, String> {
        let mut description = object_from("description", description)?;
        let mut take = |key: &str| match description.remove(key) {
            Some(Json::Object(object)) => Ok(object),
            _ => Err(format!("description: {key} is missing or not an object")),
        };
        let (sources, special_tokens) = (take("templates")?, take("special_tokens")?);
        let mut templates = HashMap::new();
        for (name, source) in sources {
            let source = source.as_str().ok_or_else(|| format!("description: template {name} is not a string"))?;
            let template = Template::new(source).map_err(|error| message_of(&error, &name))?;
            templates.insert(name, template);
        }
        Ok(ChatTemplate { templates, special_tokens })
    }

    pub fn render(&self, request: &ChatRequest) -> Result<String, String> {
        let tools = match request.tools {
            "" => Json::Null,
            text => match parse("tools", text)? {
                list @ Json::Array(_) => list,
                other => return Err(format!("tools must be a list, not {}", kind_of(&other))),
            },
        };
        let name = if !tools.is_null() && self.templates.contains_key(TOOL_USE) { TOOL_USE } else { DEFAULT };
        let Some(template) = self.templates.get(name) else {
            return Err("the model has a chat template for tools only: set tools, or use /v1/completions".to_string());
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
        variables.insert("messages".to_string(), messages_from(request.messages, template.wants_parts())?);
        variables.insert("tools".to_string(), tools);
        variables.insert("add_generation_prompt".to_string(), Json::Bool(request.add_generation_prompt));
        template.render(&variables).map_err(|error| message_of(&error, name))
    }
}

/// The messages, with `thinking` and `reasoning_content` set from any of the names of a model's reasoning, as transformers does, and
/// `with_parts` with each text as a list of one part.
fn messages_from(text: &str, with_parts: bool) -> Result<Json, String> {
    let mut messages = match parse("messages", text)? {
        Json::Array(messages) => messages,
        other => return Err(format!("messages must be a list, not {}", kind_of(&other))),
    };
    for (index, message) in messages.iter_mut().enumerate() {
        let Json::Object(fields) = message else {
            return Err(format!("messages[{index}] must be an object, not {}", kind_of(message)));
        };
        if let Some(content) = fields.get_mut("content").filter(|content| with_parts && content.is_string()) {
            *content = json!([{"type": "text", "text": content.take()}]);
        }
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

fn object_from(what: &str, text: &str) -> Result<Map<String, Json>, String> {
    match parse(what, text)? {
        Json::Object(object) => Ok(object),
        other => Err(format!("{what} must be an object, not {}", kind_of(&other))),
    }
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
fn message_of(error: &Error, name: &str) -> String {
    let message = &error.message;
    let place = error.line.map_or(name.to_string(), |line| format!("{name}:{line}"));
    match error.kind {
        ErrorKind::Raised => message.clone(),
        ErrorKind::Syntax => format!("chat template: syntax error: {message} (in {place})"),
        ErrorKind::Failed => format!("chat template: {message} (in {place})"),
    }
}
