//! Turns a structural tag into rules of Lark. llguidance divides a text into the longest words that it can, without a way back, and then
//! looks at the words: where a word might also be the beginning of a longer one, a text that matches could not be written. So what is
//! regular becomes one word, and a tag whose words could be confused is refused. Called by tags.rs.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use serde_json::Value;

use super::word::{times, Bytes, Facts, Fuel, Word, TOO_COMPLEX};

/// Of words and schemas, which each become a rule.
const LEAVES_MAX: usize = 2_000;
/// Of the places that an answer may have come to.
const STATES_MAX: usize = 2_000;

/// Characters of a word in an error.
const SHOWN_MAX: usize = 100;

const NUMBER_FIRST: &[u8] = b"-0123456789";
/// With which a number goes on.
const NUMBER_ONWARD: &[u8] = b"0123456789.eE";

/// What an answer, or a part of it, consists of.
#[derive(Clone)]
pub enum Part {
    Word(Word),
    /// A schema, by its place in the list of all.
    Json(usize),
    Sequence(Vec<Part>),
    Or(Vec<Part>),
    Repeat(Box<Part>, u32, Option<u32>),
}

impl Part {
    pub fn text(text: &str) -> Part {
        Part::Word(Word::Text(text.to_string()))
    }

    /// With as few and as long words as possible.
    fn merged(self) -> Part {
        match self {
            Part::Sequence(parts) => {
                let mut all = Vec::new();
                parts.into_iter().for_each(|part| match part.merged() {
                    Part::Sequence(inner) => all.extend(inner),
                    part => all.push(part),
                });
                let mut merged: Vec<Part> = Vec::new();
                for part in all {
                    match (part, merged.last_mut()) {
                        (Part::Word(word), Some(Part::Word(before))) => {
                            *before = Word::concat([std::mem::replace(before, Word::Or(Vec::new())), word]);
                        }
                        (part, _) => merged.push(part),
                    }
                }
                match merged.len() {
                    1 => merged.remove(0),
                    _ => Part::Sequence(merged),
                }
            }
            Part::Or(parts) => {
                let (mut words, mut others) = (Vec::new(), Vec::new());
                parts.into_iter().for_each(|part| match part.merged() {
                    Part::Word(word) => words.push(word),
                    part => others.push(part),
                });
                if !words.is_empty() {
                    others.push(Part::Word(Word::or(words)));
                }
                match others.len() {
                    1 => others.remove(0),
                    _ => Part::Or(others),
                }
            }
            Part::Repeat(part, least, most) => match part.merged() {
                Part::Word(word) => Part::Word(Word::Repeat(Box::new(word), least, most)),
                part => Part::Repeat(Box::new(part), least, most),
            },
            leaf => leaf,
        }
    }
}

/// Rules of Lark. `schemas`: prepared ones, to which the parts refer. The error says what is not supported.
pub fn rules(part: Part, schemas: &[Value]) -> Result<String, String> {
    let part = part.merged();
    let mut leaves = Leaves { all: Vec::new(), schemas, fuel: Fuel::default() };
    let edges = leaves.edges_of(&part)?;
    leaves.check(&edges)?;
    let mut rules = Rules::default();
    let start = rules.name_of(&part);
    for (index, schema) in schemas.iter().enumerate() {
        writeln!(rules.text, "schema_{index}: %json {schema}").unwrap();
    }
    Ok(format!("start: {start}\n{}", rules.text))
}

/// Each with a name, as Lark may not be nested deeply.
#[derive(Default)]
struct Rules {
    text: String,
    words: HashMap<Word, String>,
    parts: usize,
}

impl Rules {
    fn word(&mut self, word: &Word) -> String {
        if let Some(name) = self.words.get(word) {
            return name.clone();
        }
        let body = word.lark(&mut |word| self.word(word));
        let name = format!("WORD_{}", self.words.len());
        writeln!(self.text, "{name}: {body}").unwrap();
        self.words.insert(word.clone(), name.clone());
        name
    }

