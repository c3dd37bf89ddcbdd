//! `POST /openai/v1/chat/completions`.

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};

use super::chat_encoder::{ChatCompletion, Options};
use super::chat_request::CompletionBody;
use super::{models, side_job};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::chat::{
    CancelOnDisconnect, ChatRequest, ChatTurn, HISTORY, HistoryPolicy, SESSION_ID, read_json,
};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::SessionId;

/// The number of repetitions of a request by the SDKs.
const RETRY_COUNT: &str = "x-stainless-retry-count";

pub(super) async fn create(State(gateway): State<Gateway>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    let policy = HistoryPolicy::from_headers(&parts.headers)?;
    let (headers, body) = read_json::<CompletionBody>(&gateway, Request::from_parts(parts, body)).await?;
    body.check()?;
    let (agent, model) = models::select(&gateway, &body.model)?;
    if body.is_side_job(&headers) {
        return side_job::run(&gateway, &by, agent, &body).await;
    }
    let retries = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    let chat = ChatRequest {
        agent,
        model,
        protocol: "openai-chat",
        conversation: body.conversation(&headers),
        session: body.session(&headers)?,
        messages: body.messages(),
        system: body.system(),
        policy,
        regenerates: false,
        is_retry: retries.is_some_and(|count| count > 0),
        run: None,
        trace: None,
    };
    let turn = chat.begin(&gateway, &by).await?;
    Ok(respond(&gateway, &by, turn, &headers, &body))
}

fn respond(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    turn: ChatTurn,
    headers: &HeaderMap,
    body: &CompletionBody,
) -> Response {
    let feed = turn.feed(gateway);
    let ChatTurn { session, prompt, notice, is_own, guard, .. } = turn;
    let id = session.id();
    let options = Options {
        id: format!("chatcmpl-{id}_{prompt}"),
        model: body.model.clone(),
        streamed: body.stream == Some(true),
        includes_usage: body.includes_usage(),
        link: session_link(gateway, headers, id),
        notice,
    };
    let watched = (&gateway.shutdown, gateway.chat_watchers());
    let connected = CancelOnDisconnect::new((session, prompt), is_own, watched);
    let encoder = Box::new(ChatCompletion::new(options, connected));
    let mut response = gateway.stream_response(by.admission(), guard, feed, encoder, true);
    let headers = response.headers_mut();
    headers.insert(SESSION_ID, HeaderValue::try_from(id.to_string()).expect("an id is plain ASCII"));
    if let Some(notice) = notice {
        headers.insert(HISTORY, HeaderValue::from_static(notice.as_str()));
    }
    response
}

/// The session on the chat page.
fn session_link(gateway: &Gateway, headers: &HeaderMap, session: SessionId) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let origin = gateway.policy.public_origin().map_or_else(|| format!("http://{host}"), ToOwned::to_owned);
    format!("{origin}/#/s/{session}")
}
