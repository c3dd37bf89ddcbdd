//! The handlers: create a response, read it again, and cancel it.

use std::time::Duration;

use axum::Json;
use axum::extract::RawQuery;
use axum::response::Response;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use super::chat::{is_retry, reject_forced_tool, reject_format};
use super::conversations::list;
use super::items::TurnItems;
use super::models;
use super::response_encoder::{Form, Head, ResponseId, ResponseWriter};
use crate::surface::chat::{
    Approval, CancelOnDisconnect, ChatRequest, ChatTurn, Continued, Converted, Message, QuestionId,
    TurnEncoder, file_block, media_block, resource_link, respond, text_part,
};
use crate::surface::http::{
    AnyQuery, ApiError, ApiRequest, AppState, Authorized, CanPrompt, CanRead, JsonBody, Result,
    WholeHistory,
};
use base::types::SessionId;
use events::api::{CancelCause, ProblemCode};
use sessions::conversation::NewMessages;

const CANCEL_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn create(
    request: ApiRequest<CanPrompt, (), AnyQuery>,
    headers: HeaderMap,
    body: JsonBody<ResponseBody, WholeHistory>,
) -> Result<Response> {
    let app = request.app;
    let body = body.value;
    let by = request.by.acting_as(body.user.as_deref(), &app.shutdown);
    let by = by.await?;
    body.check()?;
    let (agent, model) = models::select(&app, &body.model)?;
    let previous = body.previous().map(str::parse::<ResponseId>).transpose();
    let previous = previous.map_err(|_| unknown_response())?;
    if let Some(previous) = previous {
        // The session must exist, and the turn must be one of it.
        open(&app, &by, previous).await?;
    }
    let answers = body.answers()?;
    if !answers.is_empty() {
        let continued = Continued::with(&app, &by, &answers).await?;
        let number = continued.permissions + 1;
        return respond_to(&app, &by, continued.turn, number, &body).await;
    }
    let earlier = body.earlier_answers()?;
    if !earlier.is_empty() {
        drop(Continued::with(&app, &by, &earlier).await?);
    }
    let chat = ChatRequest {
        model,
        session: match previous {
            Some(previous) => Some(previous.session),
            None => body.conversation()?,
        },
        follows: previous.map(|previous| previous.prompt),
        answered_in: body.answered_in(),
        new_messages: NewMessages::All,
        system: body.instructions.clone(),
        is_retry: is_retry(&headers),
        ..ChatRequest::new(agent, "openai-responses", body.messages(), &headers)?
    };
    let turn = chat.begin(&app, &by).await?;
    respond_to(&app, &by, turn, 1, &body).await
}

