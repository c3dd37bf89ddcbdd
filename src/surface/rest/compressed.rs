//! The compression of JSON responses.
//!
//! Only responses to GET are compressed. Answers with keys, tickets and secrets belong to other methods, or are shorter than
//! any compressed response (`GET /v1/webhooks/secret`): their compressed length would depend on the secret.

use std::io::Write as _;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::shutdown::Shutdown;

/// Smaller bodies gain nothing.
const MIN_BYTES: u64 = 1024;
/// Larger bodies are sent as they are. No page of the API reaches this size.
const MAX_BYTES: u64 = 16 << 20;

/// Whether the response to a request with this method and these headers may be compressed.
pub(super) fn is_requested(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET && accepts_encoding(headers, "gzip")
}

/// Whether `Accept-Encoding` names the encoding with a weight that is not zero (RFC 9110, section 12.5.3).
pub(in crate::surface) fn accepts_encoding(headers: &HeaderMap, encoding: &str) -> bool {
    let given = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).any(|part| {
        let mut words = part.split(';').map(str::trim);
        let is_named = words
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        let weight =
            words.find_map(|word| word.strip_prefix("q=").or_else(|| word.strip_prefix("Q=")));
        is_named
            && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

/// Compresses a response if it is JSON. `requested`: whether the client accepts it.
pub(super) async fn compress(response: Response, requested: bool, shutdown: &Shutdown) -> Response {
    if !is_compressible(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts
        .headers
        .append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !requested {
        return Response::from_parts(parts, body);
    }
    let plain = to_bytes(body, usize::MAX)
        .await
        .expect("the body is in memory");
    let copy = plain.clone();
    let compressed = shutdown.spawn_blocking(move || gzip(&copy)).await;
    // The runtime ends.
    let Ok(compressed) = compressed else {
        return Response::from_parts(parts, Body::from(plain));
    };
    let headers = &mut parts.headers;
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(compressed.len()));
    weaken_tag(headers);
    Response::from_parts(parts, Body::from(compressed))
}

/// Whether the response is JSON of the API, in memory. A part of a file, and a file that a client may read in parts, has the
/// bytes of the file.
fn is_compressible(response: &Response) -> bool {
    let headers = response.headers();
    let media_type = headers.get(header::CONTENT_TYPE);
    let is_json = media_type.is_some_and(|media| media.as_bytes().starts_with(b"application/json"));
    let size = response.body().size_hint().exact();
    is_json
        && response.status() == StatusCode::OK
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !headers.contains_key(header::ACCEPT_RANGES)
        && size.is_some_and(|size| (MIN_BYTES..=MAX_BYTES).contains(&size))
}

/// A strong tag names exact bytes (RFC 9110, section 8.8.1).
fn weaken_tag(headers: &mut HeaderMap) {
    let tag = headers.get(header::ETAG).map(HeaderValue::as_bytes);
    let Some(tag) = tag.filter(|tag| tag.starts_with(b"\"")) else {
        return;
    };
    let weak = HeaderValue::from_bytes(&[b"W/", tag].concat());
    headers.insert(header::ETAG, weak.expect("a tag is visible ASCII"));
}

fn gzip(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("memory accepts all bytes").into()
}
