//! The chat page: files that are embedded in the binary and served with a strict content security policy.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, header};
use rust_embed::EmbeddedFile;

use crate::surface::http::{
    ApiError, AppState, Result, accepts_encoding, embedded, etag, revalidated,
};

// `Files`: the page, from the build script.
include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The encodings of `Accept-Encoding` in which the build script adds each file, and the suffix of its name. The smallest
/// comes first.
const ENCODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

/// The page runs only its own scripts and connects only to its own gateway. Only pages of the origins in
/// `auth.frame_ancestors` can frame it. The browser accepts markup from a string only if the sanitizer (`DOMPurify`)
/// produced it.
const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    require-trusted-types-for 'script'; trusted-types dompurify worker";

/// A browser applies the policy in the response of a worker's script to the worker. Workers import scripts of the page
/// and open no connections.
const ASSET_CSP: &str = "default-src 'none'; script-src 'self'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(index))
        .route("/assets/{*file}", get(asset))
        .route("/favicon.svg", get(favicon))
        .route("/manifest.webmanifest", get(manifest))
        .route("/notices.js", get(notices))
}

async fn index(State(app): State<AppState>, headers: HeaderMap) -> Result<Response> {
    let page = File::find("index.html", &headers)?;
    let etag = page.etag();
    let response = vary(revalidated(&headers, &etag, || page.response()));
    let ancestors = &app.policy.options.frame_ancestors;
    let ancestors = if ancestors.is_empty() {
        "'none'".to_owned()
    } else {
        ancestors.join(" ")
    };
    let policy = HeaderValue::try_from(format!("{PAGE_CSP}; frame-ancestors {ancestors}"));
    let policy = policy.map_err(ApiError::internal)?;
    let header = [(header::CONTENT_SECURITY_POLICY, policy)];
    Ok((header, response).into_response())
}

/// The assets of the page. Their names contain a hash of their content, so they never change.
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    let path = format!("assets/{name}");
    let response = cached(&path, &headers, "public, max-age=31536000, immutable")?;
    let policy = [(header::CONTENT_SECURITY_POLICY, ASSET_CSP)];
    Ok((policy, response).into_response())
}

async fn favicon(headers: HeaderMap) -> Result<Response> {
    cached("favicon.svg", &headers, "max-age=86400")
}

/// The name and the icon of the page, for browsers that install it as an application.
async fn manifest(headers: HeaderMap) -> Result<Response> {
    cached("manifest.webmanifest", &headers, "max-age=86400")
}

/// The service worker that shows notifications. Browsers look for a new one at each registration.
async fn notices(headers: HeaderMap) -> Result<Response> {
    cached("notices.js", &headers, "no-cache")
}

fn cached(path: &str, headers: &HeaderMap, cache_control: &'static str) -> Result<Response> {
    let file = File::find(path, headers)?;
    let header = [(header::CACHE_CONTROL, cache_control)];
    Ok((header, vary(file.response())).into_response())
}

struct File {
    media_type: HeaderValue,
    encoding: Option<&'static str>,
    content: EmbeddedFile,
}

impl File {
    fn find(path: &str, headers: &HeaderMap) -> Result<Self> {
        // The compressed forms are not files of their own.
        if ENCODINGS.iter().any(|(_, suffix)| path.ends_with(suffix)) {
            return Err(ApiError::not_found());
        }
        let mut accepted = ENCODINGS
            .iter()
            .filter(|(encoding, _)| accepts_encoding(headers, encoding));
        let compressed = accepted.find_map(|(encoding, suffix)| {
            Some((Some(*encoding), Files::get(&format!("{path}{suffix}"))?))
        });
        let plain = || Files::get(path).map(|content| (None, content));
        let found = compressed.or_else(plain);
        let (encoding, content) = found.ok_or_else(ApiError::not_found)?;
        Ok(Self {
            media_type: media_type(path),
            encoding,
            content,
        })
    }

    fn etag(&self) -> HeaderValue {
        etag(&self.content.metadata.sha256_hash())
    }

    fn response(&self) -> Response {
        let response = embedded(self.content.data.clone(), self.media_type.clone());
        let encoding = self
            .encoding
            .map(|encoding| [(header::CONTENT_ENCODING, encoding)]);
        (encoding, response).into_response()
    }
}

fn vary(response: Response) -> Response {
    ([(header::VARY, "accept-encoding")], response).into_response()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accepted: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::try_from(accepted).expect("ASCII"),
        )])
    }

    #[test]
    fn smallest_accepted_encoding_is_served() {
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip;q=1.0, BR;q=0", Some("gzip")),
            ("identity", None),
            ("br;q=0.000", None),
            ("brotli, x-gzip", None),
            ("", None),
        ] {
            let file = File::find("index.html", &headers(accepted)).expect("the page");
            assert_eq!(file.encoding, expected, "{accepted}");
            assert_eq!(file.media_type, "text/html; charset=utf-8");
        }
        assert!(File::find("index.html.br", &headers("br")).is_err());
        let tag = |accepted| {
            File::find("index.html", &headers(accepted))
                .expect("the page")
                .etag()
        };
        assert_ne!(tag("br"), tag("gzip"));
    }
}
