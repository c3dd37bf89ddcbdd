//! What was said, folded into turns; and what the agent's process wrote to stderr.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::api::Transcript;
use crate::http::error::ApiError;
use crate::http::extract::{Authorized, CanRead, IfNoneMatch, NoQuery, Params, SessionPath};
use crate::http::negotiate::{Representation, negotiate};
use crate::http::state::Gateway;
use crate::transcript::markdown;
use crate::types::{PromptId, SessionId};

/// The session's turns, the newest first, as one snapshot.
///
/// `format=md` or `Accept: text/markdown` gives the same as `/transcript/markdown`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/transcript",
    tag = "sessions",
    params(
        ("before" = Option<String>, Query, pattern = "^p[1-9][0-9]{0,8}$", description = "`nextCursor` of the page before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Turns on a page; 50."),
        ("If-None-Match" = Option<String>, Header, description = "ETags of versions that the client has already."),
    ),
    responses(
        (
            status = 200, description = "A page.",
            body = Transcript,
            headers(("ETag" = String, description = "For If-None-Match."))
        ),
        (
            status = 304, description = "The page is the version that If-None-Match names.",
            headers(("ETag" = String, description = "Of the page."))
        ),
    )
)]
pub(in crate::http) async fn get_transcript(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    (headers, known): (HeaderMap, IfNoneMatch),
    mut params: Params,
) -> Result<Response, ApiError> {
    let form = match params.text("format")?.as_deref() {
        None => negotiate(&headers, &[Representation::Json, Representation::Markdown])?,
        Some("json") => Representation::Json,
        Some("md") => Representation::Markdown,
        Some(_) => return Err(ApiError::invalid("format", "expected json or md")),
    };
    respond_page(&gateway, &by, session, form, &known, params).await
}

/// The session's turns as Markdown, for any `Accept`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/transcript/markdown",
    tag = "sessions",
    params(
        ("before" = Option<String>, Query, pattern = "^p[1-9][0-9]{0,8}$", description = "`nextCursor` of the page before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Turns on a page; 50."),
        ("If-None-Match" = Option<String>, Header, description = "ETags of versions that the client has already."),
    ),
    responses(
        (
            status = 200, description = "A page.", body = String, content_type = "text/markdown",
            headers(("ETag" = String, description = "For If-None-Match."))
        ),
        (
            status = 304, description = "The page is the version that If-None-Match names.",
            headers(("ETag" = String, description = "Of the page."))
        ),
    )
)]
pub(in crate::http) async fn get_transcript_markdown(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    known: IfNoneMatch,
    params: Params,
) -> Result<Response, ApiError> {
    respond_page(&gateway, &by, session, Representation::Markdown, &known, params).await
}

async fn respond_page(
    gateway: &Gateway,
    by: &Authorized<CanRead>,
    session: SessionId,
    form: Representation,
    known: &IfNoneMatch,
    mut params: Params,
) -> Result<Response, ApiError> {
    let before: Option<PromptId> = params.parsed("before", "a nextCursor of this transcript")?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let session = gateway.sessions.open(by, session).await?;
    let page = session.transcript(before, limit).await?;
    // Weak: retention may drop the beginning of a turn, which appends no event.
    let format = if form == Representation::Json { "" } else { "-md" };
    let etag = format!("W/\"{}{format}\"", page.last_event_id);
    Ok(known.respond(&etag, || match form {
        Representation::Markdown => {
            let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
            ([(header::CONTENT_TYPE, kind)], markdown(&page.session, &page.turns)).into_response()
        }
        _ => Json(page).into_response(),
    }))
}

/// The end of what the session's process wrote to stderr; empty without a process.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/stderr",
    tag = "sessions",
    responses((status = 200, body = String, content_type = "text/plain", description = "Its last lines."))
)]
pub(in crate::http) async fn get_stderr(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    let text = session.stderr().await?;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