/// Reads a response, also as a stream: `?stream=true`, with `starting_after` for the frames after a number.
pub(super) async fn get(
    request: ApiRequest<CanRead, String, AnyQuery>,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let id: ResponseId = request.ids.parse().map_err(|_| unknown_response())?;
    let query = query.unwrap_or_default();
    let parameter = |name: &str| {
        let mut pairs = query.split('&');
        pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let after = parameter("starting_after").map(str::parse).transpose();
    let after =
        after.map_err(|_| ApiError::invalid("", "starting_after must be a sequence number"))?;
    let form = if parameter("stream") == Some("true") {
        Form::Stream { after }
    } else {
        Form::Now
    };
    let turn = open(&request.app, &request.by, id).await?;
    stream(&request.app, &request.by, turn, id, form, None).await
}

/// The input of a response: a message, or the answer to the request that the response before it ended with.
pub(super) async fn input_items(
    request: ApiRequest<CanRead, String, AnyQuery>,
) -> Result<Json<Value>> {
    let id: ResponseId = request.ids.parse().map_err(|_| unknown_response())?;
    let session = request.app.open_session(&request.by, id.session).await?;
    let range = session.query().prompt_range(id.prompt).await?;
    let range = range.ok_or_else(unknown_response)?;
    let agent = session.snapshot().await?.agent.to_string();
    let items = TurnItems::read(&session, id.prompt, range, &agent).await?;
    let input = items.input(id.number);
    if input.is_empty() {
        return Err(unknown_response());
    }
    Ok(Json(list(&input, false)))
}

pub(super) async fn cancel(request: ApiRequest<CanPrompt, String, AnyQuery>) -> Result<Response> {
    let id: ResponseId = request.ids.parse().map_err(|_| unknown_response())?;
    let turn = open(&request.app, &request.by, id).await?;
    let cancelled = turn
        .session
        .cancel(Some(id.prompt), CancelCause::Person, None);
    cancelled.await?;
    turn.session.wait_ended(id.prompt, CANCEL_WAIT).await?;
    let turn = open(&request.app, &request.by, id).await?;
    stream(&request.app, &request.by, turn, id, Form::Now, None).await
}

fn unknown_response() -> ApiError {
    ApiError::new(
        ProblemCode::NotFound,
        "this response does not exist, or this key has no access to it",
    )
}

async fn open<S>(app: &AppState, by: &Authorized<S>, id: ResponseId) -> Result<ChatTurn> {
    let session = app.open_session(by, id.session).await?;
    ChatTurn::existing(app, by, session, id.prompt, Vec::new()).await
}

async fn respond_to(
    app: &AppState,
    by: &Authorized<CanPrompt>,
    turn: ChatTurn,
    number: u32,
    body: &ResponseBody,
) -> Result<Response> {
    let id = ResponseId {
        session: turn.session.id(),
        prompt: turn.prompt,
        number,
    };
    let background = body.background == Some(true);
    let form = match (body.stream == Some(true), background) {
        (true, _) => Form::Stream { after: None },
        (false, true) => Form::Now,
        (false, false) => Form::Whole,
    };
    let connected = (!background).then(|| turn.cancel_on_disconnect(app));
    if form == Form::Whole
        && let Some(failed) = turn.failed_early(app).await?
    {
        return Ok(failed);
    }
    stream(app, by, turn, id, form, connected).await
}

async fn stream<S>(
    app: &AppState,
    by: &Authorized<S>,
    turn: ChatTurn,
    id: ResponseId,
    form: Form,
    connected: Option<CancelOnDisconnect>,
) -> Result<Response> {
    // The frames depend on the turn alone, so the model is that of the session and not that of the request.
    let head = Head {
        id,
        agent: turn.session.snapshot().await?.agent.to_string(),
        created: 0,
        notices: turn.notices.clone(),
    };
    let encoder =
        TurnEncoder::new(ResponseWriter::new(head, form)).cancels_on_disconnect(connected);
    Ok(respond(app, by, turn, encoder, form != Form::Now))
}

#[derive(Debug, Deserialize)]
pub(super) struct ResponseBody {
    pub(super) model: String,
    input: Input,
    pub(super) instructions: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) background: Option<bool>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    user: Option<String>,
    tool_choice: Option<Value>,
    text: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Value>),
}

impl ResponseBody {
    pub(super) fn check(&self) -> Result<()> {
        reject_forced_tool(self.tool_choice.as_ref(), "/tool_choice")?;
        let format = self.text.as_ref().map(|text| &text["format"]);
        reject_format(format, "/text/format")?;
        if self.previous().is_some() && self.conversation.is_some() {
            let detail = "send either previous_response_id or conversation";
            return Err(ApiError::invalid("/conversation", detail));
        }
        Ok(())
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        match &self.input {
            Input::Text(text) => {
                let content = Value::from(&**text);
                let pointer = "/input".to_owned();
                vec![Message::parsed("user", Some(&content), pointer, block)]
            }
            Input::Items(items) => {
                let items = items.iter().enumerate();
                items.filter_map(|(at, item)| message(at, item)).collect()
            }
        }
    }

