//! `/v1/sessions/{session}/prompts`: starts, reads, changes and cancels turns, and waits for their end.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use super::operations::Routes;
use crate::stream::Sse;
use crate::surface::http::{
    ApiError, ApiRequest, Authorized, CanPrompt, CanRead, IdempotencyHeader, JsonBody, NewTurn,
    Params, PreferWait, PreferenceApplied, PromptSize, Replayed, Result, location, turn_feed,
};
use crate::surface::rest::negotiate::{Representation, negotiate};
use base::types::{PromptId, SessionId};
use events::api::{CancelCause, Cancelled, CreatePrompt, Problem, Prompt, PromptList, PromptPatch};
use events::event::SessionEvent;
use sessions::session::{AdmittedPrompt, PromptRequest, SessionHandle};
use wire::acp::to_one_line;

pub(super) fn routes() -> Routes {
    routes![
        list_prompts,
        create_prompt,
        create_prompt_stream,
        get_prompt,
        patch_prompt,
        cancel_session,
        cancel_prompt
    ]
}

pub(super) const MAX_WAIT_SECONDS: u64 = 300;

/// Starts a turn.
///
/// The gateway responds at once. With `Prefer: wait=N`, it responds when the turn ends or after N seconds.
/// `Accept: text/event-stream` returns the same as `/prompts/stream`. Closing the connection does not cancel
/// the turn.
#[utoipa::path(post, path = "/v1/sessions/{session}/prompts",
    request_body = CreatePrompt, responses(
    (status = 200, body = Prompt, description = "The turn has ended within the wait."),
    (status = 202, body = Prompt, description = "The turn runs or is queued. To receive all of its further events, read the events with `?after=` and its `lastEventId`."),
))]
async fn create_prompt(
    request: ApiRequest<CanPrompt, SessionId>,
    headers: HeaderMap,
    wait: PreferWait,
    key: IdempotencyHeader,
    body: JsonBody<CreatePrompt, PromptSize>,
) -> Result<Response> {
    let forms = [Representation::Json, Representation::EventStream];
    let form = negotiate(&headers, &forms)?;
    begin_prompt(request, form, wait.duration(MAX_WAIT_SECONDS), key, body).await
}

/// Starts a turn and streams all of its events as Server-Sent Events, for any `Accept`.
///
/// Closing the connection does not cancel the turn. To resume, send the id of the last received event as
/// `Last-Event-ID` to `/prompts/{prompt}/events/stream`.
#[utoipa::path(post, path = "/v1/sessions/{session}/prompts/stream",
    request_body = CreatePrompt, responses(
    (status = 200, content((SessionEvent = "text/event-stream")), description = "The events of the turn."),
))]
async fn create_prompt_stream(
    request: ApiRequest<CanPrompt, SessionId>,
    key: IdempotencyHeader,
    body: JsonBody<CreatePrompt, PromptSize>,
) -> Result<Response> {
    begin_prompt(request, Representation::EventStream, None, key, body).await
}

async fn begin_prompt(
    request: ApiRequest<CanPrompt, SessionId>,
    form: Representation,
    wait: Option<Duration>,
    key: IdempotencyHeader,
    body: JsonBody<CreatePrompt, PromptSize>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let session = request.open_session().await?;
    let app = request.app;
    let by = request.by;
    let prompt = PromptRequest {
        attachments: body.value.attachments,
        queue: body.value.queue,
        key,
        trace: request.trace,
        ..PromptRequest::new(content_blocks(body.value.prompt)?)
    };
    // The request may wait for the whole turn.
    drop(body.bytes);
    let held = form == Representation::EventStream || wait.is_some();
    let NewTurn { admitted, guard } =
        NewTurn::begin::<ApiError>(&app, &by, &session, prompt, held).await?;
    let session_id = session.id();
    let prompt_id = admitted.prompt.prompt_id;
    let location = location(format!("/v1/sessions/{session_id}/prompts/{prompt_id}"));
    let replayed = Replayed(admitted.replayed);
    let response = match (form, guard) {
        (Representation::EventStream, Some(guard)) => {
            let first = admitted.first_seq;
            let feed = turn_feed(&app, session, prompt_id, first, admitted.last_seq);
            app.stream_response(by.admission(), guard, feed, Box::new(Sse::<true>), true)
        }
        (_, _guard) => wait_and_respond(&by, &session, admitted, wait).await?,
    };
    Ok((location, replayed, response).into_response())
}

