//! The OpenAPI document, Swagger UI, the page that documents the problem codes, the guides and the reference with an index.
//! All of it works offline.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, header};
use rust_embed::{EmbeddedFile, RustEmbed};
use utoipa_swagger_ui::Config;

use super::openapi;
use crate::surface::http::{ApiError, Result, accepts_encoding, embedded, etag, revalidated};
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

/// The sections about guides and reference in the index of the documentation, with its tables as lists.
pub(super) async fn index() -> Response {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        let mut page = page_head("Documentation of acp-gateway");
        page += "<p><a href=\"api\">REST API</a>, <a href=\"problems\">problem codes</a></p>\n";
        let index = include_str!("../../../docs/README.md");
        for section in index
            .split("\n## ")
            .filter(|text| text.contains("](guides/") || text.contains("](reference/"))
        {
            let (title, rows) = section.split_once('\n').unwrap_or((section, ""));
            write!(page, "<h2>{title}</h2>\n<ul>\n").expect("writing to a string cannot fail");
            for row in rows.lines().filter_map(|row| row.strip_prefix("| [")) {
                page += &list_item(row).unwrap_or_default();
            }
            page += "</ul>\n";
        }
        page
    });
    html(&PAGE)
}

/// The list item of a row `[Title](path) | text |`, without its first character.
fn list_item(row: &str) -> Option<String> {
    let (title, row) = row.split_once("](")?;
    let (path, text) = row.split_once(") | ")?;
    let text = render_code_spans(text.trim_end_matches(" |"));
    Some(format!("<li><a href=\"{path}\">{title}</a>: {text}</li>\n"))
}

fn page_head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n"
    )
}

fn html(page: &'static str) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    embedded(Cow::Borrowed(page.as_bytes()), kind)
}

/// Swagger UI, whose other files are beside it.
pub(super) async fn api(headers: HeaderMap) -> Result<Response> {
    serve_file("index.html", &headers)
}

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    serve_file(&name, &headers)
}

fn serve_file(name: &str, headers: &HeaderMap) -> Result<Response> {
    static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
        let config = Config::from("../openapi.json");
        Arc::new(config.validator_url("none").deep_linking(true))
    });
    let file = utoipa_swagger_ui::serve(name, Arc::clone(&CONFIG))
        .map_err(|error| ApiError::internal(error.to_string()))?
        .ok_or_else(ApiError::not_found)?;
    let kind = HeaderValue::try_from(file.content_type).map_err(ApiError::internal)?;
    let accepts_gzip = accepts_encoding(headers, "gzip");
    let is_compressed = file.gzpipped && accepts_gzip;
    let content = if file.gzpipped && !accepts_gzip {
        let mut plain = Vec::new();
        let unpacked = GzDecoder::new(&*file.bytes).read_to_end(&mut plain);
        unpacked.map_err(|error| ApiError::internal(error.to_string()))?;
        Cow::Owned(plain)
    } else {
        file.bytes
    };
    let headers = [
        (header::CACHE_CONTROL, "max-age=3600"),
        (header::CONTENT_SECURITY_POLICY, PAGE_CSP),
        (header::VARY, "accept-encoding"),
    ];
    let encoding = is_compressed.then_some([(header::CONTENT_ENCODING, "gzip")]);
    Ok((headers, encoding, embedded(content, kind)).into_response())
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
pub(super) async fn problems() -> Response {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        let mut page = page_head("Problems of acp-gateway");
        page += "<p>Every error response is a problem (RFC 9457). Programs should use its <code>code</code>. \
             If a problem is <em>retryable</em>, the same request may succeed later.</p>\n";
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
    html(&PAGE)
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
