//! Request headers and queries: the start position of a stream, byte ranges, and preconditions.

use acp_gateway::surface::rest::wire::{
    ApiError, Conditions, EventsQuery, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait,
    Representation, RequestedRange, negotiate, requested_range,
};
use axum::extract::FromRequestParts;
use base::types::{Epoch, EventId, Position};
use events::event::ResetReason;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{HeaderValue, Request};
use log::eventlog::Start;
use workspace::EntityTags;

use super::input::Input;

const HEADERS: [&str; 8] = [
    "last-event-id",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "prefer",
    "idempotency-key",
    "accept",
];

/// The input is a file size, a query and headers. Each header is a byte that selects its name, and a value.
pub fn cursors(data: &[u8]) {
    let mut input = Input::new(data);
    let size = if input.flag() {
        input.number()
    } else {
        u64::from(input.byte())
    };
    let query = input.text().unwrap_or_default();
    let Ok(uri) = format!("/v1/events?{query}").parse::<http::Uri>() else {
        return;
    };
    let mut request = Request::get(uri);
    while let Some(header) = input.piece() {
        let Some((which, value)) = header.split_first() else {
            continue;
        };
        let Ok(value) = HeaderValue::from_bytes(value) else {
            continue;
        };
        request = request.header(HEADERS[usize::from(*which) % HEADERS.len()], value);
    }
    let Ok(request) = request.body(()) else {
        return;
    };
    let mut parts = request.into_parts().0;
    check_last_event_id(&mut parts);
    ranges(&parts, size);
    tags(&mut parts);
    rest(&mut parts);
}

/// Runs an extractor, which must not wait.
fn extract<T: FromRequestParts<()>>(parts: &mut Parts) -> Result<T, T::Rejection> {
    T::from_request_parts(parts, &())
        .now_or_never()
        .expect("it waits for nothing")
}

/// The values of a header. `None` for values that are not text.
fn values<'a>(parts: &'a Parts, name: &str) -> Vec<Option<&'a str>> {
    let text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    let values = parts
        .headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes);
    values
        .map(|value| {
            std::str::from_utf8(value)
                .ok()
                .filter(|_| value.iter().all(text))
        })
        .collect()
}

/// The query, decoded as a form (URL Standard, application/x-www-form-urlencoded).
fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let bytes = text.replace('+', " ").into_bytes();
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let hex = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
            let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
            let hex =
                hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
            out.push(hex.unwrap_or(*byte));
            at += if hex.is_some() { 3 } else { 1 };
        }
        String::from_utf8_lossy(&out).into_owned()
    };
    let pieces = query.split('&').filter(|piece| !piece.is_empty());
    let pairs = pieces.map(|piece| piece.split_once('=').unwrap_or((piece, "")));
    let pairs = pairs.map(|(name, value)| (decode(name), decode(value)));
    pairs.filter(|(name, _)| name != "ticket").collect()
}

/// The start position of a stream, of one session and of the whole log.
fn check_last_event_id(parts: &mut Parts) {
    let epoch: Epoch = "k3".parse().expect("it is one");
    let Ok(last) = extract::<LastEventId>(parts);
    let expected = match &values(parts, "last-event-id")[..] {
        [] | [Some("")] => "absent",
        [Some(text)] => text,
        _ => "unclear",
    };
    match &last {
        LastEventId::Absent => assert_eq!(expected, "absent"),
        LastEventId::Text(text) => assert_eq!(expected, text),
        LastEventId::Invalid => assert_eq!(expected, "unclear"),
    }
    let pairs = pairs(parts.uri.query().unwrap_or_default());
    let read = |params: Result<Params, ApiError>, all: bool| {
        let mut params = params?;
        let query = if all {
            EventsQuery::parse::<Position>(&mut params, &last, &epoch)?
        } else {
            EventsQuery::parse::<EventId>(&mut params, &last, &epoch)?
        };
        params.finish().map(|()| query)
    };
    for (all, between) in [(false, "-"), (true, "-g")] {
        let model = model(&pairs, &last, between);
        match (read(extract::<Params>(parts), all), model) {
            (Ok(query), Some((cursor, types, named, follow, limit))) => {
                let got = (
                    query.start,
                    query.types.is_some(),
                    query.named,
                    query.follow,
                    query.limit,
                );
                assert_eq!(
                    got,
                    (cursor, types, named, follow, limit),
                    "{pairs:?} {last:?}"
                );
            }
            (Err(error), None) => assert_eq!(error.problem().status, 422, "{pairs:?} {last:?}"),
            (got, model) => panic!("{pairs:?} {last:?}: {got:?} and not {model:?}"),
        }
    }
}

