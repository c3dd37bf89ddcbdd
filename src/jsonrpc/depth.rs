//! The limit on the nesting of JSON, checked before parsing.

/// The JSON nests deeper than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("JSON nested deeper than {max}")]
pub struct TooDeep {
    pub max: usize,
}

/// Returns an error if arrays and objects nest deeper than `max`. The parser reads raw values without a depth
/// limit. A later parser (a browser, an agent, the gateway itself) could overflow its stack.
///
/// The function does not check that the bytes are JSON.
pub fn check_depth(bytes: &[u8], max: usize) -> Result<(), TooDeep> {
    // Most messages have fewer brackets than the limit.
    if memchr::memchr2_iter(b'{', b'[', bytes)
        .take(max + 1)
        .count()
        <= max
    {
        return Ok(());
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > max {
                    return Err(TooDeep { max });
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the position after the closing quote of the string whose content begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        for (json, depth) in [
            ("1", 0),
            ("\"[[[[\"", 0),
            (r#"["\"[[["]"#, 1),
            (r#"["\\",["\\\"["]]"#, 2),
            (r#"{"a":{"b":[{}]},"c":[]}"#, 4),
            ("[[],[],[]]", 2),
        ] {
            assert_eq!(check_depth(json.as_bytes(), depth), Ok(()), "{json}");
            if depth > 0 {
                assert_eq!(
                    check_depth(json.as_bytes(), depth - 1),
                    Err(TooDeep { max: depth - 1 }),
                    "{json}"
                );
            }
        }
    }

    #[test]
    fn deep_json_is_rejected_and_garbage_does_not_panic() {
        assert_eq!(
            check_depth(&b"[".repeat(100_000), 128),
            Err(TooDeep { max: 128 })
        );
        for garbage in ["\"", "\"\\", "]]]]", "\"\\\"", ""] {
            assert_eq!(check_depth(garbage.as_bytes(), 1), Ok(()), "{garbage}");
        }
    }
}
