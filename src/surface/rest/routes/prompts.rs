//! `/v1/sessions/{session}/prompts`: starts, reads and cancels turns, and waits for their end.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use super::events;
use super::sessions::IDEMPOTENCY_REPLAYED;
use crate::api::{Cancelled, CreatePrompt, Problem, Prompt, PromptList};
use crate::event::SessionEvent;
use crate::session::{AdmittedPrompt, PromptRequest, SessionHandle};
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{
    Authorized, CanPrompt, CanRead, IdempotencyHeader, JsonBody, NoQuery, Params, PreferWait, PromptPath,
    SessionPath, Trace, to_one_line,
};
use crate::surface::rest::negotiate::{Representation, negotiate};
use crate::types::{PromptId, SessionId};

/// The longest wait of `Prefer: wait=N`, in seconds.
const MAX_WAIT_SECONDS: u64 = 300;
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Starts a turn.
///
/// The gateway responds at once. With `Prefer: wait=N`, it responds when the turn ends or after N seconds.
/// `Accept: text/event-stream` returns the same as `/prompts/stream`. Closing the connection does not cancel
/// the turn.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/prompts",
    tag = "prompts",
    request_body = CreatePrompt,
    params(
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "Makes a retry safe for 24 hours: the same key with the same body returns the first turn. The same key with another body is 422."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: wait up to N seconds (at most 300) for the end of the turn."),
    ),
    responses(
        (
            status = 200, body = Prompt, description = "The turn has ended within the wait.",
            headers(
                ("Location" = String, description = "The path of the turn."),
                ("Preference-Applied" = String, description = "`wait=N`, with the wait that applies."),
                ("Idempotency-Replayed" = String, description = "`true` if the gateway returns the turn of an earlier request with this key."),
            )
        ),
        (
            status = 202, body = Prompt, description = "The turn runs or is queued. To receive all of its further events, read the events with `?after=` and its `lastEventId`.",
            headers(
                ("Location" = String, description = "The path of the turn."),
                ("Preference-Applied" = String, description = "`wait=N`, with the wait that applies."),
                ("Idempotency-Replayed" = String, description = "`true` if the gateway returns the turn of an earlier request with this key."),
            )
        ),
    )
)]
pub(super) async fn create_prompt(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    headers: HeaderMap,
    (trace, wait, key): (Trace, PreferWait, IdempotencyHeader),
    NoQuery: NoQuery,
    body: JsonBody<CreatePrompt>,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Representation::Json, Representation::EventStream])?;
    begin_prompt(&gateway, &by, session, form, (trace, wait, key), body).await
}

/// Starts a turn and streams all of its events as Server-Sent Events, for any `Accept`.
///
/// Closing the connection does not cancel the turn. To resume, send the id of the last received event as
/// `Last-Event-ID` to `/prompts/{prompt}/events/stream`.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/prompts/stream",
    tag = "prompts",
    request_body = CreatePrompt,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "Makes a retry safe for 24 hours: the same key with the same body returns the first turn, also one from `/prompts`. The same key with another body is 422.")),
    responses((
        status = 200, description = "The events of the turn.",
        content((SessionEvent = "text/event-stream")),
        headers(
            ("Location" = String, description = "The path of the turn."),
            ("Idempotency-Replayed" = String, description = "`true` if the gateway returns the turn of an earlier request with this key."),
        )
    ))
)]
pub(super) async fn create_prompt_stream(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    (trace, key): (Trace, IdempotencyHeader),
    NoQuery: NoQuery,
    body: JsonBody<CreatePrompt>,
) -> Result<Response, ApiError> {
    begin_prompt(
        &gateway,
        &by,
        session,
        Representation::EventStream,
        (trace, PreferWait::default(), key),
        body,
    )
    .await
}