type Read = (Start, bool, bool, bool, usize);

fn model(pairs: &[(String, String)], last: &LastEventId, between: &str) -> Option<Read> {
    let known = ["after", "types", "named", "follow", "limit"];
    let value = |name: &str| {
        pairs
            .iter()
            .find(|pair| pair.0 == name)
            .map(|pair| &*pair.1)
    };
    let twice = |name: &str| pairs.iter().filter(|pair| pair.0 == name).count() > 1;
    if pairs.iter().any(|pair| !known.contains(&&*pair.0)) || known.into_iter().any(twice) {
        return None;
    }
    let of = |text: &str| match super::ids::split_id(text, between) {
        Some(("k3", number)) => Ok(Start::After(number)),
        Some(_) => Ok(Start::Reset(ResetReason::NewEpoch)),
        None => Err(Start::Reset(ResetReason::UnknownCursor)),
    };
    let cursor = match (last, value("after")) {
        (LastEventId::Text(id), _) => of(id).unwrap_or_else(|unknown| unknown),
        (LastEventId::Invalid, _) => Start::Reset(ResetReason::UnknownCursor),
        (LastEventId::Absent, None) => Start::Beginning,
        (LastEventId::Absent, Some("tail")) => Start::Tail,
        (LastEventId::Absent, Some(id)) => of(id).ok()?,
    };
    let types = value("types");
    let name =
        |name: &str| !name.is_empty() && name.chars().all(|c| matches!(c, 'a'..='z' | '.' | '_'));
    if types.is_some_and(|types| !types.split(',').all(name) || types.split(',').count() > 64) {
        return None;
    }
    let flag = |name| match value(name) {
        None | Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => None,
    };
    let limit = value("limit").map_or(Some(500), |text| text.parse().ok())?;
    (1..=1000).contains(&limit).then_some(())?;
    Some((
        cursor,
        types.is_some(),
        flag("named")?,
        flag("follow")?,
        limit,
    ))
}

/// A single range of a file of this size (RFC 9110, section 14.1.2).
fn ranges(parts: &Parts, size: u64) {
    const ETAG: &str = "\"a\"";
    let got = requested_range(&parts.headers, size, ETAG);
    let same = parts
        .headers
        .get_all("if-range")
        .iter()
        .all(|known| known.as_bytes() == ETAG.as_bytes());
    let expected = match &values(parts, "range")[..] {
        [Some(range)] if same => expected_range(range, size.into()),
        _ => None,
    };
    let expected = match expected {
        None => RequestedRange::Full,
        Some((first, end)) if first >= end => RequestedRange::Unsatisfiable,
        Some((first, end)) => {
            let narrow = |number: u128| u64::try_from(number).expect("it is within the file");
            RequestedRange::Bytes(narrow(first)..narrow(end))
        }
    };
    assert_eq!(got, expected, "{:?} of {size}", parts.headers);
}

/// The first byte, and the byte after the last.
fn expected_range(range: &str, size: u128) -> Option<(u128, u128)> {
    let number = |text: &str| -> Option<u128> {
        let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        // No file has that many bytes.
        digits.then(|| text.parse().unwrap_or(u128::MAX).min(u64::MAX.into()))
    };
    let (unit, range) = range.split_at(range.find('=')?);
    let (first, last) = range[1..].trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    Some(match (first.is_empty(), last.is_empty()) {
        (true, _) => (size - number(last)?.min(size), size),
        (false, true) => (number(first)?, size),
        (false, false) => {
            let first = number(first)?;
            let last = number(last)?;
            (first <= last).then_some((first, size.min(last + 1)))?
        }
    })
}

