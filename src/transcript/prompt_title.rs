//! The title that a session takes from its first prompt.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::acp::RawObject;

/// The length of a title, in characters.
const MAX_CHARS: usize = 60;

/// The first line of the prompt with words, shortened at the end of a word. `None` if the prompt has no text.
pub(super) fn prompt_title(blocks: &RawValue) -> Option<String> {
    let blocks: Vec<&RawValue> = serde_json::from_str(blocks.get()).ok()?;
    blocks.into_iter().filter_map(text_of).find_map(|text| {
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(shortened(line))
    })
}

fn text_of(block: &RawValue) -> Option<Cow<'_, str>> {
    let text = RawObject::parse(block)?.get("text")?;
    serde_json::from_str::<Text<'_>>(text.get())
        .ok()
        .map(|text| text.0)
}

/// A text that borrows from its JSON if it has no escape sequences.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn shortened(line: &str) -> String {
    let end_of = |chars| line.char_indices().nth(chars).map(|(end, _)| end);
    let (Some(_), Some(end)) = (end_of(MAX_CHARS), end_of(MAX_CHARS - 1)) else {
        return line.to_owned();
    };
    let cut = &line[..end];
    let words = cut
        .rsplit_once(char::is_whitespace)
        .map_or(cut, |(words, _)| words.trim_end());
    format!("{words}\u{2026}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(blocks: &str) -> Option<String> {
        prompt_title(serde_json::from_str(blocks).unwrap())
    }

    #[test]
    fn first_line_with_words_is_the_title() {
        assert_eq!(
            title(r#"[{"type":"text","text":"\n  Fix the \"roof\" \nnow"}]"#).unwrap(),
            r#"Fix the "roof""#
        );
        assert_eq!(
            title(r#"[{"type":"image","data":"AAAA"},{"type":"text","text":"Look"}]"#).unwrap(),
            "Look"
        );
    }

    #[test]
    fn prompt_without_text_has_no_title() {
        for blocks in [
            r#"[{"type":"image","data":"AAAA"}]"#,
            r#"[{"type":"text","text":" \n "}]"#,
            "[]",
            "[1]",
            "{}",
        ] {
            assert_eq!(title(blocks), None, "{blocks}");
        }
        assert_eq!(
            title(r#"[{"type":"text","text":"\ud800"}]"#),
            None,
            "text that is not Unicode"
        );
    }

    #[test]
    fn long_line_ends_after_a_word() {
        let line = "word ".repeat(30);
        let short = title(&format!(r#"[{{"type":"text","text":"{line}"}}]"#)).unwrap();
        assert_eq!(short, format!("{}\u{2026}", "word ".repeat(11).trim_end()));
        let long = title(&format!(
            r#"[{{"type":"text","text":"{}"}}]"#,
            "\u{e9}".repeat(200)
        ))
        .unwrap();
        assert_eq!(
            (long.chars().count(), long.ends_with('\u{2026}')),
            (MAX_CHARS, true)
        );
    }
}
