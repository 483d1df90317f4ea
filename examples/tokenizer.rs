//! Texts as tokens: bytes, or the byte-level BPE of a `tokenizer.json`, as GPT-2 has it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// The text of a file; an error has its name.
pub(crate) fn text(path: &Path) -> Result<String, Box<dyn Error>> {
    Ok(std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// What makes tokens of a text.
pub(crate) enum Tokenizer {
    /// A token for each byte.
    Bytes,
    Bpe(Bpe),
}

/// Byte pair encoding (Sennrich et al. 2016) of the bytes of words.
pub(crate) struct Bpe {
    /// The number of a token, by its bytes as [`letter`]s.
    vocabulary: BTreeMap<String, i32>,
    /// The rank of a pair that is merged; lower ones are merged first.
    ranks: BTreeMap<(String, String), usize>,
}

impl Tokenizer {
    /// The byte-level BPE of a `tokenizer.json`.
    pub(crate) fn read(path: &Path) -> Result<Tokenizer, Box<dyn Error>> {
        let wrong = |what: &str| format!("{}: {what}", path.display());
        let file: serde_json::Value =
            serde_json::from_str(&text(path)?).map_err(|e| wrong(&e.to_string()))?;
        let model = &file["model"];
        let entries = model["vocab"].as_object().ok_or_else(|| wrong("no model.vocab"))?;
        let number = |n: &serde_json::Value| n.as_i64().and_then(|n| i32::try_from(n).ok());
        let vocabulary = entries.iter().map(|(token, n)| Some((token.clone(), number(n)?)));
        let vocabulary: Option<BTreeMap<String, i32>> = vocabulary.collect();
        let vocabulary = vocabulary.ok_or_else(|| wrong("a token of model.vocab has no number"))?;
        let pairs = model["merges"].as_array().ok_or_else(|| wrong("no model.merges"))?;
        let pair = |merge: &serde_json::Value| match merge {
            // Older files have "a b", newer ones ["a", "b"].
            serde_json::Value::String(text) => {
                text.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string()))
            }
            _ => Some((merge[0].as_str()?.to_string(), merge[1].as_str()?.to_string())),
        };
        let ranks = pairs.iter().enumerate().map(|(rank, merge)| Some((pair(merge)?, rank)));
        let ranks: Option<BTreeMap<_, _>> = ranks.collect();
        let ranks = ranks.ok_or_else(|| wrong("a merge of model.merges is no pair"))?;
        Ok(Tokenizer::Bpe(Bpe { vocabulary, ranks }))
    }

    /// How many different tokens there are: numbers are below it.
    pub(crate) fn vocabulary(&self) -> u64 {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Bpe(bpe) => {
                bpe.vocabulary.values().max().map_or(0, |&most| most.max(0) as u64 + 1)
            }
        }
    }

    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<i32>, Box<dyn Error>> {
        let Tokenizer::Bpe(bpe) = self else {
            return Ok(text.bytes().map(i32::from).collect());
        };
        let mut known: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        let mut tokens = Vec::new();
        for word in words(text) {
            if !known.contains_key(word) {
                known.insert(word, bpe.word(word)?);
            }
            tokens.extend_from_slice(&known[word]);
        }
        Ok(tokens)
    }
}

impl Bpe {
    /// The tokens of a word: neighbours are merged, those of the lowest rank first, until none can be.
    fn word(&self, word: &str) -> Result<Vec<i32>, String> {
        let mut pieces: Vec<String> = word.bytes().map(|b| letter(b).to_string()).collect();
        loop {
            let rank = |pair: &[String]| self.ranks.get(&(pair[0].clone(), pair[1].clone()));
            let ranked = pieces.windows(2).enumerate().filter_map(|(k, p)| Some((*rank(p)?, k)));
            let Some((_, k)) = ranked.min() else { break };
            let right = pieces.remove(k + 1);
            pieces[k].push_str(&right);
        }
        let number = |piece: &String| {
            let found = self.vocabulary.get(piece).copied();
            found.ok_or_else(|| format!("the tokenizer has no token for {piece:?}"))
        };
        pieces.iter().map(number).collect()
    }
}

/// The letter that stands for a byte in files: itself where it can be seen, and otherwise one from U+0100 on.
fn letter(byte: u8) -> char {
    let seen = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if seen(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !seen(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The words of a text, which no token crosses, as GPT-2 divides it: short forms such as `'re`, letters, digits and other marks, each with a
/// space before it, and the white space between.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(word_length(rest));
        words.push(word);
        rest = after;
    }
    words
}

/// The bytes of the first word of a text that is not empty.
fn word_length(text: &str) -> usize {
    let short = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
    if let Some(form) = short.iter().find(|form| text.starts_with(**form)) {
        return form.len();
    }
    let run = |text: &str, of: fn(char) -> bool| {
        text.char_indices().find(|&(_, c)| !of(c)).map_or(text.len(), |(at, _)| at)
    };
    let marks = |c: char| !c.is_whitespace() && !c.is_alphabetic() && !c.is_numeric();
    let space = usize::from(text.starts_with(' '));
    let kinds: [fn(char) -> bool; 3] = [char::is_alphabetic, char::is_numeric, marks];
    let lengths = kinds.iter().map(|&of| run(&text[space..], of));
    if let Some(length) = lengths.max().filter(|&length| length > 0) {
        return space + length;
    }
    // White space is left whole at the end of the text; otherwise its last character goes with what follows.
    let blank = run(text, char::is_whitespace);
    let last = text[..blank].chars().next_back().map_or(0, char::len_utf8);
    if blank < text.len() && blank > last { blank - last } else { blank.max(1) }
}
