//! `Range` and `If-Range` (RFC 9110, section 14). Supports a single byte range.

use std::ops::Range;

use http::{HeaderMap, header};

/// The part of a file that a request selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedRange {
    /// No `Range` header, or a range that the server may ignore: several ranges, another unit, or another
    /// version of the file.
    Full,
    Bytes(Range<u64>),
    /// The range contains no byte of the file.
    Unsatisfiable,
}

pub fn requested_range(headers: &HeaderMap, size: u64, etag: &str) -> RequestedRange {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return RequestedRange::Full;
    };
    // Only an equal strong entity tag proves that the file is the same byte for byte. A date or a weak tag
    // does not.
    if headers
        .get_all(header::IF_RANGE)
        .iter()
        .any(|known| known.as_bytes() != etag.as_bytes())
    {
        return RequestedRange::Full;
    }
    range
        .to_str()
        .ok()
        .and_then(|range| parse_bytes(range, size))
        .unwrap_or(RequestedRange::Full)
}

/// Returns `None` for a range that the server may ignore.
fn parse_bytes(range: &str, size: u64) -> Option<RequestedRange> {
    let (unit, range) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let range = match (first, last) {
        ("", last) => size.saturating_sub(parse_number(last)?)..size,
        (first, "") => parse_number(first)?..size,
        (first, last) => {
            let (first, last) = (parse_number(first)?, parse_number(last)?);
            if last < first {
                return None;
            }
            first..size.min(last.saturating_add(1))
        }
    };
    Some(if range.is_empty() {
        RequestedRange::Unsatisfiable
    } else {
        RequestedRange::Bytes(range)
    })
}

/// Accepts only digits. A number that does not fit becomes `u64::MAX`.
fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn requested(range: &'static str, if_range: Option<&'static str>, size: u64) -> RequestedRange {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static(range));
        if let Some(known) = if_range {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(known));
        }
        requested_range(&headers, size, "\"a\"")
    }

    #[test]
    fn one_byte_range_is_parsed() {
        for (range, size, expected) in [
            ("bytes=0-3", 10, RequestedRange::Bytes(0..4)),
            ("bytes=0-0", 10, RequestedRange::Bytes(0..1)),
            ("Bytes=2-", 10, RequestedRange::Bytes(2..10)),
            ("bytes=5-99", 10, RequestedRange::Bytes(5..10)),
            ("bytes=-3", 10, RequestedRange::Bytes(7..10)),
            ("bytes=-99", 10, RequestedRange::Bytes(0..10)),
            (
                "bytes=0-99999999999999999999999",
                10,
                RequestedRange::Bytes(0..10),
            ),
            ("bytes=10-", 10, RequestedRange::Unsatisfiable),
            (
                "bytes=99999999999999999999999-",
                10,
                RequestedRange::Unsatisfiable,
            ),
            ("bytes=-0", 10, RequestedRange::Unsatisfiable),
            ("bytes=0-", 0, RequestedRange::Unsatisfiable),
            ("bytes=3-2", 10, RequestedRange::Full),
            ("bytes=0-1,3-4", 10, RequestedRange::Full),
            ("bytes=a-b", 10, RequestedRange::Full),
            ("bytes=-", 10, RequestedRange::Full),
            ("bytes=+1-2", 10, RequestedRange::Full),
            ("lines=0-3", 10, RequestedRange::Full),
            ("0-3", 10, RequestedRange::Full),
        ] {
            assert_eq!(requested(range, None, size), expected, "{range} of {size}");
        }
        assert_eq!(
            requested_range(&HeaderMap::new(), 10, "\"a\""),
            RequestedRange::Full
        );
    }

    #[test]
    fn if_range_of_another_version_selects_the_full_file() {
        assert_eq!(
            requested("bytes=0-3", Some("\"a\""), 10),
            RequestedRange::Bytes(0..4)
        );
        for other in ["\"b\"", "W/\"a\"", "Sat, 21 Nov 2026 22:15:03 GMT", "*"] {
            assert_eq!(
                requested("bytes=0-3", Some(other), 10),
                RequestedRange::Full,
                "{other}"
            );
        }
    }
}
