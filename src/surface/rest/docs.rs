//! The OpenAPI document, Swagger UI, the page that documents the problem codes, the guides and the reference. All of it
//! works offline.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::extract::Path;
use axum::response::{Html, IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, header};
use rust_embed::{EmbeddedFile, RustEmbed};
use utoipa_swagger_ui::Config;

use super::openapi;
use crate::surface::http::{ApiError, Result, embedded, etag, revalidated};
use events::api::{ProblemCode, PublicPath};

#[derive(RustEmbed)]
#[folder = "docs/guides"]
struct Guides;

#[derive(RustEmbed)]
#[folder = "docs/reference"]
struct Reference;

const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn openapi(public: Option<Extension<PublicPath>>, headers: HeaderMap) -> Response {
    let kind = HeaderValue::from_static("application/json");
    if let Some(Extension(public)) = public {
        let document = openapi::document_below(&public);
        return revalidated(&headers, &document.etag, || {
            embedded(Cow::Owned(document.json.into_bytes()), kind)
        });
    }
    let document = openapi::served_document();
    revalidated(&headers, &document.etag, || {
        embedded(Cow::Borrowed(document.json.as_bytes()), kind)
    })
}

/// The relative links of the page need the trailing slash.
pub(super) async fn index_without_slash() -> Redirect {
    Redirect::permanent("/docs/")
}

pub(super) async fn index() -> Result<Response> {
    serve_file("index.html")
}

pub(super) async fn file(Path(name): Path<String>) -> Result<Response> {
    serve_file(&name)
}

fn serve_file(name: &str) -> Result<Response> {
    static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
        let config = Config::from("../openapi.json");
        Arc::new(config.validator_url("none").deep_linking(true))
    });
    let file = utoipa_swagger_ui::serve(name, Arc::clone(&CONFIG))
        .map_err(|error| ApiError::internal(error.to_string()))?
        .ok_or_else(ApiError::not_found)?;
    let kind = HeaderValue::try_from(file.content_type).map_err(ApiError::internal)?;
    let headers = [
        (header::CACHE_CONTROL, "max-age=3600"),
        (header::CONTENT_SECURITY_POLICY, PAGE_CSP),
    ];
    let encoding = file
        .gzpipped
        .then_some([(header::CONTENT_ENCODING, "gzip")]);
    Ok((headers, encoding, embedded(file.bytes, kind)).into_response())
}

pub(super) async fn guide(Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    markdown(Guides::get(&name), &headers)
}

pub(super) async fn reference(Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    markdown(Reference::get(&name), &headers)
}

/// Plain text, because browsers show it and download other types of text.
fn markdown(page: Option<EmbeddedFile>, headers: &HeaderMap) -> Result<Response> {
    let page = page.ok_or_else(ApiError::not_found)?;
    let etag = etag(&page.metadata.sha256_hash());
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(revalidated(headers, &etag, || embedded(page.data, kind)))
}

/// The target of the `type` of a problem, generated from the table of codes.
pub(super) async fn problems() -> Html<&'static str> {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        let mut page = String::from(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Problems of acp-gateway</title>\n\
             <h1>Problems</h1>\n<p>Every error response is a problem (RFC 9457). Programs should use its <code>code</code>. \
             If a problem is <em>retryable</em>, the same request may succeed later.</p>\n",
        );
        for code in ProblemCode::ALL {
            let retryable = if code.retryable() { ", retryable" } else { "" };
            write!(
                page,
                "<h2 id=\"{0}\"><code>{0}</code></h2>\n<p>{1} ({2}{retryable}).{3}</p>\n",
                code.as_str(),
                code.title(),
                code.status(),
                render_code_spans(code.meaning()),
            )
            .expect("writing to a string cannot fail");
        }
        page
    });
    Html(&PAGE)
}

fn render_code_spans(text: &str) -> String {
    text.split('`')
        .enumerate()
        .map(|(at, part)| {
            if at % 2 == 1 {
                format!("<code>{part}</code>")
            } else {
                part.to_owned()
            }
        })
        .collect()
}