    fn name_of(&mut self, part: &Part) -> String {
        let body = match part {
            Part::Word(word) if word.is_empty_text() => return "\"\"".to_string(),
            Part::Word(word) => return self.word(word),
            Part::Json(schema) => return format!("schema_{schema}"),
            Part::Sequence(parts) => self.names_of(parts, " "),
            Part::Or(parts) => self.names_of(parts, " | "),
            Part::Repeat(part, least, most) => format!("({}){}", self.name_of(part), times(*least, *most)),
        };
        let name = format!("part_{}", self.parts);
        self.parts += 1;
        writeln!(self.text, "{name}: {body}").unwrap();
        name
    }

    fn names_of(&mut self, parts: &[Part], between: &str) -> String {
        let names: Vec<String> = parts.iter().map(|part| self.name_of(part)).collect();
        if names.is_empty() {
            "\"\"".to_string()
        } else {
            names.join(between)
        }
    }
}

/// A place in the tag where a word or a schema stands.
enum Leaf {
    Word { word: Word, facts: Facts },
    Json { first: Bytes, may_be_number: bool },
}

impl Leaf {
    fn first(&self) -> &Bytes {
        match self {
            Leaf::Word { facts, .. } => &facts.first,
            Leaf::Json { first, .. } => first,
        }
    }

    fn is_nullable(&self) -> bool {
        matches!(self, Leaf::Word { facts: Facts { nullable: true, .. }, .. })
    }

    /// What must not stand beside each other: words that are the same are one.
    fn is_same(&self, other: &Leaf) -> bool {
        match (self, other) {
            (Leaf::Word { word, .. }, Leaf::Word { word: other, .. }) => word == other,
            (Leaf::Json { .. }, Leaf::Json { .. }) => true,
            _ => false,
        }
    }

    /// Whether the two cannot be told apart where either may come. `bytes`: of which one comes after this one, if anything does.
    fn confuses(&self, bytes: &Bytes, other: &Leaf, fuel: &mut Fuel) -> Result<bool, String> {
        match (self, other) {
            (Leaf::Word { word, .. }, Leaf::Word { word: other, .. }) => {
                Ok((word != other && word.meets(other, fuel)?) || word.runs_on(bytes, other, fuel)?)
            }
            (Leaf::Json { may_be_number, .. }, Leaf::Json { .. }) => {
                Ok(*may_be_number && bytes.meets(&Bytes::of(NUMBER_ONWARD.iter().copied())))
            }
            _ => Ok(self.first().meets(other.first())),
        }
    }
}

/// Of a part: the leaves that may come first and last.
struct Edges {
    first: BTreeSet<usize>,
    last: BTreeSet<usize>,
    nullable: bool,
}

struct Leaves<'a> {
    /// With those that may follow.
    all: Vec<(Leaf, BTreeSet<usize>)>,
    schemas: &'a [Value],
    fuel: Fuel,
}

