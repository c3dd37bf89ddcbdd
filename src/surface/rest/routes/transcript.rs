//! The transcript of a session, folded from its events into turns, the stderr of its process, and the terminals that the
//! gateway runs for the agent.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};

use super::operations::Routes;
use crate::surface::http::{
    ApiError, ApiRequest, CanApprove, CanRead, IfNoneMatch, Params, Result,
};
use crate::surface::rest::negotiate::{Representation, negotiate};
use base::types::text::strip_controls;
use base::types::{Access, PromptId, SessionId, TerminalId};
use events::api::{ProblemCode, TerminalList, TerminalWindow, Transcript};
use events::event::ExportForm;
use sessions::transcript::markdown;

pub(super) fn routes() -> Routes {
    routes![
        get_transcript,
        get_transcript_markdown,
        get_stderr,
        list_terminals,
        get_terminal,
        kill_terminal
    ]
}

/// Gets the turns of a session as one snapshot, the newest first.
///
/// `format=md` or `Accept: text/markdown` returns the same as `/transcript/markdown`.
#[utoipa::path(get, path = "/v1/sessions/{session}/transcript", responses(
    (status = 200, body = Transcript, description = "A page of turns."),
    (status = 304, description = "The page has an ETag from `If-None-Match`."),
))]
async fn get_transcript(
    mut request: PageRequest,
    headers: HeaderMap,
    known: IfNoneMatch,
) -> Result<Response> {
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
async fn get_transcript_markdown(request: PageRequest, known: IfNoneMatch) -> Result<Response> {
    respond_page(request, Representation::Markdown, &known).await
}

type PageRequest = ApiRequest<CanRead, SessionId, Params>;

async fn respond_page(
    mut request: PageRequest,
    form: Representation,
    known: &IfNoneMatch,
) -> Result<Response> {
    let expected = "a nextCursor of this transcript";
    let before: Option<PromptId> = request.params.parsed("before", expected)?;
    let cursor: Option<PromptId> = request.params.parsed("cursor", expected)?;
    if before.is_some() && cursor.is_some() {
        let detail = "expected either cursor or before, which have the same meaning";
        return Err(ApiError::invalid("cursor", detail));
    }
    let limit = request.params.limit(50, 200)?;
    request.params.finish()?;
    let session = request.open_session().await?;
    let snapshot = session.snapshot().await?;
    let page = session
        .query()
        .transcript(snapshot, cursor.or(before), limit);
    let page = page.await?;
    // Weak, because retention may delete the beginning of a turn without appending an event.
    let format = if form == Representation::Json {
        ""
    } else {
        "-md"
    };
    // The session of the page has the access of the user.
    let access = page.session.access.filter(|access| *access != Access::Own);
    let access = access.map_or("", Access::name);
    let etag = format!("W/\"{}{format}{access}\"", page.last_event_id);
    let exported = |form| {
        let author = request.by.author();
        request
            .app
            .audit
            .transcript_exported(&author, request.ids, form);
    };
    Ok(known.respond(&etag, || {
        if form == Representation::Markdown {
            exported(ExportForm::Markdown);
            let kind = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
            return (kind, markdown(&page.session, &page.turns)).into_response();
        }
        exported(ExportForm::Json);
        Json(page).into_response()
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
async fn get_stderr(
    request: ApiRequest<CanRead, SessionId>,
    headers: HeaderMap,
) -> Result<Response> {
    let form = negotiate(&headers, &[Representation::Text, Representation::Raw])?;
    let session = request.open_session().await?;
    let output = session.stderr().await?;
    let (kind, output) = if form == Representation::Raw {
        ("application/octet-stream", output)
    } else {
        let plain = strip_controls(&output).into_owned();
        ("text/plain; charset=utf-8", plain)
    };
    Ok(([(header::CONTENT_TYPE, kind)], output).into_response())
}

/// Lists the terminals that the gateway ran for the session, the newest first.
///
/// The list does not contain terminals that clients serve or that the agent runs itself.
#[utoipa::path(get, path = "/v1/sessions/{session}/terminals", responses(
    (status = 200, body = TerminalList, description = "A page of terminals."),
))]
async fn list_terminals(
    mut request: ApiRequest<CanRead, SessionId, Params>,
) -> Result<Json<TerminalList>> {
    let params = &mut request.params;
    let before = params.parsed("cursor", "the nextCursor of a previous page")?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let session = request.open_session().await?;
    Ok(Json(session.query().terminals(before, limit).await?))
}

/// Gets a terminal with the end of its output. The response reflects every event up to its `lastEventId`.
///
/// The output is the end of the whole output, at most as many bytes as the gateway keeps; `truncated` is true if its
/// beginning is missing.
#[utoipa::path(get, path = "/v1/sessions/{session}/terminals/{terminal}", responses(
    (status = 200, body = TerminalWindow, description = "The terminal and the end of its output."),
))]
async fn get_terminal(
    request: ApiRequest<CanRead, (SessionId, TerminalId)>,
) -> Result<Json<TerminalWindow>> {
    let session = request.open_session().await?;
    let window = session.query().terminal(request.ids.1).await?;
    let detail = "there is no such terminal in this session";
    let missing = || ApiError::new(ProblemCode::NotFound, detail);
    Ok(Json(window.ok_or_else(missing)?))
}

/// Kills the command of a terminal and all processes that it started.
///
/// The event `terminal.exited` follows when the command has ended. The agent keeps the terminal and can still
/// read its output. If the command has already ended, the request has no effect.
#[utoipa::path(post, path = "/v1/sessions/{session}/terminals/{terminal}/kill", responses(
    (status = 204, description = "The gateway kills the command, or the command had already ended."),
))]
async fn kill_terminal(
    request: ApiRequest<CanApprove, (SessionId, TerminalId)>,
) -> Result<StatusCode> {
    let session = request.open_session().await?;
    session.kill_terminal(request.ids.1).await?;
    Ok(StatusCode::NO_CONTENT)
}
