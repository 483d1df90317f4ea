//! The flags and the sizes of models of texts, which examples share.

use crate::tokenizer::{Tokenizer, text};
use clap::{Args, value_parser};
use std::error::Error;
use std::path::PathBuf;

/// Flags of a model of texts.
#[derive(Args)]
pub(crate) struct TextModelFlags {
    /// The text.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/sonnets.txt"))]
    file: PathBuf,
    /// A `tokenizer.json` with a byte-level BPE, such as GPT-2's; otherwise bytes are tokens.
    #[arg(long)]
    tokenizer: Option<PathBuf>,
    /// The rows of the table of tokens; at least as many as the model needs.
    #[arg(long)]
    vocabulary: Option<u64>,
    #[arg(long)]
    layers: Option<usize>,
    #[arg(long)]
    heads: Option<u64>,
    /// A multiple of the heads.
    #[arg(long, value_parser = value_parser!(u64).range(1..=1 << 20))]
    features: Option<u64>,
    /// The tokens of a sequence.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    time: Option<u64>,
    /// The sequences of a batch.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub(crate) batch: Option<u64>,
    #[arg(long, default_value_t = 0.0)]
    dropout: f64,
}

/// How large a model is.
#[derive(Clone, Copy)]
pub(crate) struct TextModelSize {
    pub(crate) vocabulary: u64,
    pub(crate) time: u64,
    pub(crate) features: u64,
    pub(crate) heads: u64,
    pub(crate) layers: usize,
    pub(crate) dropout: f64,
}

impl TextModelFlags {
    /// The tokenizer, and the tokens of the text.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(crate) fn tokens(&self) -> Result<(Tokenizer, Vec<i32>), Box<dyn Error>> {
        let tokenizer = match &self.tokenizer {
            Some(path) => Tokenizer::read(path)?,
            None => Tokenizer::Bytes,
        };
        let tokens = tokenizer.encode(&text(&self.file)?)?;
        Ok((tokenizer, tokens))
    }

    /// The size that the flags give. Without flags it is twelve layers of 768 features and sequences of `time` tokens, or a small model that a
    /// processor trains within seconds.
    ///
    /// # Errors
    /// Where the table has fewer rows than the model has tokens.
    pub(crate) fn size(
        &self,
        tokens: u64,
        time: u64,
        small: bool,
    ) -> Result<TextModelSize, Box<dyn Error>> {
        let usual = |full: u64, less: u64| if small { less } else { full };
        let size = TextModelSize {
            vocabulary: self.vocabulary.unwrap_or(tokens),
            time: self.time.unwrap_or(usual(time, 32)),
            features: self.features.unwrap_or(usual(768, 32)),
            heads: self.heads.unwrap_or(usual(12, 2)),
            layers: self.layers.unwrap_or(usual(12, 2) as usize),
            dropout: self.dropout,
        };
        if size.vocabulary < tokens {
            let m = format!("--vocabulary {}: the model has {tokens} tokens", size.vocabulary);
            return Err(m.into());
        }
        Ok(size)
    }
}