/// The preconditions of a change.
fn tags(parts: &mut Parts) {
    let if_match = listed(parts, "if-match");
    let if_none_match = listed(parts, "if-none-match");
    let strong = |list: Vec<(bool, String)>| -> Vec<String> {
        list.into_iter()
            .filter(|(weak, _)| !weak)
            .map(|(_, tag)| tag)
            .collect()
    };
    let all = |list: Vec<(bool, String)>| -> Vec<String> {
        list.into_iter().map(|(_, tag)| tag).collect()
    };
    let known = |list: Option<List>, kept: &dyn Fn(Vec<(bool, String)>) -> Vec<String>| match list {
        None => None,
        Some(List::Any) => Some(EntityTags::Any),
        Some(List::Tags(list)) => Some(EntityTags::Listed(kept(list))),
    };
    match extract::<IfMatch>(parts) {
        Ok(IfMatch(tags)) => {
            let model = known(if_match.clone().expect("it is a list"), &strong);
            let model = model.and_then(|tags| match tags {
                EntityTags::Any => None,
                EntityTags::Listed(tags) => Some(tags),
            });
            assert_eq!(tags, model);
        }
        Err(error) => assert!(if_match.is_err() && error.problem().status == 422),
    }
    match extract::<Conditions>(parts) {
        Ok(Conditions(expected)) => {
            assert_eq!(
                expected.if_match,
                known(if_match.expect("it is a list"), &strong)
            );
            assert_eq!(
                expected.if_none_match,
                known(if_none_match.expect("it is a list"), &all)
            );
        }
        Err(error) => {
            assert!(if_match.is_err() || if_none_match.is_err());
            assert_eq!(error.problem().status, 422);
        }
    }
}

/// The entity tags in a header: whether a tag is weak, and the tag with its quotes.
#[derive(Debug, Clone)]
enum List {
    Any,
    Tags(Vec<(bool, String)>),
}

/// Parses a header. `Err` if it is malformed.
fn listed(parts: &Parts, name: &str) -> Result<Option<List>, ()> {
    let mut tags = None;
    for value in values(parts, name) {
        let value = value.ok_or(())?.trim();
        if value == "*" {
            return Ok(Some(List::Any));
        }
        // Every second piece is the inside of a tag.
        let pieces: Vec<&str> = value.split('"').collect();
        if pieces.len() < 3
            || pieces.len().is_multiple_of(2)
            || !pieces[pieces.len() - 1].is_empty()
        {
            return Err(());
        }
        for (index, pair) in pieces[..pieces.len() - 1].chunks(2).enumerate() {
            let mark = match index {
                0 => pair[0],
                _ => pair[0]
                    .trim_start()
                    .strip_prefix(',')
                    .ok_or(())?
                    .trim_start(),
            };
            if !matches!(mark, "" | "W/") {
                return Err(());
            }
            tags.get_or_insert_with(Vec::new)
                .push((mark == "W/", format!("\"{}\"", pair[1])));
        }
    }
    Ok(tags.map(List::Tags))
}

/// The remaining headers.
fn rest(parts: &mut Parts) {
    let Ok(wait) = extract::<PreferWait>(parts);
    assert!(wait.seconds(300).is_none_or(|seconds| seconds <= 300));
    let key = match &values(parts, "idempotency-key")[..] {
        [] => Ok(None),
        [Some(key)] if (1..=255).contains(&key.len()) && !key.contains('\t') => Ok(Some(*key)),
        _ => Err(()),
    };
    let route = format!("GET {}", parts.uri.path());
    let key = key.map(|key| key.map(str::to_owned));
    match extract::<IdempotencyHeader>(parts) {
        Ok(header) => {
            let got = header.bind(b"{}");
            assert_eq!(Ok(got.as_ref().map(|got| got.key.clone())), key);
            assert!(got.is_none_or(|got| got.route == route));
        }
        Err(error) => assert!(key.is_err() && error.problem().status == 422),
    }
    let offered = [
        Representation::Json,
        Representation::EventStream,
        Representation::Ndjson,
    ];
    let accept = values(parts, "accept");
    match negotiate(&parts.headers, &offered) {
        Ok(form) => {
            let named = |form: Representation| {
                accept
                    .iter()
                    .flatten()
                    .any(|accept| accept.to_ascii_lowercase().contains(form.media_type()))
            };
            assert!(
                form == Representation::Json || offered.contains(&form) && named(form),
                "{accept:?}"
            );
        }
        Err(error) => assert!(!accept.is_empty() && error.problem().status == 406),
    }
}