    /// The session of the last item with an id of the gateway: a message, a reference to one, or a question.
    pub(super) fn answered_in(&self) -> Option<SessionId> {
        let Input::Items(items) = &self.input else {
            return None;
        };
        let session = |item: &Value| {
            let id = item["id"].as_str().or(item["approval_request_id"].as_str());
            let mut parts = id?.split('_');
            let kind = parts.next()?;
            let session = parts.next()?.parse().ok()?;
            matches!(kind, "msg" | "rs" | "mcpr").then_some(session)
        };
        items.iter().rev().find_map(session)
    }

    /// An empty id names nothing.
    pub(super) fn previous(&self) -> Option<&str> {
        let id = self.previous_response_id.as_deref();
        id.filter(|id| !id.is_empty())
    }

    /// The answers to permission requests that follow the last message of the user. They continue a turn.
    pub(super) fn answers(&self) -> Result<Vec<Approval>> {
        self.approvals(|at, last_message| last_message.is_none_or(|last| at > last))
    }

    /// The answers before the last message of the user. In a whole history, they are those of earlier turns. In a request
    /// that continues a response or a conversation, all items are new.
    pub(super) fn earlier_answers(&self) -> Result<Vec<Approval>> {
        if self.previous().is_none() && self.conversation.is_none() {
            return Ok(Vec::new());
        }
        self.approvals(|at, last_message| last_message.is_some_and(|last| at < last))
    }

    /// The answers at the places that `counts` selects, by their index and that of the last message of the user.
    fn approvals(&self, counts: impl Fn(usize, Option<usize>) -> bool) -> Result<Vec<Approval>> {
        let Input::Items(items) = &self.input else {
            return Ok(Vec::new());
        };
        let is_of_user = |item| message(0, item).is_some_and(|message| message.is_user());
        let last_message = items.iter().rposition(is_of_user);
        let answers = items.iter().enumerate().filter(|(at, item)| {
            item["type"] == "mcp_approval_response" && counts(*at, last_message)
        });
        answers.map(|(at, item)| approval(at, item)).collect()
    }

    /// The session of `conversation`: `conv_<session>`, as a text or as an object.
    pub(super) fn conversation(&self) -> Result<Option<SessionId>> {
        let Some(conversation) = &self.conversation else {
            return Ok(None);
        };
        let id = conversation.as_str().or(conversation["id"].as_str());
        let session = id.and_then(|id| id.strip_prefix("conv_")?.parse().ok());
        session.map(Some).ok_or_else(ApiError::not_found)
    }
}

fn approval(at: usize, item: &Value) -> Result<Approval> {
    let question: Option<QuestionId> = item["approval_request_id"]
        .as_str()
        .and_then(|id| id.strip_prefix("mcpr_")?.parse().ok());
    let Some(question) = question else {
        let detail =
            "expected the id of an mcp_approval_request of this gateway, as it is in its response";
        let pointer = format!("/input/{at}/approval_request_id");
        return Err(ApiError::invalid(pointer, detail));
    };
    let Some(approved) = item["approve"].as_bool() else {
        let detail = "expected true or false";
        return Err(ApiError::invalid(format!("/input/{at}/approve"), detail));
    };
    Ok(Approval {
        question,
        approved,
        reason: item["reason"].as_str().map(ToOwned::to_owned),
    })
}

fn message(at: usize, item: &Value) -> Option<Message> {
    if item["type"].as_str().is_some_and(|kind| kind != "message") {
        return None;
    }
    let role = item["role"].as_str()?;
    let pointer = format!("/input/{at}/content");
    Some(Message::parsed(role, item.get("content"), pointer, block))
}

