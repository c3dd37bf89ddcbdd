//! The text of a turn that updates have already delivered.
//!
//! The result of a prompt repeats the text: all of it, or the text after the last tool call. Only digests are kept, so the
//! size of a turn does not matter. White space is not compared, because agents join and trim their updates.

use sha2::{Digest, Sha256};

/// A text without white space.
#[derive(Debug, Clone, Default)]
struct Text {
    hash: Sha256,
    chars: usize,
}

impl Text {
    fn add(&mut self, text: &str) {
        for part in text.split_whitespace() {
            self.hash.update(part);
            self.chars += part.chars().count();
        }
    }

    /// The rest of `whole` after this text. `None` if `whole` does not begin with it.
    fn rest<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let mut shown = whole
            .char_indices()
            .filter(|(_, char)| !char.is_whitespace());
        let end = match self.chars.checked_sub(1) {
            None => 0,
            Some(last) => shown.nth(last).map(|(at, char)| at + char.len_utf8())?,
        };
        let mut prefix = Self::default();
        prefix.add(&whole[..end]);
        (prefix.hash.finalize() == self.hash.clone().finalize()).then(|| &whole[end..])
    }
}

/// The delivered text of a turn.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    all: Text,
    /// The text since the last update of another kind.
    last: Text,
}

impl Streamed {
    pub(super) fn add(&mut self, text: &str) {
        self.all.add(text);
        self.last.add(text);
    }

    /// An update of another kind separates two texts.
    pub(super) fn separate(&mut self) {
        self.last = Text::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.chars == 0
    }

    /// The part of the result that was not delivered. Empty if all of it was.
    pub(super) fn remainder<'a>(&self, result: &'a str) -> &'a str {
        let last = Some(&self.last).filter(|last| last.chars > 0);
        let rest = self
            .all
            .rest(result)
            .or_else(|| last?.rest(result))
            .unwrap_or(result);
        if rest.trim().is_empty() { "" } else { rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_adds_only_the_text_that_was_not_streamed() {
        for (updates, result, rest) in [
            (&["Hel", "lo"][..], "Hello", ""),
            (&["Hello "], "Hello world", " world"),
            (&["line 1", "line 2"], "line 1\nline 2\n", ""),
            (&["Grüße ", "€"], "Grüße €uro", "uro"),
            (&[], "Hello", "Hello"),
            (&[], " \n", ""),
            (&["Hello"], "Other", "Other"),
            (&["Hello"], "Hell", "Hell"),
            (&["I look.", "|", "Done", "."], "Done.", ""),
            (&["I look.", "|", "Done"], "Done, all of it", ", all of it"),
            (&["I look.", "|", "Done"], "I look.\nDone", ""),
            (&["I look.", "|"], "Done.", "Done."),
            (&["a", "|"], "a", ""),
        ] {
            let mut streamed = Streamed::default();
            for update in updates {
                if *update == "|" {
                    streamed.separate();
                } else {
                    streamed.add(update);
                }
            }
            assert_eq!(streamed.remainder(result), rest, "{updates:?} {result:?}");
            assert_eq!(streamed.is_empty(), updates.is_empty());
        }
    }
}
