//! Chat templates, rendered as transformers' apply_chat_template renders them. jinja/ is the language; here are a model's templates, the
//! variables that transformers sets, and the changes that vLLM makes to OpenAI's messages so that a template takes them. Called by abi.rs;
//! any number of threads may share a template.

use std::collections::HashMap;

use serde_json::{json, Map, Value as Json};

use crate::jinja::{Contents, Error, ErrorKind, Template};
use crate::job_json::parse;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Variables that the renderer sets itself; a job may not set them in `extra`.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

pub struct ChatTemplate {
    /// By name.
    templates: HashMap<String, ModelTemplate>,
    special_tokens: Map<String, Json>,
}

struct ModelTemplate {
    template: Template,
    source: String,
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
            let Json::String(source) = source else {
                return Err(format!("description: template {name} is not a string"));
            };
            let template = Template::new(&source).map_err(|error| message_of(&error, &name))?;
            templates.insert(name, ModelTemplate { template, source });
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
        variables.insert("messages".to_string(), template.messages_from(request.messages)?);
        variables.insert("tools".to_string(), tools);
        variables.insert("add_generation_prompt".to_string(), Json::Bool(request.add_generation_prompt));
        template.template.render(&variables).map_err(|error| message_of(&error, name))
    }
}

impl ModelTemplate {
    /// OpenAI's messages as this template takes them: vLLM's changes, and transformers' names of a model's reasoning.
    fn messages_from(&self, text: &str) -> Result<Json, String> {
        let values = match parse("messages", text)? {
            Json::Array(values) => values,
            other => return Err(format!("messages must be a list, not {}", kind_of(&other))),
        };
        let mut messages = Vec::with_capacity(values.len());
        for (index, value) in values.into_iter().enumerate() {
            match value {
                Json::Object(message) => messages.push(without_absent(message)),
                other => return Err(format!("messages[{index}] must be an object, not {}", kind_of(&other))),
            }
        }
        if messages.iter().any(|message| role_of(message) == Some("developer")) && !self.names_role("developer") {
            messages = with_system_first(messages);
        }
        for message in &mut messages {
            let contents = self.contents_of(message);
            shape_content(message, contents);
            name_reasoning(message);
        }
        Ok(Json::Array(messages.into_iter().map(Json::Object).collect()))
    }

    /// As in vLLM: the role stands in the template as a text.
    fn names_role(&self, role: &str) -> bool {
        ['"', '\''].into_iter().any(|quote| self.source.contains(&format!("{quote}{role}{quote}")))
    }

    /// As in vLLM, a tool's result is a text even if the template walks over parts; not if it has no branch for tools.
    fn contents_of(&self, message: &Map<String, Json>) -> Contents {
        let contents = self.template.contents();
        let is_text = role_of(message) == Some("tool") && (contents != Contents::Parts || self.names_role("tool"));
        if is_text {
            Contents::Text
        } else {
            contents
        }
    }
}

fn role_of(message: &Map<String, Json>) -> Option<&str> {
    message.get("role").and_then(Json::as_str)
}

/// null stands for a member that is absent, and so does an empty list of calls.
fn without_absent(message: Map<String, Json>) -> Map<String, Json> {
    let is_absent = |name: &str, value: &Json| value.is_null() || (name == "tool_calls" && value.as_array().is_some_and(Vec::is_empty));
    message.into_iter().filter(|(name, value)| !is_absent(name, value)).collect()
}

/// The developer's messages are the system's. If these are several, or not at the start, they are one message at the start.
fn with_system_first(messages: Vec<Map<String, Json>>) -> Vec<Map<String, Json>> {
    let (mut system, mut others) = (Vec::new(), Vec::new());
    let mut in_place = true;
    for mut message in messages {
        if matches!(role_of(&message), Some("developer" | "system")) {
            in_place &= system.is_empty() && others.is_empty();
            message.insert("role".to_string(), json!("system"));
            system.push(message);
        } else {
            others.push(message);
        }
    }
    if !in_place {
        let texts: Vec<String> =
            system.iter().filter_map(|message| text_of(message.get("content"))).filter(|text| !text.is_empty()).collect();
        system = vec![Map::from_iter([("role".to_string(), json!("system")), ("content".to_string(), json!(texts.join("\n\n")))])];
    }
    system.append(&mut others);
    system
}

/// The text of a content that is nothing else: of several parts, a line each.
fn text_of(content: Option<&Json>) -> Option<String> {
    match content? {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => {
            let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text").and_then(Json::as_str)).collect();
            texts.map(|texts| texts.join("\n"))
        }
        _ => None,
    }
}

/// Makes the content a text or a list of parts; a missing one is empty.
fn shape_content(message: &mut Map<String, Json>, contents: Contents) {
    let content = message.get("content");
    let shaped = match (contents, content) {
        (Contents::Parts, None) => Some(json!([])),
        (Contents::Parts, Some(Json::String(text))) => Some(json!([{"type": "text", "text": text}])),
        (Contents::Text | Contents::Both, None) => Some(json!("")),
        (Contents::Text, Some(Json::Array(_))) => text_of(content).map(Json::String),
        _ => None,
    };
    if let Some(shaped) = shaped {
        message.insert("content".to_string(), shaped);
    }
}

/// Sets `thinking` and `reasoning_content` from any of the names of a model's reasoning, as transformers does.
fn name_reasoning(message: &mut Map<String, Json>) {
    if let Some(reasoning) = ["reasoning_content", "thinking", "reasoning"].iter().find_map(|&name| message.get(name)).cloned() {
        let mut aliased = Map::new();
        aliased.insert("thinking".to_string(), reasoning.clone());
        aliased.append(message);
        aliased.insert("reasoning_content".to_string(), reasoning);
        *message = aliased;
    }
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