async fn wait_and_respond(
    by: &Authorized<CanPrompt>,
    session: &SessionHandle,
    admitted: AdmittedPrompt,
    wait: Option<Duration>,
) -> Result<Response> {
    let prompt = admitted.prompt;
    let ended = match wait {
        _ if admitted.replayed && prompt.status.has_ended() => None,
        Some(limit) => wait_ended(by, session, prompt.prompt_id, limit).await?,
        None => None,
    };
    let prompt = ended.unwrap_or(prompt);
    let status = if prompt.status.has_ended() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, PreferenceApplied(wait), Json(prompt)).into_response())
}

/// Waits up to `limit` for the end of the turn; `None` on time-out. Fails if the key ends first.
async fn wait_ended<S>(
    by: &Authorized<S>,
    session: &SessionHandle,
    prompt: PromptId,
    limit: Duration,
) -> Result<Option<Prompt>> {
    tokio::select! {
        biased;
        () = by.admission().wait_key_ended() => Err(Problem::key_ended().into()),
        ended = session.wait_ended(prompt, limit) => Ok(ended?),
    }
}

/// The content blocks of a prompt. A text becomes one block. The session checks whether the agent supports
/// them.
pub(super) fn content_blocks(prompt: Box<RawValue>) -> Result<Box<RawValue>> {
    match prompt.get().as_bytes().first() {
        Some(b'"') if prompt.get() == "\"\"" => {
            Err(ApiError::invalid("/prompt", "the prompt is empty"))
        }
        Some(b'"') => {
            let block = format!("[{{\"type\":\"text\",\"text\":{}}}]", prompt.get());
            Ok(RawValue::from_string(block).expect("a JSON string in an object is JSON"))
        }
        Some(b'[') => Ok(to_one_line(prompt)),
        _ => Err(ApiError::invalid(
            "/prompt",
            "expected a text or an array of content blocks",
        )),
    }
}

/// Lists the turns of a session, the newest first.
///
/// The list has the queued turns too. Its entries have the status and the text of each turn; the transcript has all
/// items.
#[utoipa::path(get, path = "/v1/sessions/{session}/prompts", responses(
    (status = 200, body = PromptList, description = "A page of turns."),
))]
async fn list_prompts(
    mut request: ApiRequest<CanRead, SessionId, Params>,
) -> Result<Json<PromptList>> {
    let params = &mut request.params;
    let before = params.parsed("cursor", "a nextCursor of this list")?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let session = request.open_session().await?;
    Ok(Json(session.query().prompts(before, limit).await?))
}

/// Gets a turn. `Prefer: wait=N` waits for its end.
///
/// `N` is in seconds, at most 300. The response after the wait has the turn as it is then, also if it still runs.
#[utoipa::path(get, path = "/v1/sessions/{session}/prompts/{prompt}", responses(
    (status = 200, body = Prompt, description = "The turn. Its `status` shows whether it has ended."),
))]
async fn get_prompt(
    request: ApiRequest<CanRead, (SessionId, PromptId)>,
    wait: PreferWait,
) -> Result<Response> {
    let session = request.open_session().await?;
    let prompt = request.ids.1;
    let wait = wait.duration(MAX_WAIT_SECONDS);
    let mut turn = None;
    if let Some(limit) = wait
        && let Some(range) = session.query().prompt_range(prompt).await?
        && range.last_seq.is_none()
    {
        // A held response counts as a stream.
        let _guard = request.app.streams.acquire(&request.by, "held")?;
        turn = wait_ended(&request.by, &session, prompt, limit).await?;
    }
    if turn.is_none() {
        turn = session.query().prompt_state(prompt).await?;
    }
    let turn = turn.ok_or_else(ApiError::not_found)?;
    Ok((PreferenceApplied(wait), Json(turn)).into_response())
}

