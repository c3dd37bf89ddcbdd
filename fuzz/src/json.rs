//! A slow and simple JSON model: member boundaries of objects, and nesting depth.

use std::ops::Range;

use serde::de::IgnoredAny;

/// A member of an object.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The name without escapes. `None` if it is not text (a lone surrogate).
    pub(crate) name: Option<String>,
    /// The byte range of the value.
    pub(crate) at: Range<usize>,
}

/// Whether the text is JSON by its grammar. A raw value may contain values that cannot be represented, such
/// as 1e400 and lone surrogates.
pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The members of an object in order, or `None`. `text` must be JSON.
pub(crate) fn members(text: &str) -> Option<Vec<Member>> {
    let bytes = text.as_bytes();
    let mut at = space(bytes, 0);
    if bytes[at] != b'{' {
        return None;
    }
    let mut members = Vec::new();
    at = space(bytes, at + 1);
    while bytes[at] != b'}' {
        let end = string(bytes, at);
        let name = serde_json::from_str(&text[at..end]).ok();
        let colon = space(bytes, end);
        assert_eq!(bytes[colon], b':');
        let start = space(bytes, colon + 1);
        at = value(bytes, start);
        members.push(Member {
            name,
            at: start..at,
        });
        at = space(bytes, at);
        if bytes[at] == b',' {
            at = space(bytes, at + 1);
        }
    }
    Some(members)
}

/// The nesting depth of arrays and objects. `text` must be JSON.
pub(crate) fn depth(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    let mut deepest = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
        at += 1;
    }
    deepest
}

fn space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
        at += 1;
    }
    at
}

/// The end of the string that begins at `at`.
fn string(bytes: &[u8], mut at: usize) -> usize {
    assert_eq!(bytes[at], b'"');
    at += 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The end of the value that begins at `at`.
fn value(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    loop {
        match bytes[at] {
            b'"' => at = string(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            // A number or a keyword: up to a delimiter.
            _ => {
                while bytes
                    .get(at)
                    .is_some_and(|byte| !b" \t\r\n,]}".contains(byte))
                {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return at;
        }
    }
}
