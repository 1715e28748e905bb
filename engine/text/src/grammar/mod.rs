//! Grammars: which tokens may come next, so that an answer matches a JSON schema, a regular expression, a list of choices or a Lark
//! grammar. The library llguidance does the work; this module gives it Lorry's tokenizer and limits. Called by abi.rs.

pub mod abi;
mod answer;
mod bounds;
mod crossing;
mod environment;
mod formats;
mod lark;
mod literal;
mod meeting;
mod parts;
mod pattern;
mod references;
mod schema;
mod space;
mod tag_format;
mod tags;
mod warm;
mod word;

use std::sync::{Arc, Mutex};

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::TokEnv;
use llguidance::{ParserFactory, TokenParser};
use serde_json::{json, Value};

pub use self::answer::{Answer, Grammar};
use self::environment::Environment;
use self::literal::{Digits, Place};
use self::schema::Size;
use self::warm::Sampler;
use crate::memory::measured;
use crate::tokenizer::Tokenizer;

/// The library's own options inside a schema, which a job may not set.
const OPTIONS_KEY: &str = "x-guidance";

/// For what schema.rs and lark.rs let through; only what is used of it takes memory.
const STACK_BYTES: usize = 256 << 20;

/// Of a structure's text. What compiles takes up to 300 times as much memory for a while, until it meets one of the library's limits.
const JSON_BYTES_MAX: usize = 2 << 20;
const CHOICES_BYTES_MAX: usize = 1 << 20;
const PATTERN_BYTES_MAX: usize = 128 << 10;
/// Of a compiled grammar; each answer may take as much. What warm.rs adds is bounded there.
const GRAMMAR_BYTES_MAX: usize = 32 << 20;

