//! What was said, folded into turns; and what the agent's process wrote to stderr.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::api::Transcript;
use crate::http::error::ApiError;
use crate::http::extract::{By, CanRead, NoQuery, Params, SessionPath};
use crate::http::negotiate::{Form, choose};
use crate::http::state::Gateway;
use crate::transcript::markdown;
use crate::types::PromptId;

/// The session's turns, the newest first, as one snapshot.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/transcript",
    tag = "sessions",
    params(
        ("format" = Option<String>, Query, pattern = "^(json|md)$", description = "`json` or `md`; wins over Accept."),
        ("before" = Option<String>, Query, pattern = "^p[1-9][0-9]{0,8}$", description = "`nextCursor` of the page before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Turns on a page; 50."),
    ),
    responses((
        status = 200, description = "A page.",
        content((Transcript = "application/json"), (String = "text/markdown"))
    ))
)]
pub(in crate::http) async fn get_transcript(
    State(gateway): State<Gateway>,
    by: By<CanRead>,
    SessionPath(session): SessionPath,
    headers: HeaderMap,
    mut params: Params,
) -> Result<Response, ApiError> {
    let form = match params.text("format")?.as_deref() {
        None => choose(&headers, &[Form::Json, Form::Markdown])?,
        Some("json") => Form::Json,
        Some("md") => Form::Markdown,
        Some(_) => return Err(ApiError::invalid("format", "expected json or md")),
    };
    let before: Option<PromptId> = params.parsed("before", "a nextCursor of this transcript")?;
    let limit = params.limit(50, 200)?;
    params.end()?;
    let session = gateway.sessions.open(&by, session).await?;
    let page = session.transcript(before, limit).await?;
    if form == Form::Json {
        return Ok(Json(page).into_response());
    }
    let text = markdown(&page.session, &page.turns);
    let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
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
    by: By<CanRead>,
    SessionPath(session): SessionPath,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    let text = session.stderr().await?;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