async fn begin_prompt(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    session: SessionId,
    form: Representation,
    (Trace(trace), wait, key): (Trace, PreferWait, IdempotencyHeader),
    body: JsonBody<CreatePrompt>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    let session = gateway.sessions.open(by, session).await?;
    let blocks = content_blocks(body.value.prompt)?;
    // Acquire the stream before the turn starts: if that failed later, the client would have neither the
    // stream nor the id of the turn. A held response counts as a stream.
    let held = form == Representation::EventStream || wait.duration(MAX_WAIT_SECONDS).is_some();
    let guard = held.then(|| gateway.streams().acquire(by)).transpose()?;
    gateway.rates().check_prompt(by)?;
    let CreatePrompt { attachments, queue, .. } = body.value;
    let request = PromptRequest { blocks, attachments, queue, key, trace };
    let admitted = session.prompt(by, request).await?;
    let (location, replayed) = (prompt_location(&admitted.prompt), admitted.replayed);
    let mut response = match (form, guard) {
        (Representation::EventStream, Some(guard)) => {
            events::stream_new_turn(gateway, by.admission(), guard, session, &admitted)
        }
        (_, _guard) => wait_and_respond(by, &session, admitted, wait).await?,
    };
    response.headers_mut().insert(header::LOCATION, location);
    if replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn prompt_location(prompt: &Prompt) -> HeaderValue {
    let path = format!("/v1/sessions/{}/prompts/{}", prompt.session_id, prompt.prompt_id);
    HeaderValue::try_from(path).expect("ids are plain ASCII")
}

/// Responds with 200 if the turn has ended within the wait, else with 202.
async fn wait_and_respond(
    by: &Authorized<CanPrompt>,
    session: &SessionHandle,
    admitted: AdmittedPrompt,
    wait: PreferWait,
) -> Result<Response, ApiError> {
    let mut prompt = admitted.prompt;
    let mut ended = admitted.replayed && prompt.status.has_ended();
    if let Some(limit) = wait.duration(MAX_WAIT_SECONDS)
        && !ended
        && let Some(end) = wait_ended(by, session, prompt.prompt_id, limit).await?
    {
        prompt = end;
        ended = true;
    }
    let status = if ended { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(with_preference_applied(wait, (status, Json(prompt)).into_response()))
}

/// Waits up to `limit` for the end of the turn; `None` on time-out. Fails if the key ends first.
async fn wait_ended<S>(
    by: &Authorized<S>,
    session: &SessionHandle,
    prompt: PromptId,
    limit: Duration,
) -> Result<Option<Prompt>, ApiError> {
    tokio::select! {
        biased;
        () = by.admission().wait_key_ended() => Err(Problem::key_ended().into()),
        ended = session.wait_ended(prompt, limit) => Ok(ended?),
    }
}

fn with_preference_applied(wait: PreferWait, mut response: Response) -> Response {
    if let Some(seconds) = wait.seconds(MAX_WAIT_SECONDS) {
        let applied = HeaderValue::try_from(format!("wait={seconds}")).expect("digits are plain ASCII");
        response.headers_mut().insert(PREFERENCE_APPLIED, applied);
    }
    response
}

/// The content blocks of a prompt. A text becomes one block. The session checks whether the agent supports
/// them.
fn content_blocks(prompt: Box<RawValue>) -> Result<Box<RawValue>, ApiError> {
    match prompt.get().as_bytes().first() {
        Some(b'"') if prompt.get() == "\"\"" => Err(ApiError::invalid("/prompt", "the prompt is empty")),
        Some(b'"') => {
            let block = format!("[{{\"type\":\"text\",\"text\":{}}}]", prompt.get());
            Ok(RawValue::from_string(block).expect("a JSON string in an object is JSON"))
        }
        Some(b'[') => Ok(to_one_line(prompt)),
        _ => Err(ApiError::invalid("/prompt", "expected a text or an array of content blocks")),
    }
}

/// Lists the turns of a session, the newest first.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/prompts",
    tag = "prompts",
    params(
        ("cursor" = Option<String>, Query, pattern = "^p[1-9][0-9]{0,8}$", description = "The `nextCursor` of the previous page."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "The maximum number of turns on a page. The default is 50."),
    ),
    responses((status = 200, body = PromptList, description = "A page of turns."))
)]
pub(super) async fn list_prompts(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    mut params: Params,
) -> Result<Json<PromptList>, ApiError> {
    let before: Option<PromptId> = params.parsed("cursor", "a nextCursor of this list")?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let session = gateway.sessions.open(&by, session).await?;
    Ok(Json(session.query().prompts(before, limit).await?))
}

/// Gets a turn. `Prefer: wait=N` waits for its end.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/prompts/{prompt}",
    tag = "prompts",
    params(("Prefer" = Option<String>, Header, description = "`wait=N`: wait up to N seconds (at most 300) for the end of the turn.")),
    responses((
        status = 200, body = Prompt, description = "The turn. Its `status` shows whether it has ended.",
        headers(("Preference-Applied" = String, description = "`wait=N`, with the wait that applies."))
    ))
)]
pub(super) async fn get_prompt(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    PromptPath(session, prompt): PromptPath,
    wait: PreferWait,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    if let Some(limit) = wait.duration(MAX_WAIT_SECONDS)
        && session.query().prompt_range(prompt).await?.is_some_and(|turn| turn.last_seq.is_none())
    {
        // A held response counts as a stream.
        let _guard = gateway.streams().acquire(&by)?;
        if let Some(ended) = wait_ended(&by, &session, prompt, limit).await? {
            return Ok(with_preference_applied(wait, Json(ended).into_response()));
        }
    }
    let turn = session.query().prompt_state(prompt).await?.ok_or_else(ApiError::not_found)?;
    Ok(with_preference_applied(wait, Json(turn).into_response()))
}

/// Cancels the running turn and all queued turns.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/cancel",
    tag = "prompts",
    responses(
        (status = 202, body = Cancelled, description = "The turns that the gateway cancels. Each ends with an event."),
        (status = 204, description = "No turn ran or was queued."),
    )
)]
pub(super) async fn cancel_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(cancelled_response(session.cancel(None, trace).await?))
}

/// Cancels one turn.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/prompts/{prompt}/cancel",
    tag = "prompts",
    responses(
        (status = 202, body = Cancelled, description = "The gateway cancels the turn. The turn ends with an event."),
        (status = 204, description = "The turn had already ended."),
    )
)]
pub(super) async fn cancel_prompt(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    PromptPath(session, prompt): PromptPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(cancelled_response(session.cancel(Some(prompt), trace).await?))
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
        assert_eq!(of(r#""a\"b\ud800""#).unwrap().get(), r#"[{"type":"text","text":"a\"b\ud800"}]"#);
        assert_eq!(of("[{\n}]").unwrap().get(), "[{ }]");
        for wrong in ["\"\"", "{}", "1", "null"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
