//! Content negotiation by `Accept`. A stream requires its exact media type, and `*/*` selects JSON or text.

use http::{HeaderMap, header};

use super::error::ApiError;
use crate::api::ProblemCode;

/// A media type that a response can have.
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
pub fn negotiate(
    headers: &HeaderMap,
    offered: &[Representation],
) -> Result<Representation, ApiError> {
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
