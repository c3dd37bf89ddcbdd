//! `Range` and `If-Range` (RFC 9110, section 14). Supports a single byte range.

use std::ops::Range;

use http::{HeaderMap, header};

/// The part of a file that a request selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// No `Range` header, or a range that the server may ignore: several ranges, another unit, or another
    /// version of the file.
    Whole,
    Bytes(Range<u64>),
    /// The range contains no byte of the file.
    Unsatisfiable,
}

pub fn part(headers: &HeaderMap, size: u64, etag: &str) -> Part {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Part::Whole };
    // Only an equal strong entity tag proves that the file is the same byte for byte. A date or a weak tag
    // does not.
    if headers.get_all(header::IF_RANGE).iter().any(|known| known.as_bytes() != etag.as_bytes()) {
        return Part::Whole;
    }
    range.to_str().ok().and_then(|range| bytes(range, size)).unwrap_or(Part::Whole)
}

/// Returns `None` for a range that the server may ignore.
fn bytes(range: &str, size: u64) -> Option<Part> {
    let (unit, range) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let range = match (first, last) {
        ("", last) => size.saturating_sub(number(last)?)..size,
        (first, "") => number(first)?..size,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..size.min(last.saturating_add(1))
        }
    };
    Some(if range.is_empty() { Part::Unsatisfiable } else { Part::Bytes(range) })
}

/// Accepts only digits. A number that does not fit becomes `u64::MAX`.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(range: &'static str, if_range: Option<&'static str>, size: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static(range));
        if let Some(known) = if_range {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(known));
        }
        part(&headers, size, "\"a\"")
    }

    #[test]
    fn one_range_of_bytes() {
        for (range, size, wanted) in [
            ("bytes=0-3", 10, Part::Bytes(0..4)),
            ("bytes=0-0", 10, Part::Bytes(0..1)),
            ("Bytes=2-", 10, Part::Bytes(2..10)),
            ("bytes=5-99", 10, Part::Bytes(5..10)),
            ("bytes=-3", 10, Part::Bytes(7..10)),
            ("bytes=-99", 10, Part::Bytes(0..10)),
            ("bytes=0-99999999999999999999999", 10, Part::Bytes(0..10)),
            ("bytes=10-", 10, Part::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Part::Unsatisfiable),
            ("bytes=-0", 10, Part::Unsatisfiable),
            ("bytes=0-", 0, Part::Unsatisfiable),
            ("bytes=3-2", 10, Part::Whole),
            ("bytes=0-1,3-4", 10, Part::Whole),
            ("bytes=a-b", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("bytes=+1-2", 10, Part::Whole),
            ("lines=0-3", 10, Part::Whole),
            ("0-3", 10, Part::Whole),
        ] {
            assert_eq!(of(range, None, size), wanted, "{range} of {size}");
        }
        assert_eq!(part(&HeaderMap::new(), 10, "\"a\""), Part::Whole);
    }

    #[test]
    fn a_range_of_another_version_is_the_whole() {
        assert_eq!(of("bytes=0-3", Some("\"a\""), 10), Part::Bytes(0..4));
        for other in ["\"b\"", "W/\"a\"", "Sat, 21 Nov 2026 22:15:03 GMT", "*"] {
            assert_eq!(of("bytes=0-3", Some(other), 10), Part::Whole, "{other}");
        }
    }
}
