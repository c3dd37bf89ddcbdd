//! Content blocks of a growing message, and decoding of JSON strings for display.

use serde_json::value::RawValue;

use super::Budget;
use super::halves::{PAIR, is_pair_at, without_halves};
use wire::acp::RawObject;

/// The blocks of a message. Consecutive texts are joined. Other blocks stay raw.
#[derive(Debug, Default)]
pub(super) struct Content(Vec<Block>);

#[derive(Debug)]
enum Block {
    /// The inside of a JSON string, with its escapes. So a lone surrogate is preserved, and a surrogate pair
    /// that is split between two chunks is joined again.
    Text(String),
    Raw(Box<RawValue>),
}

impl Content {
    pub(super) fn push(&mut self, block: &RawValue, budget: &mut Budget) {
        match plain_text(block) {
            Some("") => {}
            Some(text) => self.push_text(text, budget),
            None if !budget.reserve(block.get().len()) => {}
            None => self.0.push(Block::Raw(block.to_owned())),
        }
    }

    fn push_text(&mut self, text: &str, budget: &mut Budget) {
        let text = &text[..cut(text, budget.reserve_up_to(text.len()))];
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(Block::Text(joined)) => joined.push_str(text),
            _ => self.0.push(Block::Text(text.to_owned())),
        }
    }

    /// Replaces all blocks. Null clears them.
    pub(super) fn replace(&mut self, blocks: &RawValue, budget: &mut Budget) {
        let Ok(blocks) = serde_json::from_str::<Option<Vec<&RawValue>>>(blocks.get()) else {
            return;
        };
        for old in self.0.drain(..) {
            budget.release(match old {
                Block::Text(text) => text.len(),
                Block::Raw(raw) => raw.get().len(),
            });
        }
        for block in blocks.unwrap_or_default() {
            self.push(block, budget);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text(text) => decode(&format!("\"{text}\"")),
            Block::Raw(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    pub(super) fn finish(self) -> Vec<Box<RawValue>> {
        self.0.into_iter().map(Block::finish).collect()
    }
}

impl Block {
    fn finish(self) -> Box<RawValue> {
        match self {
            Self::Text(text) => {
                RawValue::from_string(format!(r#"{{"type":"text","text":"{text}"}}"#))
                    .expect("concatenated string contents are a valid string content")
            }
            Self::Raw(raw) => raw,
        }
    }
}

/// The length of the longest prefix of at most `max` bytes that ends at a character boundary. `text` is the
/// inside of a JSON string. The prefix splits neither an escape nor a pair of escaped surrogates.
fn cut(text: &str, max: usize) -> usize {
    if text.len() <= max {
        return text.len();
    }
    let mut rest = text;
    loop {
        let at = text.len() - rest.len();
        let length = match rest.as_bytes() {
            bytes if is_pair_at(bytes) => PAIR,
            [b'\\', b'u', ..] => PAIR / 2,
            [b'\\', ..] => 2,
            _ => rest.chars().next().map_or(0, char::len_utf8),
        };
        match rest.get(length..) {
            Some(after) if length > 0 && at + length <= max => rest = after,
            _ => return at,
        }
    }
}

/// The inside of the JSON string in a text block. `None` if the block has annotations.
fn plain_text(block: &RawValue) -> Option<&str> {
    let annotations = RawObject::parse(block)?.get("annotations");
    if annotations.is_some_and(|value| value.get() != "null") {
        return None;
    }
    let text = raw_text(block)?.get();
    Some(&text[1..text.len() - 1])
}

/// The text of a text block, as a string in JSON.
pub fn raw_text(block: &RawValue) -> Option<&RawValue> {
    let block = RawObject::parse(block)?;
    if block.text("type").as_deref() != Some("text") {
        return None;
    }
    block.get("text").filter(|text| text.get().starts_with('"'))
}

/// The text of a text block for display. Lone surrogates become replacement characters.
pub fn text_of(block: &RawValue) -> Option<String> {
    decode(raw_text(block)?.get())
}

/// The elements of an array; empty for any other value.
pub fn array(raw: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// The string member with this name, for display.
pub fn text(object: &RawObject<'_>, key: &str) -> Option<String> {
    decode(object.get(key)?.get())
}

/// Decodes a JSON string for display. A lone surrogate becomes one replacement character. `None` if it is not a JSON string.
pub fn decode(json: &str) -> Option<String> {
    serde_json::from_str(&without_halves(json)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(blocks: &[&str], budget: &mut Budget) -> Content {
        let mut content = Content::default();
        for block in blocks {
            content.push(serde_json::from_str(block).unwrap(), budget);
        }
        content
    }

    fn finished(content: Content) -> Vec<String> {
        content
            .finish()
            .iter()
            .map(|block| block.get().to_owned())
            .collect()
    }

    #[test]
    fn texts_join_and_other_blocks_stay_raw() {
        let image = r#"{"type":"image", "data":"","mimeType":"a/b"}"#;
        let noted = r#"{"type":"text","text":"n","annotations":{"priority":1.0}}"#;
        let content = content(
            &[
                r#"{"type":"text","text":""}"#,
                r#"{"type":"text","text":"a\n"}"#,
                r#"{"text":"é\"","type":"text","annotations":null,"_meta":{}}"#,
                image,
                noted,
                r#"{"type":"text","text":"z"}"#,
            ],
            &mut Budget::new(1000),
        );
        assert_eq!(content.text(), "a\né\"z");
        let text = r#"{"type":"text","text":"a\né\""}"#;
        assert_eq!(
            finished(content),
            [text, image, noted, r#"{"type":"text","text":"z"}"#]
        );
    }

    #[test]
    fn split_surrogate_pairs_join_and_lone_ones_pass() {
        let high = r#"{"type":"text","text":"\ud83d"}"#;
        let low = r#"{"type":"text","text":"\ude00"}"#;
        assert_eq!(content(&[high, low], &mut Budget::new(100)).text(), "😀");
        let lone = content(&[high], &mut Budget::new(100));
        assert_eq!(lone.text(), "\u{fffd}");
        assert_eq!(finished(lone), [high]);
    }

    #[test]
    fn malformed_blocks_stay_raw() {
        for odd in [
            "1",
            "null",
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":7}"#,
            r#"{"text":"a"}"#,
        ] {
            assert_eq!(finished(content(&[odd], &mut Budget::new(100))), [odd]);
        }
    }

    #[test]
    fn oversized_text_is_cut_at_character_boundary() {
        for (text, max, kept) in [
            ("abc", 3, "abc"),
            ("abc", 2, "ab"),
            ("abc", 0, ""),
            ("aé", 2, "a"),
            (r"a\nb", 2, "a"),
            (r"a\nb", 3, r"a\n"),
            (r"a\u00e9b", 6, "a"),
            (r"a\u00e9b", 7, r"a\u00e9"),
            (r"\ud83d\ude00!", 11, ""),
            (r"\uD83D\uDE00!", 12, r"\uD83D\uDE00"),
            (r"\\\n", 3, r"\\"),
        ] {
            assert_eq!(&text[..cut(text, max)], kept, "{text} {max}");
        }
        let mut budget = Budget::new(4);
        let long = content(
            &[
                r#"{"type":"text","text":"a\nbc"}"#,
                r#"{"type":"text","text":"d"}"#,
            ],
            &mut budget,
        );
        assert_eq!((long.text().as_str(), budget.exceeded), ("a\nb", true));
    }

    #[test]
    fn replacement_releases_budget() {
        let mut budget = Budget::new(3);
        let mut content = content(&[r#"{"type":"text","text":"abc"}"#], &mut budget);
        content.replace(
            serde_json::from_str(r#"[{"type":"text","text":"xyz"}]"#).unwrap(),
            &mut budget,
        );
        assert!(!budget.exceeded);
        content.push(
            serde_json::from_str(r#"{"type":"text","text":"!"}"#).unwrap(),
            &mut budget,
        );
        assert!(budget.exceeded);
        assert_eq!(content.text(), "xyz");
        content.replace(serde_json::from_str("{}").unwrap(), &mut budget);
        assert_eq!(content.text(), "xyz");
        content.replace(RawValue::NULL, &mut budget);
        assert!(content.is_empty() && budget.left == 3);
    }
}