/// Changes the content of a queued prompt, its place in the queue, or both.
///
/// The change is one event (`prompt.changed`). The same request again has the same result and writes no event. A prompt that
/// has started or ended is 409 `prompt_not_queued`.
#[utoipa::path(patch, path = "/v1/sessions/{session}/prompts/{prompt}",
    request_body = PromptPatch, responses(
    (status = 200, body = Prompt, description = "The prompt after the change. It can have started since."),
))]
async fn patch_prompt(
    request: ApiRequest<CanPrompt, (SessionId, PromptId)>,
    body: JsonBody<PromptPatch, PromptSize>,
) -> Result<Json<Prompt>> {
    let session = request.open_session().await?;
    let attachments = body.value.attachments;
    let content = body.value.prompt;
    if content.is_none() && !attachments.is_empty() {
        let detail = "attachments require the member prompt";
        return Err(ApiError::invalid("/attachments", detail));
    }
    let blocks = content.map(content_blocks).transpose()?;
    let edit = blocks.map(|blocks| (blocks, attachments));
    let before = body.value.before;
    let changed = session.change_prompt(&request.by, request.ids.1, edit, before);
    Ok(Json(changed.await?))
}

/// Cancels the running turn and all queued turns.
///
/// Each turn ends with an event. If the agent ignores the cancel, the gateway stops its process after a time limit.
/// Without a running or queued turn, the status is 204.
#[utoipa::path(post, path = "/v1/sessions/{session}/cancel", responses(
    (status = 202, body = Cancelled, description = "The turns that the gateway cancels. Each ends with an event."),
    (status = 204, description = "No turn ran or was queued."),
))]
async fn cancel_session(request: ApiRequest<CanPrompt, SessionId>) -> Result<Response> {
    let session = request.open_session().await?;
    let cancelled = session.cancel(None, CancelCause::Person, request.trace);
    Ok(cancelled_response(cancelled.await?))
}

/// Cancels one turn.
///
/// A queued turn ends at once. A running one ends when the agent has stopped; if the agent ignores the cancel, the
/// gateway stops its process after a time limit. A turn that has ended does not change.
#[utoipa::path(post, path = "/v1/sessions/{session}/prompts/{prompt}/cancel", responses(
    (status = 202, body = Cancelled, description = "The gateway cancels the turn. The turn ends with an event."),
    (status = 204, description = "The turn had already ended."),
))]
async fn cancel_prompt(request: ApiRequest<CanPrompt, (SessionId, PromptId)>) -> Result<Response> {
    let session = request.open_session().await?;
    let prompt = Some(request.ids.1);
    let cancelled = session.cancel(prompt, CancelCause::Person, request.trace);
    Ok(cancelled_response(cancelled.await?))
}

fn cancelled_response(prompt_ids: Vec<PromptId>) -> Response {
    if prompt_ids.is_empty() {
        return StatusCode::NO_CONTENT.into_response();
    }
    (StatusCode::ACCEPTED, Json(Cancelled { prompt_ids })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_is_text_or_content_blocks() {
        let of = |json: &str| content_blocks(RawValue::from_string(json.to_owned()).unwrap());
        assert_eq!(
            of(r#""a\"b\ud800""#).unwrap().get(),
            r#"[{"type":"text","text":"a\"b\ud800"}]"#
        );
        assert_eq!(of("[{\n}]").unwrap().get(), "[{ }]");
        for wrong in ["\"\"", "{}", "1", "null"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
