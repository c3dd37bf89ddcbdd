//! The transcript of a session, folded from its events into turns, and the stderr of its process.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::surface::http::{ApiError, ApiRequest, CanRead, IfNoneMatch, Params};
use crate::surface::rest::negotiate::{Representation, negotiate};
use base::types::text::strip_controls;
use base::types::{PromptId, SessionId};
use events::api::Transcript;
use sessions::transcript::markdown;

/// Gets the turns of a session as one snapshot, the newest first.
///
/// `format=md` or `Accept: text/markdown` returns the same as `/transcript/markdown`.
#[utoipa::path(get, path = "/v1/sessions/{session}/transcript", responses(
    (status = 200, body = Transcript, description = "A page of turns."),
    (status = 304, description = "The page has an ETag from `If-None-Match`."),
))]
pub(super) async fn get_transcript(
    mut request: PageRequest,
    (headers, known): (HeaderMap, IfNoneMatch),
) -> Result<Response, ApiError> {
    let form = match request.params.text("format")?.as_deref() {
        None => negotiate(&headers, &[Representation::Json, Representation::Markdown])?,
        Some("json") => Representation::Json,
        Some("md") => Representation::Markdown,
        Some(_) => return Err(ApiError::invalid("format", "expected json or md")),
    };
    respond_page(request, form, &known).await
}

/// Gets the turns of a session as Markdown, for any `Accept`.
///
/// The pages are those of the transcript. `If-None-Match` returns 304 if no event was added.
#[utoipa::path(get, path = "/v1/sessions/{session}/transcript/markdown", responses(
    (status = 200, body = String, content_type = "text/markdown", description = "A page of turns."),
    (status = 304, description = "The page has an ETag from `If-None-Match`."),
))]
pub(super) async fn get_transcript_markdown(
    request: PageRequest,
    known: IfNoneMatch,
) -> Result<Response, ApiError> {
    respond_page(request, Representation::Markdown, &known).await
}

type PageRequest = ApiRequest<CanRead, SessionId, Params>;

async fn respond_page(
    mut request: PageRequest,
    form: Representation,
    known: &IfNoneMatch,
) -> Result<Response, ApiError> {
    let before: Option<PromptId> = request
        .params
        .parsed("before", "a nextCursor of this transcript")?;
    let cursor: Option<PromptId> = request
        .params
        .parsed("cursor", "a nextCursor of this transcript")?;
    if before.is_some() && cursor.is_some() {
        let detail = "expected either cursor or before, which have the same meaning";
        return Err(ApiError::invalid("cursor", detail));
    }
    let limit = request.params.limit(50, 200)?;
    request.params.finish()?;
    let session = request.open_session().await?;
    let page = session
        .query()
        .transcript(session.snapshot().await?, cursor.or(before), limit)
        .await?;
    // Weak, because retention may delete the beginning of a turn without appending an event.
    let format = if form == Representation::Json {
        ""
    } else {
        "-md"
    };
    let etag = format!("W/\"{}{format}\"", page.last_event_id);
    Ok(known.respond(&etag, || match form {
        Representation::Markdown => {
            let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
            (
                [(header::CONTENT_TYPE, kind)],
                markdown(&page.session, &page.turns),
            )
                .into_response()
        }
        _ => Json(page).into_response(),
    }))
}

/// Gets the end of the stderr output of the session's process. The text is empty if the session has no
/// process.
///
/// The text has no escape sequences, control characters (except line feeds and tabs) and bidi controls. With
/// `Accept: application/octet-stream` it is as the process wrote it.
#[utoipa::path(get, path = "/v1/sessions/{session}/stderr", responses(
    (status = 200, body = String, content_type = "text/plain", description = "The last lines of the output."),
))]
pub(super) async fn get_stderr(
    request: ApiRequest<CanRead, SessionId>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Representation::Text, Representation::Raw])?;
    let session = request.open_session().await?;
    let output = session.stderr().await?;
    let (kind, output) = match form {
        Representation::Raw => ("application/octet-stream", output),
        _ => (
            "text/plain; charset=utf-8",
            strip_controls(&output).into_owned(),
        ),
    };
    Ok((
        [(header::CONTENT_TYPE, HeaderValue::from_static(kind))],
        output,
    )
        .into_response())
}