fn block(part: &Value) -> Converted {
    let text = |key: &str| part[key].as_str();
    match text("type").unwrap_or_default() {
        "input_text" | "output_text" | "text" => text_part(part),
        "input_image" => file_block(&part["image_url"], None, None),
        "input_file" => match (text("file_data"), text("file_url")) {
            (Some(data), _) => media_block(data, None, text("filename")),
            (None, Some(url)) => Ok(Some(resource_link(url, text("filename")))),
            (None, None) => Err("the gateway stores no files; send `file_data` or `file_url`"),
        },
        _ => Err("this type of part is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(json: &str) -> ResponseBody {
        serde_json::from_str(json).expect("a body")
    }

    #[test]
    fn input_is_text_messages_or_answers() {
        let text = body(r#"{"model":"a","input":"hello","include":[],"tools":[]}"#);
        assert_eq!(text.messages()[0].text, "hello");
        let items = body(
            r#"{"model":"a","input":[{"role":"developer","content":"be brief"},{"role":"user","content":[
        {"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]},
        {"type":"function_call_output","output":"x"}]}"#,
        );
        assert_eq!(items.messages()[0].text, "be brief");
        assert_eq!(items.messages().len(), 2);
        assert_eq!(items.messages()[1].blocks.len(), 2);
    }

    #[test]
    fn answers_follow_the_last_message_or_are_new_items() {
        let answer = |request: u32| {
            let question = format!("01990000-0000-7000-8000-000000000000_p1_r{request}");
            format!(
                r#"{{"type":"mcp_approval_response","approval_request_id":"mcpr_{question}","approve":false}}"#
            )
        };
        let message = r#"{"role":"user","content":"x"}"#.to_owned();
        let wrong =
            r#"{"type":"mcp_approval_response","approval_request_id":"mcpr_r2","approve":true}"#
                .to_owned();
        let numbers = |approvals: Vec<Approval>| {
            let requests = approvals.iter().map(|approval| approval.question.request);
            requests
                .map(|request| request.to_string())
                .collect::<Vec<_>>()
        };
        for (items, continues, answers, earlier) in [
            (vec![answer(2)], false, vec!["r2"], vec![]),
            (
                vec![message.clone(), answer(1), answer(2)],
                false,
                vec!["r1", "r2"],
                vec![],
            ),
            // Answers of earlier turns, and a new message.
            (
                vec![message.clone(), answer(1), message.clone()],
                false,
                vec![],
                vec![],
            ),
            (
                vec![message.clone(), wrong.clone(), message.clone()],
                false,
                vec![],
                vec![],
            ),
            // All items are new.
            (vec![answer(1), message.clone()], true, vec![], vec!["r1"]),
        ] {
            let previous = if continues {
                r#""previous_response_id":"x","#
            } else {
                ""
            };
            let body = body(&format!(
                r#"{{"model":"a",{previous}"input":[{}]}}"#,
                items.join(",")
            ));
            assert_eq!(
                numbers(body.answers().expect("answers")),
                answers,
                "{items:?}"
            );
            assert_eq!(
                numbers(body.earlier_answers().expect("answers")),
                earlier,
                "{items:?}"
            );
        }
        let body = body(&format!(r#"{{"model":"a","input":[{message},{wrong}]}}"#));
        assert!(body.answers().is_err());
    }

    #[test]
    fn conversation_is_a_session() {
        let session = "01990000-0000-7000-8000-000000000000";
        for conversation in [
            format!(r#""conv_{session}""#),
            format!(r#"{{"id":"conv_{session}"}}"#),
        ] {
            let body = body(&format!(
                r#"{{"model":"a","input":"x","conversation":{conversation}}}"#
            ));
            assert_eq!(
                body.conversation()
                    .expect("an id")
                    .expect("a session")
                    .to_string(),
                session
            );
        }
        assert!(
            body(r#"{"model":"a","input":"x","conversation":"conv_1"}"#)
                .conversation()
                .is_err()
        );
        let both =
            body(r#"{"model":"a","input":"x","conversation":"c","previous_response_id":"r"}"#);
        assert!(both.check().is_err());
    }
}
