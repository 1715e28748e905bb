//! Texts and pairs of texts as encoder models read them: ids, token types and spans, truncated as the library truncates, but by a limit of
//! the call instead of one of the tokenizer. Called by abi.rs and tokenizer.rs.

use tokenizers::utils::truncation::truncate_encodings;
use tokenizers::{Encoding, PostProcessor, Token, TruncationDirection, TruncationParams, TruncationStrategy};

use crate::tokenizer::Tokenizer;

/// lorry_text_token
#[repr(C)]
#[derive(PartialEq)]
pub struct PlacedToken {
    id: i32,
    type_id: i32,
    text: i32,
    word: i32,
    begin: i32,
    end: i32,
    window: i32,
}

/// The limit counts the tokens that the post-processor adds.
pub struct Limit {
    pub max_tokens: usize,
    pub side: TruncationDirection,
    pub strategy: TruncationStrategy,
}

/// lorry_text_windows
#[repr(C)]
pub struct Windows {
    max_tokens: usize,
    stride: usize,
    windows_max: usize,
    repeated: usize,
}

impl Tokenizer {
    pub fn encode_pair(&self, first: &str, second: Option<&str>, limit: Option<&Limit>) -> Result<Vec<PlacedToken>, String> {
        let first = self.encode_text(first)?;
        let second = second.map(|text| self.encode_text(text)).transpose()?;
        let (first, second) = match limit {
            None => (first, second),
            Some(limit) => {
                let params = TruncationParams {
                    direction: limit.side,
                    max_length: self.room_for(limit, &first, second.as_ref())?,
                    strategy: limit.strategy,
                    stride: 0,
                };
                let (mut first, mut second) = truncate_encodings(first, second, &params).map_err(|error| error.to_string())?;
                // Processors combine each rest of the first text with each of the second.
                first.take_overflowing();
                second.as_mut().map(Encoding::take_overflowing);
                (first, second)
            }
        };
        let encoding = self.post_process(first, second, true)?;
        let mut tokens = Vec::with_capacity(encoding.len());
        place(&encoding, 0, &mut tokens)?;
        Ok(tokens)
    }

    /// Each window but the first repeats the last `stride` tokens of the one before, and all of them the tokens of the text's first
    /// `repeated` characters.
    pub fn encode_windows(&self, text: &str, windows: &Windows) -> Result<Vec<PlacedToken>, String> {
        let encoding = self.encode_text(text)?;
        let is_repeated = |&&(_, end): &&(usize, usize)| windows.repeated > 0 && end <= windows.repeated;
        let repeated = encoding.get_offsets().iter().take_while(is_repeated).count();
        let added = self.special_tokens_added(false);
        let room = windows.max_tokens.saturating_sub(added + repeated);
        if room == 0 {
            return Err(format!(
                "a window of {} has no room for the text beside {}{}",
                counted(windows.max_tokens, "token"),
                counted(added, "special token"),
                if repeated > 0 { format!(" and the prompt's {repeated}") } else { String::new() }
            ));
        }
        if windows.stride >= room {
            return Err(format!(
                "a stride of {} is too large: a window has room for {} of the text, so give at most {}",
                counted(windows.stride, "token"),
                counted(room, "token"),
                room - 1
            ));
        }
        let own = encoding.len() - repeated;
        let count = own.saturating_sub(room).div_ceil(room - windows.stride) + 1;
        if count > windows.windows_max {
            return Err(format!(
                "the text has {} of {}, and its job has room for {} more: split the job, or choose a smaller stride",
                counted(count, "window"),
                counted(windows.max_tokens, "token"),
                windows.windows_max
            ));
        }
        let (first, mut rest) = split(encoding, repeated);
        rest.truncate(room, windows.stride, TruncationDirection::Right);
        let others = rest.take_overflowing();
        let mut tokens = Vec::new();
        for (window, part) in std::iter::once(rest).chain(others).enumerate() {
            let mut whole = first.clone();
            whole.merge_with(part, false);
            place(&self.post_process(whole, None, true)?, window, &mut tokens)?;
        }
        Ok(tokens)
    }

