//! The handlers: send a message or an answer, resume, and stop. The messages of the client, and its answers.

use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::encoder::{Approvals, UiMessageWriter};
use crate::surface::chat::{
    Approval, ChatRequest, ChatTurn, Continued, Converted, ErrorFormat, LatestTurn, Message,
    TurnEncoder, file_block, respond, text_part, with_layers,
};
use crate::surface::http::{
    AnyQuery, ApiError, ApiRequest, AppState, Authorized, CanPrompt, CanRead, JsonBody, Result,
    WholeHistory,
};
use base::types::{AgentName, RequestId};
use events::api::CancelCause;

const PROTOCOL: &str = "ai-sdk";
/// Some clients select their parser by this header.
const STREAM_VERSION: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");
/// How long a client that connects again gets the whole message of a turn that has ended.
const RESUMABLE: Duration = Duration::from_mins(10);

pub(in crate::surface) fn router(app: &AppState) -> Router<AppState> {
    let routes = Router::new()
        .route("/ai-sdk/{agent}", post(send))
        .route("/ai-sdk/{agent}/{chat}/stream", get(resume))
        .route("/ai-sdk/{agent}/{chat}/stop", post(stop));
    with_layers(routes, app, ErrorFormat::Text)
}

/// Whether permission requests are data parts: `?approvals=data`, for version 5 of the AI SDK.
impl<G: Send + Sync> FromRequestParts<G> for Approvals {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
        let mut pairs = parts.uri.query().unwrap_or_default().split('&');
        match pairs.find_map(|pair| pair.strip_prefix("approvals=")) {
            None | Some("parts") => Ok(Self::Parts),
            Some("data") => Ok(Self::Data),
            Some(_) => Err(ApiError::invalid("", "approvals must be parts or data")),
        }
    }
}

/// Sends a message or the answers to permission requests. The response is the message of the turn.
async fn send(
    request: ApiRequest<CanPrompt, AgentName, Approvals>,
    headers: HeaderMap,
    body: JsonBody<ChatBody, WholeHistory>,
) -> Result<Response> {
    request.agent()?;
    let app = request.app;
    let by = request.by;
    let approvals = request.params;
    let body = body.value;
    let answers = body.answers()?;
    if !answers.is_empty() {
        // The response continues the message after the newest answer.
        let Continued { turn, question, .. } = Continued::with(&app, &by, &answers).await?;
        return Ok(respond_with(&app, &by, turn, approvals, Some(question)));
    }
    let chat = ChatRequest {
        conversation: body.id.clone(),
        asks_again: body.trigger.as_deref() == Some("regenerate-message"),
        ..ChatRequest::new(request.ids, PROTOCOL, body.messages(), &headers)?
    };
    let turn = chat.begin(&app, &by).await?;
    Ok(respond_with(&app, &by, turn, approvals, None))
}

/// The whole message of the newest turn: while it runs, and for some minutes afterwards.
async fn resume(request: ApiRequest<CanRead, (AgentName, String), Approvals>) -> Result<Response> {
    let app = request.app;
    let by = request.by;
    let (agent, chat) = request.ids;
    let Some(turn) = LatestTurn::find(&app, &by, &agent, PROTOCOL, &chat).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let state = turn.session.query().prompt_state(turn.prompt).await?;
    let ended = state.and_then(|turn| turn.ended_at);
    if ended.is_some_and(|at| app.ids.now().since(at) > RESUMABLE) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let turn = turn.attach(&app, &by).await?;
    Ok(respond_with(&app, &by, turn, request.params, None))
}

