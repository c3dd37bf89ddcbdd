//! Scans JSON bytes in one pass. The scanner checks that the text is well-formed and finds the positions of
//! its parts, without allocations.
//!
//! It accepts exactly the JSON that the parser accepts. The caller ensures that the text is UTF-8; the
//! scanner itself decides only by ASCII bytes.

use std::ops::Range;

/// The maximum nesting depth, whatever limit the caller sets: one bit remembers each level.
const MAX_LEVELS: usize = 128;

/// A position in the text. Each method returns `None` if the text does not match. The caller then parses the
/// text to get an error.
#[derive(Debug)]
pub struct JsonScanner<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: usize,
    max_depth: usize,
}

impl<'a> JsonScanner<'a> {
    pub fn new(bytes: &'a [u8], max_depth: usize) -> Self {
        Self {
            bytes,
            position: 0,
            depth: 0,
            max_depth: max_depth.min(MAX_LEVELS),
        }
    }

    /// Scans an object and returns its range. `member` receives the raw name of each member and must scan its
    /// value.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Option<Range<usize>> {
        self.skip_whitespace();
        let start = self.position;
        self.expect_byte(b'{')?;
        self.enter_level()?;
        self.skip_whitespace();
        if self.peek()? == b'}' {
            self.position += 1;
            self.depth -= 1;
            return Some(start..self.position);
        }
        loop {
            let name = self.member_name()?;
            member(self, &self.bytes[name])?;
            self.skip_whitespace();
            match self.next()? {
                b',' => self.skip_whitespace(),
                b'}' => {
                    self.depth -= 1;
                    return Some(start..self.position);
                }
                _ => return None,
            }
        }
    }

    /// Scans a value of any kind and returns its range.
    pub fn value(&mut self) -> Option<Range<usize>> {
        self.skip_whitespace();
        let start = self.position;
        let floor = self.depth;
        // One bit for each open level: 1 is an object, 0 is an array.
        let mut objects: u128 = 0;
        loop {
            let byte = self.peek()?;
            match byte {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    self.position += 1;
                    self.enter_level()?;
                    self.skip_whitespace();
                    let object = byte == b'{';
                    if self.peek()? == if object { b'}' } else { b']' } {
                        self.position += 1;
                        self.depth -= 1;
                    } else {
                        objects = objects << 1 | u128::from(object);
                        if object {
                            self.member_name()?;
                        }
                        continue;
                    }
                }
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => return None,
            }
            loop {
                if self.depth == floor {
                    return Some(start..self.position);
                }
                self.skip_whitespace();
                let in_object = objects & 1 == 1;
                match self.next()? {
                    b',' => {
                        self.skip_whitespace();
                        if in_object {
                            self.member_name()?;
                        }
                        break;
                    }
                    b'}' if in_object => {}
                    b']' if !in_object => {}
                    _ => return None,
                }
                self.depth -= 1;
                objects >>= 1;
            }
        }
    }

    /// Scans a string without escapes and returns the range of its text, without the quotes.
    pub fn unescaped_string(&mut self) -> Option<Range<usize>> {
        self.skip_whitespace();
        let text = self.string()?;
        (!self.bytes[text.clone()].contains(&b'\\')).then_some(text)
    }

    pub fn end(&mut self) -> Option<()> {
        self.skip_whitespace();
        (self.position == self.bytes.len()).then_some(())
    }

    /// Scans the name of a member and the colon after it. Returns the range of the name.
    fn member_name(&mut self) -> Option<Range<usize>> {
        let name = self.string()?;
        self.skip_whitespace();
        self.expect_byte(b':')?;
        self.skip_whitespace();
        Some(name)
    }

    /// Scans a string and returns the range between the quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        self.expect_byte(b'"')?;
        let start = self.position;
        loop {
            self.position += plain_prefix_len(&self.bytes[self.position..]);
            match self.next()? {
                b'"' => return Some(start..self.position - 1),
                b'\\' => match self.next()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        let digits = self.bytes.get(self.position..self.position + 4)?;
                        if !digits.iter().all(u8::is_ascii_hexdigit) {
                            return None;
                        }
                        self.position += 4;
                    }
                    _ => return None,
                },
                // A control character is not allowed in a string.
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.position += 1;
        }
        if self.peek()? == b'0' {
            self.position += 1;
            let next = self.bytes.get(self.position);
            if next.is_some_and(u8::is_ascii_digit) {
                return None;
            }
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.position) == Some(&b'.') {
            self.position += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.position), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.bytes.get(self.position), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.position;
        while self
            .bytes
            .get(self.position)
            .is_some_and(u8::is_ascii_digit)
        {
            self.position += 1;
        }
        (self.position > start).then_some(())
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        let is_next = self.bytes[self.position..].starts_with(word);
        is_next.then(|| self.position += word.len())
    }

    fn enter_level(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= self.max_depth).then_some(())
    }

    fn expect_byte(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn skip_whitespace(&mut self) {
        while matches!(
            self.bytes.get(self.position),
            Some(b' ' | b'\t' | b'\n' | b'\r')
        ) {
            self.position += 1;
        }
    }
}

