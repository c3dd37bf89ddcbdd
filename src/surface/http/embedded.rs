//! Responses with files that are embedded in the binary, and the encodings that a client accepts.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::body::{ascii, header_texts};
use crate::server::SharedBody;

/// A response with an embedded file. The bytes are not copied, so a client that reads slowly occupies no
/// memory.
pub(crate) fn embedded(bytes: Cow<'static, [u8]>, media_type: HeaderValue) -> Response {
    let shared = matches!(bytes, Cow::Borrowed(_));
    let bytes = match bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    let mut response = ([(header::CONTENT_TYPE, media_type)], bytes).into_response();
    if shared {
        response.extensions_mut().insert(SharedBody);
    }
    response
}

/// Returns 304 if the client has the version with this entity tag, else the response. Browsers revalidate it
/// on each load.
pub(crate) fn revalidated(
    headers: &HeaderMap,
    etag: &HeaderValue,
    response: impl FnOnce() -> Response,
) -> Response {
    // The comparison is weak (RFC 9110, section 13.1.2): a compressed response has a weak tag.
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| {
        let known = known.as_bytes();
        known.strip_prefix(b"W/").unwrap_or(known) == etag.as_bytes()
    });
    let response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        response()
    };
    let no_cache = HeaderValue::from_static("no-cache");
    let headers = [
        (header::ETAG, etag.clone()),
        (header::CACHE_CONTROL, no_cache),
    ];
    (headers, response).into_response()
}

pub(crate) fn etag(hash: &[u8; 32]) -> HeaderValue {
    ascii(format!("\"{}\"", URL_SAFE_NO_PAD.encode(hash)))
}

/// Whether `Accept-Encoding` names the encoding with a weight that is not zero (RFC 9110, section 12.5.3).
pub(crate) fn accepts_encoding(headers: &HeaderMap, encoding: &str) -> bool {
    let given = header_texts(headers, header::ACCEPT_ENCODING);
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
