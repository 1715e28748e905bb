//! Reads the fields of a SentencePiece model (sentencepiece_model.proto) that tokenizers need. Called by convert. Any bytes end in a model
//! or an error; memory is bounded by the file.

use super::TOKENS_MAX;

/// Longer pieces do not occur: trainers make up to 16 characters, and the longest in use are runs of spaces.
const PIECE_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Unigram,
    Bpe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    Control,
    UserDefined,
    Other,
}

pub struct Piece<'a> {
    pub text: &'a str,
    pub score: f32,
    pub kind: PieceKind,
}

pub struct Model<'a> {
    pub pieces: Vec<Piece<'a>>,
    pub algorithm: Algorithm,
    pub unk_id: u32,
    /// Empty if the text is not normalized.
    pub charsmap: &'a [u8],
}

impl<'a> Model<'a> {
    pub fn read(file: &'a [u8]) -> Result<Self, String> {
        let mut model = Model { pieces: Vec::new(), algorithm: Algorithm::Unigram, unk_id: 0, charsmap: &[] };
        if file.is_empty() {
            return Err("the file is empty".to_string());
        }
        for field in Fields(file) {
            match field? {
                (1, Field::Bytes(_)) if model.pieces.len() == TOKENS_MAX => return Err(format!("there are more than {TOKENS_MAX} pieces")),
                (1, Field::Bytes(piece)) => {
                    model.pieces.push(read_piece(piece).map_err(|error| format!("piece {}: {error}", model.pieces.len()))?)
                }
                (2, Field::Bytes(trainer)) => model.read_trainer(trainer)?,
                (3, Field::Bytes(normalizer)) => model.read_normalizer(normalizer)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err("this is not a SentencePiece model: it has no pieces".to_string());
        }
        Ok(model)
    }

    fn read_trainer(&mut self, message: &[u8]) -> Result<(), String> {
        for field in Fields(message) {
            match field? {
                (3, Field::Number(1)) => self.algorithm = Algorithm::Unigram,
                (3, Field::Number(2)) => self.algorithm = Algorithm::Bpe,
                (3, Field::Number(3)) => return Err("models of whole words are not supported".to_string()),
                (3, Field::Number(4)) => return Err("models of characters are not supported".to_string()),
                (3, Field::Number(other)) => return Err(format!("there is no model type {other}")),
                (40, Field::Number(id)) => self.unk_id = u32::try_from(id).map_err(|_| format!("unk_id is {}", id as i64))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, message: &'a [u8]) -> Result<(), String> {
        for field in Fields(message) {
            if let (2, Field::Bytes(charsmap)) = field? {
                self.charsmap = charsmap;
            }
        }
        Ok(())
    }
}

fn read_piece(message: &[u8]) -> Result<Piece<'_>, String> {
    let mut piece = Piece { text: "", score: 0.0, kind: PieceKind::Other };
    for field in Fields(message) {
        match field? {
            (1, Field::Bytes(text)) if text.len() > PIECE_BYTES_MAX => {
                return Err(format!("has {} bytes; allowed are up to {PIECE_BYTES_MAX}", text.len()))
            }
            (1, Field::Bytes(text)) => piece.text = std::str::from_utf8(text).map_err(|_| "is not valid UTF-8".to_string())?,
            (2, Field::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, Field::Number(3)) => piece.kind = PieceKind::Control,
            (3, Field::Number(4)) => piece.kind = PieceKind::UserDefined,
            (3, Field::Number(_)) => piece.kind = PieceKind::Other,
            _ => {}
        }
    }
    if !piece.score.is_finite() {
        return Err(format!("its score is {}", piece.score));
    }
    Ok(piece)
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
    Fixed64,
}

/// The fields of a protobuf message. Ends after the first error.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, size: u64) -> Result<&'a [u8], String> {
        let size = usize::try_from(size).ok().filter(|&size| size <= self.0.len());
        let Some(size) = size else { return Err("this is not a SentencePiece model, or it ends too early".to_string()) };
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("this is not a SentencePiece model: a number has more than 10 bytes".to_string())
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), String> {
        let key = self.number()?;
        let field = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => self.take(8).map(|_| Field::Fixed64)?,
            2 => {
                let size = self.number()?;
                Field::Bytes(self.take(size)?)
            }
            5 => Field::Fixed32(self.take(4)?.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte))),
            other => return Err(format!("this is not a SentencePiece model: it has a field of wire type {other}")),
        };
        Ok((key >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
