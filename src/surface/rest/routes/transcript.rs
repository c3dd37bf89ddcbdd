//! The transcript of a session, folded from its events into turns, and the stderr of its process.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::api::Transcript;
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{Authorized, CanRead, IfNoneMatch, NoQuery, Params, SessionPath};
use crate::surface::rest::negotiate::{Representation, negotiate};
use crate::surface::rest::openapi::shared::{EarlierTurns, KnownVersions, UnchangedPage};
use crate::transcript::markdown;
use crate::types::{PromptId, SessionId};

/// Gets the turns of a session as one snapshot, the newest first.
///
/// `format=md` or `Accept: text/markdown` returns the same as `/transcript/markdown`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/transcript",
    tag = "sessions",
    params(EarlierTurns, KnownVersions),
    responses(
        (
            status = 200, description = "A page of turns.",
            body = Transcript,
            headers(("ETag" = String, description = "The version of the page, for `If-None-Match`."))
        ),
        UnchangedPage,
    )
)]
pub(super) async fn get_transcript(
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

/// Gets the turns of a session as Markdown, for any `Accept`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/transcript/markdown",
    tag = "sessions",
    params(EarlierTurns, KnownVersions),
    responses(
        (
            status = 200, description = "A page of turns.", body = String, content_type = "text/markdown",
            headers(("ETag" = String, description = "The version of the page, for `If-None-Match`."))
        ),
        UnchangedPage,
    )
)]
pub(super) async fn get_transcript_markdown(
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
    let page = session.query().transcript(session.snapshot().await?, before, limit).await?;
    // Weak, because retention may delete the beginning of a turn without appending an event.
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

/// Gets the end of the stderr output of the session's process. The text is empty if the session has no
/// process.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/stderr",
    tag = "sessions",
    responses((status = 200, body = String, content_type = "text/plain", description = "The last lines of the output."))
)]
pub(super) async fn get_stderr(
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
