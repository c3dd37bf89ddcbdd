//! `POST /openai/v1/chat/completions`.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use super::chat_encoder::{CompletionWriter, Options};
use super::chat_request::CompletionBody;
use super::client_request::is_retry;
use super::{models, side_job};
use crate::api::{Problem, ProblemCode};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::chat::{ChatRequest, ChatTurn, TurnEncoder, read_json, respond};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::SessionId;

/// How long a completion that is not streamed waits for its turn before it sends the status. Clients and proxies close a
/// connection without a byte after half a minute or more.
const STATUS_WAIT: Duration = Duration::from_secs(20);

pub(super) async fn create(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    let (headers, body) =
        read_json::<CompletionBody>(&gateway, Request::from_parts(parts, body)).await?;
    body.check()?;
    let (agent, model) = models::select(&gateway, &body.model)?;
    if body.is_side_job(&headers) {
        return side_job::run(&gateway, &by, agent, &body).await;
    }
    let chat = ChatRequest {
        model,
        conversation: CompletionBody::conversation(&headers),
        user: body.user(),
        session: body.session(&headers)?,
        system: body.system(),
        is_retry: is_retry(&headers),
        ..ChatRequest::new(agent, "openai-chat", body.messages(), &headers)?
    };
    let turn = chat.begin(&gateway, &by).await?;
    let session = turn.session.id();
    let options = Options {
        id: format!("chatcmpl-{session}_{}", turn.prompt),
        model: body.model.clone(),
        streamed: body.stream == Some(true),
        includes_usage: body.includes_usage(),
        link: session_link(&gateway, &headers, session),
        notices: turn.notices.clone(),
    };
    let connected = turn.cancel_on_disconnect(&gateway);
    if !options.streamed {
        fail_early(&gateway, &turn).await?;
    }
    let encoder =
        TurnEncoder::new(CompletionWriter::new(options)).cancels_on_disconnect(Some(connected));
    Ok(respond(&gateway, &by, turn, encoder, true))
}

/// Waits for the end of a turn, and fails with the turn. After the wait, the status is sent before the end is known.
async fn fail_early(gateway: &Gateway, turn: &ChatTurn) -> Result<(), ApiError> {
    let ended = turn.session.wait_ended(turn.prompt, STATUS_WAIT).await?;
    let mut problem = match ended {
        Some(ended) => match ended.error {
            Some(error) => {
                serde_json::from_str(error.get()).unwrap_or_else(|_| Problem::internal())
            }
            None => return Ok(()),
        },
        None if gateway.shutdown.is_draining() => Problem::new(
            ProblemCode::Draining,
            "the gateway is shutting down, and cancels the turn after timeouts.drain_timeout",
        ),
        None => return Ok(()),
    };
    let repeats = matches!(problem.status, 408 | 409 | 429 | 500..);
    if repeats && turn.may_be_seen().await? {
        // The libraries repeat requests with these statuses, and the agent would act twice.
        problem.status = StatusCode::FAILED_DEPENDENCY.as_u16();
        problem.retryable = false;
    }
    Err(problem.into())
}

/// The session on the chat page.
fn session_link(gateway: &Gateway, headers: &HeaderMap, session: SessionId) -> String {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let url = gateway
        .policy
        .public_url()
        .map_or_else(|| format!("http://{host}"), ToString::to_string);
    format!("{url}/#/s/{session}")
}