    /// Whether both texts of a pair are in what the post-processor makes of them.
    pub fn takes_pairs(&self) -> bool {
        let word = || Encoding::from_tokens(vec![Token::new(0, "a".to_string(), (0, 1))], 0);
        match self.post_process(word(), Some(word()), true) {
            Ok(encoding) => [Some(0), Some(1)].iter().all(|text| encoding.get_sequence_ids().contains(text)),
            Err(_) => false,
        }
    }

    pub fn special_tokens_added(&self, pair: bool) -> usize {
        self.post_processor().map_or(0, |processor| processor.added_tokens(pair))
    }

    /// What the post-processor makes of texts that were encoded alone.
    pub fn post_process(&self, first: Encoding, second: Option<Encoding>, add_special_tokens: bool) -> Result<Encoding, String> {
        if let Some(processor) = self.post_processor() {
            return processor.process(first, second, add_special_tokens).map_err(|error| error.to_string());
        }
        let Some(mut second) = second else { return Ok(first) };
        second.set_type_ids(vec![1; second.len()]);
        let both = <dyn PostProcessor>::default_process(vec![first, second], add_special_tokens).map_err(|error| error.to_string())?;
        both.into_iter().next().ok_or_else(|| "the library lost the texts".to_string())
    }

    /// Tokens of the texts that fit into the limit: some of each text.
    fn room_for(&self, limit: &Limit, first: &Encoding, second: Option<&Encoding>) -> Result<usize, String> {
        let added = self.special_tokens_added(second.is_some());
        let (texts, least) = match (second, limit.strategy) {
            (None, _) => ("the text", 1),
            (Some(second), TruncationStrategy::OnlyFirst) => ("the first text beside the second", second.len() + first.len().min(1)),
            (Some(second), TruncationStrategy::OnlySecond) => ("the second text beside the first", first.len() + second.len().min(1)),
            (Some(second), TruncationStrategy::LongestFirst) => ("both texts", first.len().min(1) + second.len().min(1)),
        };
        match limit.max_tokens.checked_sub(added) {
            Some(room) if room >= least => Ok(room),
            _ => Err(format!(
                "a limit of {} leaves no room for {texts}: the tokenizer adds {}, so at least {} are needed",
                counted(limit.max_tokens, "token"),
                counted(added, "special token"),
                added + least
            )),
        }
    }
}

/// "1 token", "2 tokens"
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The first `count` tokens, and the others.
fn split(mut encoding: Encoding, count: usize) -> (Encoding, Encoding) {
    if count == 0 {
        return (Encoding::default(), encoding);
    }
    let mut others = encoding.clone();
    others.truncate(encoding.len() - count, 0, TruncationDirection::Left);
    others.take_overflowing();
    encoding.truncate(count, 0, TruncationDirection::Right);
    encoding.take_overflowing();
    (encoding, others)
}

fn place(encoding: &Encoding, window: usize, tokens: &mut Vec<PlacedToken>) -> Result<(), String> {
    let number = |value: usize| i32::try_from(value).map_err(|_| "the text has more than 2^31 characters".to_string());
    let texts = encoding.get_sequence_ids();
    for (i, &id) in encoding.get_ids().iter().enumerate() {
        let text = texts[i].map_or(Ok(-1), number)?;
        let (begin, end) = if text < 0 { (0, 0) } else { encoding.get_offsets()[i] };
        tokens.push(PlacedToken {
            id: id as i32,
            type_id: encoding.get_type_ids()[i] as i32,
            text,
            word: encoding.get_word_ids()[i].map_or(Ok(-1), |word| number(word as usize))?,
            begin: number(begin)?,
            end: number(end)?,
            window: number(window)?,
        });
    }
    Ok(())
}