/// What a job's answer must match. The texts are the job's.
pub enum Structure<'a> {
    JsonSchema(&'a str),
    /// The syntax of Rust's crate `regex`, but `\d` and `\w` are ASCII's; the whole answer must match.
    Regex(&'a str),
    /// A JSON array of strings, one of which is the answer.
    Choices(&'a str),
    Lark(&'a str),
    /// JSON of Lorry's own: {"rules": rules of Lark, "schemas": [JSON schemas of the job, which the rules call schema_0, schema_1, ...]}.
    Rules(&'a str),
    /// JSON: tags in free text (tags.rs).
    Tags(&'a str),
}

/// How the JSON of an answer is written, whatever its schemas say.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// A regular expression: the white space after each `,` and `:`. There is no other.
    pub space: &'a str,
    /// Objects whose schema lists properties have no others.
    pub closed: bool,
}

/// Bounds that hold for each grammar of a job, however hostile: every sequence has lexer states of its own, and others wait while a grammar
/// is compiled and while the tokens that may follow are found. The library cannot be stopped at an amount of memory, and the process ends
/// where there is none: symbols and fuel keep a compilation below 200 MB.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 400_000,
        max_grammar_size: 100_000,
        max_lexer_states: 4_000 + warm::STATES_MAX,
        step_lexer_fuel: 50_000,
        step_max_items: 10_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

pub enum CompileError {
    /// What is wrong with the structure, as the library says it.
    Structure(String),
    /// Another attempt may succeed.
    NoThread(std::io::Error),
}

/// Compiles grammars for one tokenizer. Any number of threads may share it.
pub struct Compiler {
    factory: ParserFactory,
    environment: Arc<Environment>,
    sampler: Arc<Sampler>,
    digits: Arc<Digits>,
    specials: Vec<String>,
}

impl Compiler {
    /// `vocabulary`: of the model, which draws no other tokens. `end_tokens`: those that end an answer; at least one.
    pub fn new(tokenizer: &Arc<Tokenizer>, vocabulary: usize, end_tokens: &[u32]) -> Result<Self, String> {
        let environment = Arc::new(Environment::new(tokenizer, vocabulary, end_tokens)?);
        let sampler = Sampler::new(&environment)?;
        let shared: TokEnv = Arc::clone(&environment) as TokEnv;
        let mut factory = ParserFactory::new_simple(&shared).map_err(|error| error.to_string())?;
        factory.quiet();
        *factory.limits_mut() = limits();
        let digits = Arc::new(Digits::new(&shared));
        Ok(Compiler { factory, environment, sampler: Arc::new(sampler), digits, specials: tokenizer.specials() })
    }

    pub fn compile(&self, structure: &Structure, style: Style) -> Result<Grammar, CompileError> {
        // The library recurses along references and rules.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || self.compile_here(structure, style));
            let thread = thread.map_err(CompileError::NoThread)?;
            thread.join().unwrap_or_else(|_| Err("it is too complex".to_string())).map_err(CompileError::Structure)
        })
    }

    fn compile_here(&self, structure: &Structure, style: Style) -> Result<Grammar, String> {
        let (start, bytes) = measured(|| self.start_of(structure, style));
        let (parser, is_warm) = start?;
        let (_, answer_bytes) = measured(|| parser.deep_clone());
        let is_json = matches!(structure, Structure::JsonSchema(_) | Structure::Rules(_));
        let place = is_json.then(|| Place::new(&self.digits));
        let environment = Arc::clone(&self.environment);
        Ok(Grammar { start: Mutex::new(parser), environment, is_warm, place, bytes, answer_bytes })
    }

    /// Where answers begin, and whether that has the states for it.
    fn start_of(&self, structure: &Structure, style: Style) -> Result<(TokenParser, bool), String> {
        let (cold, bytes) = measured(|| self.cold_start_of(structure, style));
        let cold = cold?;
        if bytes > GRAMMAR_BYTES_MAX {
            let (megabytes, most) = (bytes >> 20, GRAMMAR_BYTES_MAX >> 20);
            return Err(format!("it is too large: compiled, it takes {megabytes} MiB of memory; supported are up to {most}"));
        }
        Ok(warm::warmed(&cold, &self.sampler).map_or((cold, false), |warm| (warm, true)))
    }

    fn cold_start_of(&self, structure: &Structure, style: Style) -> Result<TokenParser, String> {
        let grammar = self.grammar_of(structure, style)?;
        let mut start = self.checked_parser_of(grammar).map_err(|message| match structure {
            Structure::Rules(_) | Structure::Tags(_) => message_of(without_place(&message)),
            _ => message_of(message),
        })?;
        start.start_without_prompt();
        // The library computes states as it needs them: a grammar that is too complex from the first token on is refused here.
        if !start.stopped() && self.environment.forced(&mut start, None).is_empty() {
            start.compute_mask().map_err(message_of)?;
        }
        if start.stopped() {
            return Err("only an empty answer would match".to_string());
        }
        Ok(start)
    }

    fn checked_parser_of(&self, grammar: TopLevelGrammar) -> Result<TokenParser, String> {
        let (environment, limits) = (self.factory.tok_env().clone(), self.factory.limits().clone());
        let read = GrammarInit::Serialized(grammar).to_internal(Some(environment), limits);
        let (rules, words) = read.map_err(|error| error.to_string())?;
        crossing::check(words.regex_builder.exprset())?;
        self.factory.create_parser_from_init_default(GrammarInit::Internal(rules, words)).map_err(|error| error.to_string())
    }

    fn grammar_of(&self, structure: &Structure, style: Style) -> Result<TopLevelGrammar, String> {
        match structure {
            Structure::JsonSchema(schema) => {
                check_size("the schema is", schema, JSON_BYTES_MAX)?;
                let schema: Value = serde_json::from_str(schema).map_err(|error| format!("the schema is not JSON: {error}"))?;
                Ok(TopLevelGrammar::from_json_schema(prepared(schema, style, &mut Size::default())?))
            }
            Structure::Regex(regex) => {
                check_size("the regular expression is", regex, PATTERN_BYTES_MAX)?;
                Ok(TopLevelGrammar::from_regex(&pattern::ascii(regex)))
            }
            Structure::Choices(choices) => {
                check_size("the choices are", choices, CHOICES_BYTES_MAX)?;
                let choices: Vec<String> =
                    serde_json::from_str(choices).map_err(|error| format!("the choices are not strings: {error}"))?;
                let escaped: Vec<String> = choices.iter().map(|choice| regex::escape(choice)).collect();
                Ok(TopLevelGrammar::from_regex(&escaped.join("|")))
            }
            Structure::Lark(grammar) => {
                check_size("the grammar is", grammar, PATTERN_BYTES_MAX)?;
                lark::check(grammar)?;
                Ok(TopLevelGrammar::from_lark(grammar.to_string()))
            }
            Structure::Rules(text) => rules_of(text),
            Structure::Tags(text) => {
                check_size("the structural tags are", text, JSON_BYTES_MAX)?;
                let specials: Vec<&str> = self.specials.iter().map(String::as_str).collect();
                Ok(TopLevelGrammar::from_lark(tags::rules(text, style, &specials)?))
            }
        }
    }
}

/// The library's message, in words that do not speak of the library.
fn message_of(error: impl std::fmt::Display) -> String {
    let message = error.to_string();
    if message.starts_with("panic") || message.starts_with("lexer error") {
        return "it is too complex".to_string();
    }
    // Its fuel for one text's patterns was used up.
    if message.starts_with("Unable to determine if regex is empty") {
        return crossing::TOO_MANY_WAYS.to_string();
    }
    let message = message.replace("<non-verbose/>", "").replace(" without 'referencing' feature", "");
    let message = message.replace(" Enable 'coerce_one_of' option to approximate oneOf with anyOf", " Use anyOf");
    match message.trim() {
        "NoExtension" | "NoExtensionBias" => "nothing matches it".to_string(),
        message if message.starts_with("initial lexer configuration") || message.starts_with("grammar size") => {
            "it is too large: it lists too many texts, patterns or rules; give fewer, or shorter ones".to_string()
        }
        message => message.to_string(),
    }
}

/// Of a message on rules that the job did not write: without the place in them, and the lines there.
fn without_place(message: &str) -> &str {
    let line = message.lines().next().unwrap_or(message);
    line.strip_prefix("at ").and_then(|rest| rest.split_once("): ")).map_or(line, |(_, rest)| rest)
}

fn check_size(what: &str, text: &str, most: usize) -> Result<(), String> {
    if text.len() > most {
        return Err(format!("{what} too long: {} bytes; supported are up to {most}", text.len()));
    }
    Ok(())
}

fn rules_of(text: &str) -> Result<TopLevelGrammar, String> {
    check_size("the functions' schemas are", text, JSON_BYTES_MAX)?;
    let parts: Value = serde_json::from_str(text).map_err(|error| format!("the rules are not JSON: {error}"))?;
    let (Some(rules), Some(schemas)) = (parts["rules"].as_str(), parts["schemas"].as_array()) else {
        return Err("the rules need the members rules and schemas".to_string());
    };
    let mut lark = rules.to_string();
    let mut size = Size::default();
    for (index, schema) in schemas.iter().enumerate() {
        lark.push_str(&format!("schema_{index}: %json {}\n", prepared(schema.clone(), Style { space: " ?", closed: false }, &mut size)?));
    }
    Ok(TopLevelGrammar::from_lark(lark))
}

/// A schema of the job, checked, with the options that say where white space may be. `size`: of the grammar, to which it is added.
fn prepared(schema: Value, style: Style, size: &mut Size) -> Result<Value, String> {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        Value::Bool(true) => serde_json::Map::new(),
        _ => return Err("a schema is a JSON object".to_string()),
    };
    if schema.contains_key(OPTIONS_KEY) {
        return Err(format!("the schema may not have the key {OPTIONS_KEY}"));
    }
    schema::prepare(&mut schema, style.closed, size)?;
    let space = space::checked(style.space)?;
    schema.insert(
        OPTIONS_KEY.to_string(),
        // With \u, a name could be written in two ways, and pass for another.
        json!({
            "json_allowed_escapes": "nrbtf\\\"",
            "whitespace_flexible": false,
            "item_separator": format!(",(?:{space})"),
            "key_separator": format!(":(?:{space})"),
        }),
    );
    let schema = Value::Object(schema);
    meeting::check(&schema)?;
    Ok(schema)
}