async fn stop(request: ApiRequest<CanPrompt, (AgentName, String), AnyQuery>) -> Result<StatusCode> {
    let (agent, chat) = &request.ids;
    let turn = LatestTurn::find(&request.app, &request.by, agent, PROTOCOL, chat);
    if let Some(LatestTurn {
        session, prompt, ..
    }) = turn.await?
    {
        session
            .cancel(Some(prompt), CancelCause::Person, None)
            .await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn respond_with<S>(
    app: &AppState,
    by: &Authorized<S>,
    turn: ChatTurn,
    approvals: Approvals,
    received_until: Option<RequestId>,
) -> Response {
    let writer = UiMessageWriter::new(&turn, approvals);
    let encoder = TurnEncoder::new(writer).after(received_until);
    let response = respond(app, by, turn, encoder, true);
    ([(STREAM_VERSION, "v1")], response).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChatBody {
    id: Option<String>,
    messages: Vec<UiMessage>,
    trigger: Option<String>,
}

#[derive(Debug, Deserialize)]
struct UiMessage {
    id: Option<String>,
    role: String,
    #[serde(default)]
    parts: Value,
    content: Option<Value>,
}

impl UiMessage {
    /// `at`: the index of the message.
    fn message(&self, at: usize) -> Message {
        let parsed = |content, name| {
            let pointer = format!("/messages/{at}/{name}");
            Message::parsed(&self.role, content, pointer, block)
        };
        let has_parts = self.parts.as_array().is_some_and(|parts| !parts.is_empty());
        let mut message = if has_parts {
            parsed(Some(&self.parts), "parts")
        } else {
            parsed(self.content.as_ref(), "content")
        };
        message.id.clone_from(&self.id);
        message
    }
}

/// The content block of a part. Data of the application, and parts of the display, are not for the agent.
fn block(part: &Value) -> Converted {
    let text = |key: &str| part[key].as_str();
    match text("type").unwrap_or_default() {
        "text" => text_part(part),
        "file" => file_block(&part["url"], text("mediaType"), text("filename")),
        "reasoning" | "step-start" | "source-url" | "source-document" | "dynamic-tool" => Ok(None),
        kind if kind.starts_with("data-") || kind.starts_with("tool-") => Ok(None),
        _ => Err("this type of part is not known; send `text` or `file`"),
    }
}

impl ChatBody {
    fn messages(&self) -> Vec<Message> {
        let messages = self.messages.iter().enumerate();
        messages.map(|(at, message)| message.message(at)).collect()
    }

    fn answers(&self) -> Result<Vec<Approval>> {
        let last = self.messages.last();
        let Some(last) = last.filter(|message| message.role == "assistant") else {
            return Ok(Vec::new());
        };
        let parts = last.parts.as_array().into_iter().flatten();
        parts
            .enumerate()
            .filter(|(_, part)| part["state"] == "approval-responded")
            .map(|(at, part)| {
                let approval = &part["approval"];
                let question = approval["id"].as_str().and_then(|id| id.parse().ok());
                let approved = approval["approved"].as_bool();
                let (Some(question), Some(approved)) = (question, approved) else {
                    let pointer =
                        format!("/messages/{}/parts/{at}/approval", self.messages.len() - 1);
                    let detail = "expected the `id` of an approval of this gateway, as it is in the stream, and `approved`";
                    return Err(ApiError::invalid(pointer, detail));
                };
                Ok(Approval {
                    question,
                    approved,
                    reason: approval["reason"].as_str().map(ToOwned::to_owned),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::chat::QuestionId;
    use base::types::PromptId;

    #[test]
    fn answers_are_in_the_last_message() {
        let session = "01990000-0000-7000-8000-000000000000";
        let part = |id: &str, state: &str| {
            format!(
                r#"{{"type":"dynamic-tool","state":"{state}","approval":{{"id":"{id}","approved":true,"reason":"x"}}}}"#
            )
        };
        let body = |parts: &[String]| {
            let parts = parts.join(",");
            let body = format!(
                r#"{{"id":"c","messages":[{{"id":"u","role":"user","parts":[{{"type":"text","text":"a"}}]}},
                {{"id":"of the client","role":"assistant","parts":[{parts}]}}],"extra":1}}"#
            );
            serde_json::from_str::<ChatBody>(&body).expect("a body")
        };
        let answered = body(&[
            part(&format!("{session}_p3_r1"), "output-available"),
            part(&format!("{session}_p3_r2"), "approval-responded"),
        ]);
        let answers = answered.answers().expect("answers");
        let [approval] = &answers[..] else {
            panic!("{answers:?}")
        };
        let QuestionId {
            session: of,
            prompt,
            request,
        } = approval.question;
        assert_eq!(
            (of.to_string().as_str(), prompt, request, approval.approved),
            (session, PromptId::new(3), RequestId::new(2), true)
        );
        assert!(body(&[part("r2", "approval-responded")]).answers().is_err());
        assert!(body(&[]).answers().expect("none").is_empty());
    }
}
