//! The form and the part of a response: `Accept`, and a byte range with `Range` and `If-Range` (RFC 9110, section 14). A stream requires its exact media type, and `*/*` selects JSON or text.

use std::ops::Range;

use http::{HeaderMap, header};

use crate::surface::http::{ApiError, Result};
use events::api::ProblemCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    Json,
    EventStream,
    Ndjson,
    Markdown,
    /// Plain text without control characters.
    Text,
    /// Text as a process wrote it.
    Raw,
    /// Metrics in the format that OpenMetrics defines.
    OpenMetrics,
}

impl Representation {
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::EventStream => "text/event-stream",
            Self::Ndjson => "application/x-ndjson",
            Self::Markdown => "text/markdown",
            Self::Text => "text/plain",
            Self::Raw => "application/octet-stream",
            Self::OpenMetrics => "application/openmetrics-text",
        }
    }

    /// Wildcards match only JSON and plain text.
    fn matches(self, range: &str) -> bool {
        range.eq_ignore_ascii_case(self.media_type())
            || self == Self::Json && matches!(range, "*/*" | "application/*")
            || self == Self::Text && matches!(range, "*/*" | "text/*")
    }
}

/// The offered representation that the client prefers: by the highest `q`, then an exact media type before a
/// wildcard, then by the order in `Accept`. Without `Accept`, this is the first offered representation.
///
/// Fails with 406 if `Accept` matches no offered representation.
pub fn negotiate(headers: &HeaderMap, offered: &[Representation]) -> Result<Representation> {
    let mut named = false;
    let mut best: Option<(u16, bool, Representation)> = None;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let (range, quality) = parse(range);
            if range.is_empty() {
                continue;
            }
            named = true;
            let Some(form) = offered.iter().copied().find(|form| form.matches(range)) else {
                continue;
            };
            let candidate = (quality, !range.ends_with('*'), form);
            let better = best.is_none_or(|(q, exact, _)| (quality, candidate.1) > (q, exact));
            if quality > 0 && better {
                best = Some(candidate);
            }
        }
    }
    match best {
        Some((_, _, form)) => Ok(form),
        None if !named => Ok(offered[0]),
        None => {
            let types: Vec<&str> = offered.iter().map(|form| form.media_type()).collect();
            Err(ApiError::new(
                ProblemCode::NotAcceptable,
                format!("available types: {}", types.join(", ")),
            ))
        }
    }
}

/// A media range and its `q` in thousandths. A malformed `q` counts as 1.
fn parse(range: &str) -> (&str, u16) {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let quality = parts
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .map_or(1000, |(_, value)| thousandths(value.trim()).unwrap_or(1000));
    (media, quality)
}

/// RFC 9110: `0` or `1`, with up to three digits after the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: u16 = whole.parse().ok()?;
    if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    Some(whole.checked_mul(1000)?.checked_add(fraction)?.min(1000))
}

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
    let mut known = headers.get_all(header::IF_RANGE).iter();
    if known.any(|known| known.as_bytes() != etag.as_bytes()) {
        return RequestedRange::Full;
    }
    let range = range.to_str().ok();
    let range = range.and_then(|range| parse_bytes(range, size));
    range.unwrap_or(RequestedRange::Full)
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
            let first = parse_number(first)?;
            let last = parse_number(last)?;
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
    use super::*;

    const EVENTS: [Representation; 3] = [
        Representation::Json,
        Representation::EventStream,
        Representation::Ndjson,
    ];

    fn negotiated(accept: Option<&str>) -> Option<Representation> {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(header::ACCEPT, accept.parse().unwrap());
        }
        negotiate(&headers, &EVENTS).ok()
    }

    #[test]
    fn a_stream_requires_its_exact_media_type() {
        for (accept, form) in [
            (None, Some(Representation::Json)),
            (Some(""), Some(Representation::Json)),
            (Some("*/*"), Some(Representation::Json)),
            (Some("application/*"), Some(Representation::Json)),
            (Some("text/event-stream"), Some(Representation::EventStream)),
            (
                Some("Text/Event-Stream; charset=utf-8"),
                Some(Representation::EventStream),
            ),
            (
                Some("text/event-stream, */*"),
                Some(Representation::EventStream),
            ),
            (
                Some("*/*, text/event-stream"),
                Some(Representation::EventStream),
            ),
            (
                Some("application/json, text/event-stream"),
                Some(Representation::Json),
            ),
            (
                Some("application/json;q=0.5, text/event-stream;q=0.9"),
                Some(Representation::EventStream),
            ),
            (Some("application/x-ndjson"), Some(Representation::Ndjson)),
            (Some("text/event-stream;q=0"), None),
            (
                Some("text/event-stream;q=99"),
                Some(Representation::EventStream),
            ),
            (Some("text/*"), None),
            (Some("text/html"), None),
        ] {
            assert_eq!(negotiated(accept), form, "{accept:?}");
        }
    }
}

#[cfg(test)]
mod range_tests {
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
