//! The handlers: create a response, read it again, and cancel it.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde_json::Value;

use super::conversations::list;
use super::encoder::{Form, ResponseWriter};
use super::id::ResponseId;
use super::items::TurnItems;
use super::object::Head;
use super::request::ResponseBody;
use crate::api::ProblemCode;
use crate::conversation::NewMessages;
use crate::surface::authorized::{Authorized, CanPrompt, CanRead};
use crate::surface::chat::{
    CancelOnDisconnect, ChatRequest, ChatTurn, Continued, TurnEncoder, read_json, respond,
};
use crate::surface::openai::client_request::is_retry;
use crate::surface::openai::models;
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::CancelCause;

/// How long a cancel waits for the end of the turn.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

pub(in crate::surface::openai) async fn create(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    let (headers, body) =
        read_json::<ResponseBody>(&gateway, Request::from_parts(parts, body)).await?;
    body.check()?;
    let (agent, model) = models::select(&gateway, &body.model)?;
    let previous = body.previous().map(str::parse::<ResponseId>).transpose();
    let previous = previous.map_err(|_| unknown_response())?;
    if let Some(previous) = previous {
        // The session must exist, and the turn must be one of it.
        open(&gateway, &by, previous).await?;
    }
    let answers = body.answers()?;
    if !answers.is_empty() {
        let Continued {
            turn, permissions, ..
        } = Continued::with(&gateway, &by, &answers).await?;
        let id = ResponseId {
            session: turn.session.id(),
            prompt: turn.prompt,
            number: permissions + 1,
        };
        return respond_to(&gateway, &by, turn, id, &body).await;
    }
    let earlier = body.earlier_answers()?;
    if !earlier.is_empty() {
        drop(Continued::with(&gateway, &by, &earlier).await?);
    }
    let chat = ChatRequest {
        model,
        session: previous
            .map(|previous| previous.session)
            .or(body.conversation()?),
        follows: previous.map(|previous| previous.prompt),
        answered_in: body.answered_in(),
        new_messages: NewMessages::All,
        system: body.instructions.clone(),
        is_retry: is_retry(&headers),
        ..ChatRequest::new(agent, "openai-responses", body.messages(), &headers)?
    };
    let turn = chat.begin(&gateway, &by).await?;
    let id = ResponseId {
        session: turn.session.id(),
        prompt: turn.prompt,
        number: 1,
    };
    respond_to(&gateway, &by, turn, id, &body).await
}

/// Reads a response, also as a stream: `?stream=true`, with `starting_after` for the frames after a number.
pub(in crate::surface::openai) async fn get(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let by = Authorized::<CanRead>::from_parts(&parts)?;
    let id: ResponseId = id.parse().map_err(|_| unknown_response())?;
    let query = parts.uri.query().unwrap_or_default();
    let parameter = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let after = parameter("starting_after")
        .map(str::parse::<u64>)
        .transpose();
    let after =
        after.map_err(|_| ApiError::invalid("", "starting_after must be a sequence number"))?;
    let streamed = parameter("stream") == Some("true");
    let form = if streamed {
        Form::Stream { after }
    } else {
        Form::Now
    };
    let turn = open(&gateway, &by, id).await?;
    stream(&gateway, &by, turn, (id, form), None).await
}

/// The input of a response: a message, or the answer to the request that the response before it ended with.
pub(in crate::surface::openai) async fn input_items(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let by = Authorized::<CanRead>::from_parts(&request.into_parts().0)?;
    let id: ResponseId = id.parse().map_err(|_| unknown_response())?;
    let session = gateway.sessions.open(&by, id.session).await?;
    let range = session
        .query()
        .prompt_range(id.prompt)
        .await?
        .ok_or_else(unknown_response)?;
    let agent = session.snapshot().await?.agent.to_string();
    let input = TurnItems::read(&session, (id.prompt, range), &agent)
        .await?
        .input(id.number);
    if input.is_empty() {
        return Err(unknown_response());
    }
    Ok(Json(list(&input, false)))
}

pub(in crate::surface::openai) async fn cancel(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    let id: ResponseId = id.parse().map_err(|_| unknown_response())?;
    let turn = open(&gateway, &by, id).await?;
    turn.session
        .cancel(Some(id.prompt), CancelCause::Person, None)
        .await?;
    turn.session.wait_ended(id.prompt, CANCEL_WAIT).await?;
    let turn = open(&gateway, &by, id).await?;
    stream(&gateway, &by, turn, (id, Form::Now), None).await
}

fn unknown_response() -> ApiError {
    ApiError::new(
        ProblemCode::NotFound,
        "this response does not exist, or this key has no access to it",
    )
}

async fn open<S>(
    gateway: &Gateway,
    by: &Authorized<S>,
    id: ResponseId,
) -> Result<ChatTurn, ApiError> {
    let session = gateway.sessions.open(by, id.session).await?;
    ChatTurn::existing(gateway, by, session, id.prompt, Vec::new()).await
}

async fn respond_to(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    turn: ChatTurn,
    id: ResponseId,
    body: &ResponseBody,
) -> Result<Response, ApiError> {
    let background = body.background == Some(true);
    let form = match (body.stream == Some(true), background) {
        (true, _) => Form::Stream { after: None },
        (false, true) => Form::Now,
        (false, false) => Form::Whole,
    };
    let connected = (!background).then(|| turn.cancel_on_disconnect(gateway));
    if form == Form::Whole
        && let Some(failed) = turn.failed_early(gateway).await?
    {
        return Ok(failed);
    }
    stream(gateway, by, turn, (id, form), connected).await
}

async fn stream<S>(
    gateway: &Gateway,
    by: &Authorized<S>,
    turn: ChatTurn,
    (id, form): (ResponseId, Form),
    connected: Option<CancelOnDisconnect>,
) -> Result<Response, ApiError> {
    // The frames depend on the turn alone, so the model is that of the session and not that of the request.
    let head = Head {
        id,
        agent: turn.session.snapshot().await?.agent.to_string(),
        created: 0,
        notices: turn.notices.clone(),
    };
    let encoder =
        TurnEncoder::new(ResponseWriter::new(head, form)).cancels_on_disconnect(connected);
    Ok(respond(gateway, by, turn, encoder, form != Form::Now))
}
