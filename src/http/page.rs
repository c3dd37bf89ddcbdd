//! The chat page: files that are embedded in the binary, served under a strict policy.

use std::borrow::Cow;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::backlog::SharedBody;
use super::error::ApiError;

#[derive(RustEmbed)]
#[folder = "web/dist"]
struct Files;

/// The page runs its own scripts and talks to its own gateway, nothing else; nobody may frame it. Markup that is made
/// from a string has to come out of the sanitizer: the browser refuses any other.
const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

/// The page itself: asked for again each time, answered briefly when it is the same.
pub(super) async fn index(headers: HeaderMap) -> Result<Response, ApiError> {
    let page = Files::get("index.html").ok_or_else(ApiError::not_found)?;
    let etag = etag(&page.metadata.sha256_hash());
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == etag);
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { file("index.html", page) };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_CSP));
    Ok(response)
}

/// Parts of the page: their names hold a hash of what they are, so they never change.
pub(super) async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let path = format!("assets/{name}");
    let mut response = file(&path, Files::get(&path).ok_or_else(ApiError::not_found)?);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, forever);
    Ok(response)
}

pub(super) async fn favicon() -> Result<Response, ApiError> {
    let mut response = file("favicon.svg", Files::get("favicon.svg").ok_or_else(ApiError::not_found)?);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=86400"));
    Ok(response)
}

fn file(path: &str, file: EmbeddedFile) -> Response {
    embedded(file.data, media_type(path))
}

/// A file that is part of the binary. Its bytes are not copied: a client that reads none of them costs no memory.
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

/// Of the SHA-256 of what is served.
pub(super) fn etag(hash: &[u8; 32]) -> HeaderValue {
    HeaderValue::try_from(format!("\"{}\"", URL_SAFE_NO_PAD.encode(hash))).expect("base64 is plain ASCII")
}

/// With `nosniff` a browser takes these at their word.
fn media_type(path: &str) -> HeaderValue {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    HeaderValue::from_static(match extension {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    })
}