impl Leaves<'_> {
    fn add(&mut self, leaf: Leaf) -> Result<Edges, String> {
        if self.all.len() == LEAVES_MAX {
            return Err(format!("it is too large: it consists of more than {LEAVES_MAX} parts"));
        }
        let index = self.all.len();
        let nullable = leaf.is_nullable();
        self.all.push((leaf, BTreeSet::new()));
        Ok(Edges { first: BTreeSet::from([index]), last: BTreeSet::from([index]), nullable })
    }

    fn follow(&mut self, last: &BTreeSet<usize>, first: &BTreeSet<usize>) {
        last.iter().for_each(|&leaf| self.all[leaf].1.extend(first));
    }

    /// Glushkov's construction.
    fn edges_of(&mut self, part: &Part) -> Result<Edges, String> {
        match part {
            Part::Word(word) if word.is_empty_text() => Ok(Edges { first: BTreeSet::new(), last: BTreeSet::new(), nullable: true }),
            Part::Word(word) => {
                let facts = word.facts(&mut self.fuel)?;
                self.add(Leaf::Word { word: word.clone(), facts })
            }
            Part::Json(schema) => {
                let first = first_bytes(&self.schemas[*schema]);
                let may_be_number = first.meets(&Bytes::of(NUMBER_FIRST.iter().copied()));
                self.add(Leaf::Json { first, may_be_number })
            }
            Part::Sequence(parts) => {
                let mut all = Edges { first: BTreeSet::new(), last: BTreeSet::new(), nullable: true };
                for part in parts {
                    let edges = self.edges_of(part)?;
                    self.follow(&all.last, &edges.first);
                    if all.nullable {
                        all.first.extend(&edges.first);
                    }
                    if !edges.nullable {
                        all.last.clear();
                    }
                    all.last.extend(&edges.last);
                    all.nullable &= edges.nullable;
                }
                Ok(all)
            }
            Part::Or(parts) => {
                let mut all = Edges { first: BTreeSet::new(), last: BTreeSet::new(), nullable: false };
                for part in parts {
                    let edges = self.edges_of(part)?;
                    all.first.extend(&edges.first);
                    all.last.extend(&edges.last);
                    all.nullable |= edges.nullable;
                }
                Ok(all)
            }
            Part::Repeat(part, least, most) => {
                let mut edges = self.edges_of(part)?;
                if *most != Some(1) {
                    self.follow(&edges.last.clone(), &edges.first.clone());
                }
                edges.nullable |= *least == 0;
                Ok(edges)
            }
        }
    }

    /// Goes through the sets of leaves of which the next word may be one, wherever an answer may have come to.
    fn check(&mut self, edges: &Edges) -> Result<(), String> {
        let mut seen = BTreeSet::from([edges.first.clone()]);
        let mut waiting = vec![edges.first.clone()];
        while let Some(next) = waiting.pop() {
            let groups = self.groups_of(&next);
            let after: Vec<BTreeSet<usize>> =
                groups.iter().map(|group| group.iter().flat_map(|&leaf| self.all[leaf].1.iter().copied()).collect()).collect();
            for (group, after) in groups.iter().zip(&after) {
                let mut bytes = Bytes::default();
                after.iter().for_each(|&leaf| bytes.add(self.all[leaf].0.first()));
                self.check_group(group, &bytes, &groups)?;
            }
            for set in after {
                if seen.insert(set.clone()) {
                    waiting.push(set);
                }
            }
            if seen.len() > STATES_MAX {
                return Err(TOO_COMPLEX.to_string());
            }
        }
        Ok(())
    }

    /// The same words, and all schemas, together.
    fn groups_of(&self, leaves: &BTreeSet<usize>) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &leaf in leaves {
            match groups.iter_mut().find(|group| self.all[group[0]].0.is_same(&self.all[leaf].0)) {
                Some(group) => group.push(leaf),
                None => groups.push(vec![leaf]),
            }
        }
        groups
    }

    /// `bytes`: of which one may follow the group.
    fn check_group(&mut self, group: &[usize], bytes: &Bytes, others: &[Vec<usize>]) -> Result<(), String> {
        let is_word = matches!(self.all[group[0]].0, Leaf::Word { .. });
        let members = if is_word { &group[..1] } else { group };
        for &leaf in members {
            for &other in others.iter().flat_map(|other| if is_word { &other[..1] } else { &other[..] }) {
                if self.all[leaf].0.confuses(bytes, &self.all[other].0, &mut self.fuel)? {
                    return Err(self.confusion(leaf, other));
                }
            }
        }
        Ok(())
    }

    fn confusion(&self, one: usize, other: usize) -> String {
        let shown = |leaf: usize| match &self.all[leaf].0 {
            Leaf::Word { word, .. } => shortened(&word.to_string()),
            Leaf::Json { .. } => "a schema's value".to_string(),
        };
        let why = "so where it ends could not be told: let it end with a text of its own, or list what it must not have in excludes";
        if one == other {
            return format!("{} can go on with what may also follow it, {why}", shown(one));
        }
        format!("{} and {} may stand at one place and begin alike, {why}", shown(one), shown(other))
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// With which values of a schema may begin.
fn first_bytes(schema: &Value) -> Bytes {
    let of_value = |value: &Value| value.to_string().as_bytes()[0];
    if let Some(value) = schema.get("const") {
        return Bytes::of([of_value(value)]);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Bytes::of(values.iter().map(of_value));
    }
    let of_type = |name: &str| -> &[u8] {
        match name {
            "object" => b"{",
            "array" => b"[",
            "string" => b"\"",
            "boolean" => b"tf",
            "null" => b"n",
            _ => NUMBER_FIRST,
        }
    };
    let names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec!["object", "array", "string", "boolean", "null", "number"],
    };
    Bytes::of(names.into_iter().flat_map(|name| of_type(name).iter().copied()))
}
