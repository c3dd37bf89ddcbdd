//! The handlers: send a message or an answer, resume, and stop.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};

use super::encoder::{Approvals, Message, UiMessageWriter};
use super::request::ChatBody;
use crate::surface::chat::{
    ChatRequest, ChatTurn, Continued, ErrorFormat, LatestTurn, TurnEncoder, read_json, respond,
    with_layers,
};
use crate::surface::http::ApiError;
use crate::surface::http::Gateway;
use crate::surface::http::{Authorized, CanPrompt, CanRead};
use base::types::{AgentName, CancelCause, RequestId};

const PROTOCOL: &str = "ai-sdk";
/// Some clients select their parser by this header.
const STREAM_VERSION: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");
/// How long a client that connects again gets the whole message of a turn that has ended.
const RESUMABLE_MS: i64 = 600_000;

pub(in crate::surface) fn router(gateway: &Gateway) -> Router<Gateway> {
    let routes = Router::new()
        .route("/ai-sdk/{agent}", post(send))
        .route("/ai-sdk/{agent}/{chat}/stream", get(resume))
        .route("/ai-sdk/{agent}/{chat}/stop", post(stop));
    with_layers(routes, gateway, ErrorFormat::Text)
}

/// Whether permission requests are data parts: `?approvals=data`, for version 5 of the AI SDK.
fn approvals(parts: &Parts) -> Result<Approvals, ApiError> {
    let query = parts.uri.query().unwrap_or_default();
    match query
        .split('&')
        .find_map(|pair| pair.strip_prefix("approvals="))
    {
        None | Some("parts") => Ok(Approvals::Parts),
        Some("data") => Ok(Approvals::Data),
        Some(_) => Err(ApiError::invalid("", "approvals must be parts or data")),
    }
}

/// Sends a message or the answers to permission requests. The response is the message of the turn.
async fn send(
    State(gateway): State<Gateway>,
    Path(agent): Path<AgentName>,
    request: Request,
) -> Result<Response, ApiError> {
    let known = gateway.catalogue.agent(&agent);
    known.ok_or_else(ApiError::not_found)?;
    let (by, parts, body) = read_json::<CanPrompt, ChatBody>(&gateway, request).await?;
    let approvals = approvals(&parts)?;
    let answers = body.answers()?;
    if !answers.is_empty() {
        // The response continues the message after the newest answer.
        let Continued { turn, question, .. } = Continued::with(&gateway, &by, &answers).await?;
        return Ok(respond_with(&gateway, &by, turn, approvals, Some(question)));
    }
    let chat = ChatRequest {
        conversation: body.id.clone(),
        asks_again: body.trigger.as_deref() == Some("regenerate-message"),
        ..ChatRequest::new(agent, PROTOCOL, body.messages(), &parts.headers)?
    };
    let turn = chat.begin(&gateway, &by).await?;
    Ok(respond_with(&gateway, &by, turn, approvals, None))
}

/// The whole message of the newest turn: while it runs, and for some minutes afterwards.
async fn resume(
    State(gateway): State<Gateway>,
    Path((agent, chat)): Path<(AgentName, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let by = Authorized::<CanRead>::from_parts(&parts)?;
    let approvals = approvals(&parts)?;
    let Some(turn) = LatestTurn::find(&gateway, &by, &agent, PROTOCOL, &chat).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let ended = turn
        .session
        .query()
        .prompt_state(turn.prompt)
        .await?
        .and_then(|turn| turn.ended_at);
    if ended.is_some_and(|at| gateway.ids.now().as_millis() - at.as_millis() > RESUMABLE_MS) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let turn = turn.attach(&gateway, &by).await?;
    Ok(respond_with(&gateway, &by, turn, approvals, None))
}

async fn stop(
    State(gateway): State<Gateway>,
    Path((agent, chat)): Path<(AgentName, String)>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (parts, _) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    if let Some(turn) = LatestTurn::find(&gateway, &by, &agent, PROTOCOL, &chat).await? {
        turn.session
            .cancel(Some(turn.prompt), CancelCause::Person, None)
            .await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn respond_with<S>(
    gateway: &Gateway,
    by: &Authorized<S>,
    turn: ChatTurn,
    approvals: Approvals,
    received_until: Option<RequestId>,
) -> Response {
    let message = Message {
        session: turn.session.id(),
        prompt: turn.prompt,
        notices: turn.notices.clone(),
    };
    let encoder = TurnEncoder::new(UiMessageWriter::new(message, approvals)).after(received_until);
    let mut response = respond(gateway, by, turn, encoder, true);
    response
        .headers_mut()
        .insert(STREAM_VERSION, HeaderValue::from_static("v1"));
    response
}