/// Returns the number of bytes before the first quote, backslash or control character. Reads eight bytes at a
/// time.
fn plain_prefix_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    // Sets the top bit of the first byte below `n`. Bits of later bytes may be wrong.
    let below = |word: u64, n: u8| word.wrapping_sub(ONES * u64::from(n)) & !word;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = (quote | backslash | below(word, b' ')) & TOPS;
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < b' ';
    words.len() * 8 + rest.iter().position(special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    /// Returns true if the scanner accepts the text as one value without further text.
    fn is_one_value(text: &str) -> bool {
        let mut scan = JsonScanner::new(text.as_bytes(), MAX_LEVELS);
        scan.value().is_some() && scan.end().is_some()
    }

    #[test]
    fn well_formed_json_is_accepted_and_other_text_is_not() {
        for good in [
            "0",
            "-0",
            "10",
            "1.5e+10",
            "1E-2",
            "true",
            "false",
            "null",
            r#""""#,
            r#""\u00e9\ud83d\/""#,
            "[]",
            "{}",
            " [ 1 , {} , [ ] ]\r\n",
            r#"{"a":{"b":[1,"x"]},"c":null}"#,
            "\"é☃\"",
        ] {
            assert!(is_one_value(good), "{good}");
        }
        for bad in [
            "",
            "01",
            "-",
            "1.",
            "1e",
            ".5",
            "+1",
            "tru",
            "nul",
            "True",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\u{1f}\"",
            "\"a\nb\"",
            "[",
            "[1",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{]",
            "[}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{1:2}",
            r#"{"a":1 "b":2}"#,
            "1 2",
            "{}}",
            "\u{feff}1",
            "\u{a0}1",
        ] {
            assert!(!is_one_value(bad), "{bad}");
        }
    }

    #[test]
    fn depth_is_limited() {
        for (text, depth) in [
            ("[[]]", 2),
            (r#"{"a":[{"b":1}]}"#, 3),
            ("1", 0),
            ("[[],[[]],[]]", 3),
        ] {
            assert!(
                JsonScanner::new(text.as_bytes(), depth).value().is_some(),
                "{text}"
            );
            assert!(
                depth == 0
                    || JsonScanner::new(text.as_bytes(), depth - 1)
                        .value()
                        .is_none(),
                "{text}"
            );
        }
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(is_one_value(&deep(MAX_LEVELS)) && !is_one_value(&deep(MAX_LEVELS + 1)));
        assert!(
            JsonScanner::new(deep(MAX_LEVELS + 1).as_bytes(), usize::MAX)
                .value()
                .is_none()
        );
    }

    #[test]
    fn members_are_reported_as_written() {
        let text = r#" { "a\u0062" : [1, {"a":2}] ,"c":"x" } "#;
        let mut scan = JsonScanner::new(text.as_bytes(), 8);
        let mut seen = Vec::new();
        scan.object(|scan, name| {
            seen.push((name, &text[scan.value()?]));
            Some(())
        })
        .unwrap();
        scan.end().unwrap();
        assert_eq!(
            seen,
            [(&br"a\u0062"[..], r#"[1, {"a":2}]"#), (b"c", r#""x""#)]
        );
        let text = |text: &'static str| {
            JsonScanner::new(text.as_bytes(), 1)
                .unescaped_string()
                .map(|at| &text[at])
        };
        assert_eq!(
            (text("\"a b\""), text("\"a\\n\""), text("1")),
            (Some("a b"), None, None)
        );
    }

    /// JSON values, some of them with changed, removed or duplicated bytes.
    fn texts() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
            "[a-z \\\\\"é☃\u{0}-\u{1f}]{0,24}"
                .prop_map(|text| serde_json::to_string(&text).unwrap()),
            Just(r#""\ud83d""#.to_owned()),
        ];
        let value = leaf.prop_recursive(4, 24, 4, |inner| {
            let member = ("[a-z]{0,3}", inner.clone())
                .prop_map(|(name, value)| format!("\"{name}\" :{value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                prop::collection::vec(member, 0..4)
                    .prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        });
        (
            value,
            prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<char>()), 0..3),
        )
            .prop_map(|(value, edits)| {
                let mut text: Vec<char> = value.chars().collect();
                for (at, how, other) in edits {
                    let at = at.index(text.len() + 1);
                    let punctuation = ['{', '}', '[', ']', '"', '\\', ',', ':', '0', ' '];
                    match how {
                        0 if at < text.len() => {
                            text.remove(at);
                        }
                        1 => text.insert(at, punctuation[other as usize % punctuation.len()]),
                        2 if at < text.len() => text[at] = other,
                        _ => text.truncate(at.max(1)),
                    }
                }
                text.into_iter().collect()
            })
    }

    proptest! {
        #[test]
        fn the_scanner_accepts_what_the_parser_accepts(text in texts()) {
            let parsed = serde_json::from_str::<&RawValue>(&text);
            prop_assert_eq!(is_one_value(&text), parsed.is_ok(), "{}", text);
            if let Ok(raw) = parsed {
                let at = JsonScanner::new(text.as_bytes(), MAX_LEVELS).value().unwrap();
                prop_assert_eq!(&text[at], raw.get());
            }
        }

        #[test]
        fn word_and_byte_search_agree(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let first = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            prop_assert_eq!(plain_prefix_len(&bytes), first.unwrap_or(bytes.len()));
        }
    }
}
