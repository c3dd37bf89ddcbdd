//! Responses with files that are embedded in the binary.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::server::SharedBody;

/// A response with an embedded file. The bytes are not copied, so a client that reads slowly occupies no
/// memory.
pub(super) fn embedded(bytes: Cow<'static, [u8]>, media_type: HeaderValue) -> Response {
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
pub(super) fn revalidated(
    headers: &HeaderMap,
    etag: &HeaderValue,
    response: impl FnOnce() -> Response,
) -> Response {
    // The comparison is weak (RFC 9110, section 13.1.2): a compressed response has a weak tag.
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| {
        let known = known.as_bytes();
        known.strip_prefix(b"W/").unwrap_or(known) == etag.as_bytes()
    });
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        response()
    };
    response.headers_mut().insert(header::ETAG, etag.clone());
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// An entity tag from the SHA-256 of the content.
pub(super) fn etag(hash: &[u8; 32]) -> HeaderValue {
    HeaderValue::try_from(format!("\"{}\"", URL_SAFE_NO_PAD.encode(hash)))
        .expect("base64 is plain ASCII")
}
