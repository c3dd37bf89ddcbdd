//! `POST /openai/v1/chat/completions`.

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, header};

use super::chat_encoder::{CompletionWriter, Options};
use super::chat_request::CompletionBody;
use super::client_request::is_retry;
use super::{models, side_job};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::chat::{ChatRequest, TurnEncoder, read_json, respond};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::SessionId;

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
    if !options.streamed
        && let Some(failed) = turn.failed_early(&gateway).await?
    {
        return Ok(failed);
    }
    let encoder =
        TurnEncoder::new(CompletionWriter::new(options)).cancels_on_disconnect(Some(connected));
    Ok(respond(&gateway, &by, turn, encoder, true))
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
