//! Characters that an agent splits into two texts.
//!
//! JSON writes a character beyond U+FFFF as two escapes, `\ud83d\ude00`. Agents that cut their output at a fixed length send
//! the first one at the end of a chunk and the second one at the beginning of the next. Many clients reject half a character,
//! also when they send it back with a later request.

use std::borrow::Cow;

use serde_json::value::RawValue;

const ESCAPE: usize = r"\ud83d".len();
pub(super) const PAIR: usize = 2 * ESCAPE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// Moves the first half of a character from the end of a text to the beginning of the next one. The texts are strings in JSON.
pub(crate) fn join<'a>(pending: &mut Option<String>, text: &'a RawValue) -> Cow<'a, RawValue> {
    let text_inside = &text.get()[1..text.get().len() - 1];
    let first = ends_with_first_half(text_inside);
    if pending.is_none() && !first {
        return Cow::Borrowed(text);
    }
    let mut inside = pending.take().unwrap_or_default();
    inside.push_str(text_inside);
    if first {
        *pending = Some(inside.split_off(inside.len() - ESCAPE));
    }
    Cow::Owned(string(&inside))
}

pub(crate) fn string(inside: &str) -> Box<RawValue> {
    RawValue::from_string(format!("\"{inside}\"")).expect("the inside of a string is whole")
}

/// Replaces each half without its other half by U+FFFD, in JSON.
pub fn replace_halves(json: &mut [u8]) {
    let mut at = 0;
    while let Some(distance) = memchr::memchr(b'\\', &json[at..]) {
        at += distance;
        match half_at(&json[at..]) {
            Some(Half::First) if is_pair_at(&json[at..]) => at += PAIR,
            Some(_) => {
                json[at..at + ESCAPE].copy_from_slice(br"\ufffd");
                at += ESCAPE;
            }
            // The next character may be a backslash that is escaped.
            None => at = json.len().min(at + 2),
        }
    }
}

pub(crate) fn without_halves(json: &str) -> Cow<'_, str> {
    if !json.contains(r"\ud") && !json.contains(r"\uD") {
        return json.into();
    }
    let mut bytes = json.as_bytes().to_vec();
    replace_halves(&mut bytes);
    String::from_utf8(bytes).expect("escapes are ASCII").into()
}

fn ends_with_first_half(inside: &str) -> bool {
    let bytes = inside.as_bytes();
    let Some(at) = bytes.len().checked_sub(ESCAPE) else {
        return false;
    };
    let backslashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\');
    half_at(&bytes[at..]) == Some(Half::First) && backslashes.count() % 2 == 0
}

/// Whether the bytes begin with both halves of a character.
pub(super) fn is_pair_at(bytes: &[u8]) -> bool {
    half_at(bytes) == Some(Half::First) && half_at(&bytes[ESCAPE..]) == Some(Half::Second)
}

fn half_at(bytes: &[u8]) -> Option<Half> {
    match bytes {
        [b'\\', b'u', b'd' | b'D', digit, _, _, ..] => match digit.to_ascii_lowercase() {
            b'8'..=b'b' => Some(Half::First),
            b'c'..=b'f' => Some(Half::Second),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_half_moves_to_the_next_text() {
        for (chunks, texts, rest) in [
            (&["a", r"b\n"][..], &["a", r"b\n"][..], None),
            (&[r"\ud83d\ude00"], &[r"\ud83d\ude00"], None),
            (&[r"a\ud83d", r"\ude00b"], &["a", r"\ud83d\ude00b"], None),
            (
                &[r"\uD83D", r"\uDE00\uD83D", r"\uDE01"],
                &["", r"\uD83D\uDE00", r"\uD83D\uDE01"],
                None,
            ),
            (&[r"a\ud83d", "b"], &["a", r"\ud83db"], None),
            (&[r"a\ud83d"], &["a"], Some(r"\ud83d")),
            (&[r"\ud83d\ud83d"], &[r"\ud83d"], Some(r"\ud83d")),
            // An escaped backslash before the letter `u`.
            (&[r"a\\ud83d", "b"], &[r"a\\ud83d", "b"], None),
        ] {
            let mut pending = None;
            for (chunk, text) in chunks.iter().zip(texts) {
                let joined = join(&mut pending, &string(chunk)).into_owned();
                assert_eq!(joined.get(), string(text).get(), "{chunks:?}");
            }
            assert_eq!(pending.as_deref(), rest, "{chunks:?}");
        }
    }

    #[test]
    fn half_without_the_other_one_is_replaced() {
        for (json, expected) in [
            (r#""a\ud83d\ude00\n""#, r#""a\ud83d\ude00\n""#),
            (r#""a\ud83db\uDE00""#, r#""a\ufffdb\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\"#, r#""\"#),
        ] {
            let mut bytes = json.as_bytes().to_vec();
            replace_halves(&mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        }
    }
}
