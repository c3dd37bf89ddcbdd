//! The chat page: files that are embedded in the binary and served with a strict content security policy.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, header};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::embedded::{embedded, etag, revalidated};
use super::rest::ApiError;
use super::state::Gateway;

#[derive(RustEmbed)]
#[folder = "web/dist"]
struct Files;

/// The page runs only its own scripts, connects only to its own gateway, and cannot be framed. The browser
/// accepts markup from a string only if the sanitizer (`DOMPurify`) produced it.
const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify worker";

pub(super) fn routes() -> Router<Gateway> {
    Router::new()
        .route("/", get(index))
        .route("/assets/{*file}", get(asset))
        .route("/favicon.svg", get(favicon))
}

/// The page itself.
async fn index(headers: HeaderMap) -> Result<Response, ApiError> {
    let page = Files::get("index.html").ok_or_else(ApiError::not_found)?;
    let etag = etag(&page.metadata.sha256_hash());
    let mut response = revalidated(&headers, &etag, || file("index.html", page));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_CSP));
    Ok(response)
}

/// The assets of the page. Their names contain a hash of their content, so they never change.
async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    cached(&format!("assets/{name}"), "public, max-age=31536000, immutable")
}

async fn favicon() -> Result<Response, ApiError> {
    cached("favicon.svg", "max-age=86400")
}

fn cached(path: &str, cache_control: &'static str) -> Result<Response, ApiError> {
    let mut response = file(path, Files::get(path).ok_or_else(ApiError::not_found)?);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    Ok(response)
}

fn file(path: &str, file: EmbeddedFile) -> Response {
    embedded(file.data, media_type(path))
}

/// The media type by file extension. It must be exact, because `nosniff` disables detection in the browser.
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
