//! `POST /openai/v1/chat/completions`, and jobs that chat programs send beside a conversation: titles, tags, follow-up
//! questions. They run as tasks, so the session of the conversation does not have them.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::chat_encoder::{CompletionWriter, Options};
use super::models;
use crate::surface::chat::{
    ChatRequest, Converted, Message, SESSION_ID, TurnEncoder, file_block, media_block, respond,
    text_part,
};
use crate::surface::http::{
    AnyQuery, ApiError, ApiRequest, AppState, Authorized, CanPrompt, JsonBody, Result, WholeHistory,
};
use base::types::{AgentName, SessionId};
use events::api::{CreateTask, Problem, ProblemCode};
use wire::acp::to_raw;

pub(super) async fn create(
    request: ApiRequest<CanPrompt, (), AnyQuery>,
    headers: HeaderMap,
    body: JsonBody<CompletionBody, WholeHistory>,
) -> Result<Response> {
    let app = request.app;
    let body = body.value;
    let by = request
        .by
        .acting_as(body.user.as_deref(), &app.shutdown)
        .await?;
    body.check()?;
    let (agent, model) = models::select(&app, &body.model)?;
    if body.is_side_job(&headers) {
        return run_side_job(&app, &by, agent, &body).await;
    }
    let chat = ChatRequest {
        model,
        conversation: CompletionBody::conversation(&headers),
        user: body.user.clone(),
        session: body.session(&headers)?,
        is_retry: is_retry(&headers),
        ..ChatRequest::new(agent, "openai-chat", body.messages(), &headers)?
    };
    let turn = chat.begin(&app, &by).await?;
    let session = turn.session.id();
    let options = Options {
        id: format!("chatcmpl-{session}_{}", turn.prompt),
        model: body.model.clone(),
        streamed: body.stream == Some(true),
        includes_usage: body.includes_usage(),
        link: session_link(&app, &headers, session),
        notices: turn.notices.clone(),
    };
    let connected = turn.cancel_on_disconnect(&app);
    if !options.streamed
        && let Some(failed) = turn.failed_early(&app).await?
    {
        return Ok(failed);
    }
    let encoder =
        TurnEncoder::new(CompletionWriter::new(options)).cancels_on_disconnect(Some(connected));
    Ok(respond(&app, &by, turn, encoder, true))
}

fn session_link(app: &AppState, headers: &HeaderMap, session: SessionId) -> String {
    let host = text_of(headers, "host").unwrap_or_default();
    let public = app.policy.options.public_url.as_ref();
    let url = public.map_or_else(|| format!("http://{host}"), ToString::to_string);
    format!("{url}/#/s/{session}")
}

const DEADLINE: Duration = Duration::from_mins(1);

async fn run_side_job(
    app: &AppState,
    by: &Authorized<CanPrompt>,
    agent: AgentName,
    body: &CompletionBody,
) -> Result<Response> {
    let messages = body.messages();
    let last = messages.iter().rfind(|message| message.is_user());
    let Some(Message { text, .. }) = last.filter(|message| !message.text.is_empty()) else {
        return Err(ApiError::invalid("/messages", "expected a text"));
    };
    let blocks = to_raw(&[json!({ "type": "text", "text": text })]);
    let request = CreateTask {
        agent,
        description: Some("A title or tags for a conversation".to_owned()),
        prompt: None,
        priority: events::api::TaskPriority::default(),
        parent_task: None,
        token_budget: None,
        metadata: None,
        deadline: Some(app.ids.now().after(DEADLINE)),
        callback_url: None,
        permissions: None,
        cwd: None,
    };
    app.requests.rates.check_prompt(by)?;
    let _guard = app.streams.acquire(by, "chat")?;
    let created = app.tasks.create(by, request, blocks, None).await?;
    let id = created.response.task_id;
    app.tasks.wait_ended(&by.user, id, DEADLINE).await;
    let task = app.tasks.get(&by.user, id).await;
    let task = task.map_err(ApiError::internal)?;
    let result = task.and_then(|task| task.result);
    let Some(result) = result.filter(|result| result.success) else {
        let detail = "the agent did not answer in time, or failed";
        // The libraries repeat requests with a status above 499, and the agent would work again.
        let problem = Problem {
            status: StatusCode::FAILED_DEPENDENCY.as_u16(),
            retryable: false,
            ..Problem::new(ProblemCode::AgentTimeout, detail)
        };
        return Err(problem.into());
    };
    let answer = json!({
        "id": format!("chatcmpl-{}", app.ids.session()),
        "object": "chat.completion",
        "created": app.ids.now().as_millis() / 1000,
        "model": body.model,
        "choices": [{ "index": 0, "finish_reason": "stop", "logprobs": null,
            "message": { "role": "assistant", "content": result.output, "refusal": null } }],
    });
    Ok(Json(answer).into_response())
}

const CONVERSATION_HEADERS: [&str; 3] = ["x-conversation-id", "x-openwebui-chat-id", "x-chat-id"];

/// The body. Parameters of a model, such as `temperature`, have no meaning for an agent and are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionBody {
    pub(super) model: String,
    messages: Vec<InputMessage>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The person for whom a program asks. A person has several conversations.
    user: Option<String>,
    metadata: Option<Value>,
    tool_choice: Option<Value>,
    function_call: Option<Value>,
    response_format: Option<Value>,
    n: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct InputMessage {
    role: String,
    content: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl CompletionBody {
    /// Rejects options that an agent cannot fulfil, because the client depends on them.
    pub(super) fn check(&self) -> Result<()> {
        reject_forced_tool(self.tool_choice.as_ref(), "/tool_choice")?;
        reject_forced_tool(self.function_call.as_ref(), "/function_call")?;
        reject_format(self.response_format.as_ref(), "/response_format")?;
        if self.n.is_some_and(|n| n > 1) {
            return Err(ApiError::invalid("/n", "an agent gives one answer"));
        }
        Ok(())
    }

    fn includes_usage(&self) -> bool {
        let options = self.stream_options.as_ref();
        options.and_then(|options| options.include_usage) == Some(true)
    }

    fn messages(&self) -> Vec<Message> {
        let messages = self.messages.iter().enumerate();
        messages.map(|(at, message)| message.message(at)).collect()
    }

    fn session(&self, headers: &HeaderMap) -> Result<Option<SessionId>> {
        let metadata = self.metadata.as_ref();
        let metadata = metadata.and_then(|metadata| metadata["session_id"].as_str());
        let named = text_of(headers, SESSION_ID.as_str()).or(metadata);
        let session = named.filter(|id| !id.is_empty()).map(str::parse);
        session.transpose().map_err(|_| ApiError::not_found())
    }

    fn conversation(headers: &HeaderMap) -> Option<String> {
        let mut names = CONVERSATION_HEADERS.iter();
        let id = names.find_map(|name| text_of(headers, name));
        id.map(ToOwned::to_owned)
    }

    /// Whether a chat program asks for a title, for tags or the like, and not a person for an answer.
    pub(super) fn is_side_job(&self, headers: &HeaderMap) -> bool {
        let named = text_of(headers, "x-task");
        if named.is_some_and(|task| !task.trim().is_empty() && !task.contains("{{")) {
            return true;
        }
        let [message] = &self.messages[..] else {
            return false;
        };
        message.role == "user"
            && self.stream != Some(true)
            && message.message(0).text.starts_with("### Task:")
    }
}

impl InputMessage {
    /// `at`: the index of the message.
    fn message(&self, at: usize) -> Message {
        let pointer = format!("/messages/{at}/content");
        Message::parsed(&self.role, self.content.as_ref(), pointer, block)
    }
}

fn block(part: &Value) -> Converted {
    match part["type"].as_str().unwrap_or_default() {
        "text" | "input_text" => text_part(part),
        "image_url" => {
            let image = &part["image_url"];
            let url = if image.is_string() {
                image
            } else {
                &image["url"]
            };
            file_block(url, None, None)
        }
        "input_audio" => {
            let audio = &part["input_audio"];
            let format = audio["format"].as_str().unwrap_or("wav");
            let data = audio["data"].as_str();
            let data = data.ok_or("expected `input_audio.data`")?;
            media_block(data, Some(&format!("audio/{format}")), None)
        }
        "file" => {
            let file = &part["file"];
            let data = file["file_data"].as_str();
            let data = data.ok_or("the gateway stores no files; send `file.file_data`")?;
            media_block(data, None, file["filename"].as_str())
        }
        _ => Err("this type of part is not known"),
    }
}

const RETRY_COUNT: &str = "x-stainless-retry-count";

/// Whether an SDK repeats a request that failed.
pub(super) fn is_retry(headers: &HeaderMap) -> bool {
    let count: Option<u32> = text_of(headers, RETRY_COUNT).and_then(|count| count.parse().ok());
    count.is_some_and(|count| count > 0)
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Rejects a choice that makes the client wait for a call of its own tool.
pub(super) fn reject_forced_tool(choice: Option<&Value>, pointer: &str) -> Result<()> {
    let forced = match choice {
        Some(Value::String(choice)) => choice == "required",
        Some(Value::Object(_)) => true,
        _ => false,
    };
    if forced {
        let detail = "an agent runs its own tools and cannot call those of the client; leave this member out";
        return Err(ApiError::invalid(pointer, detail));
    }
    Ok(())
}

/// Rejects a form of the answer that ACP cannot ask for. The client would parse the text of the agent as this form.
pub(super) fn reject_format(format: Option<&Value>, pointer: &str) -> Result<()> {
    let kind = format.and_then(|format| format["type"].as_str());
    if kind.is_some_and(|kind| kind != "text") {
        let detail =
            "an agent answers in text; leave the format out, and describe the form in the message";
        return Err(ApiError::invalid(pointer, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(json: &str) -> CompletionBody {
        serde_json::from_str(json).expect("a body")
    }

    #[test]
    fn content_is_text_or_parts() {
        let body = body(
            r#"{"model":"a","unknown":1,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[
    {"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
    {"type":"image_url","image_url":{"url":"https://x/y.png"}},{"type":"odd"}]},{"role":"assistant","content":null}]}"#,
        );
        let messages = body.messages();
        assert_eq!(messages[0].text, "be brief");
        let kinds: Vec<_> = messages[1]
            .blocks
            .iter()
            .map(|block| block["type"].as_str().unwrap_or(""))
            .collect();
        assert_eq!(
            (kinds, messages[1].text.as_str()),
            (
                vec!["text", "image", "resource_link", "text"],
                "look\n[odd: this type of part is not known]"
            )
        );
    }

    #[test]
    fn conversation_has_the_first_id_that_the_client_sends() {
        let mut headers = HeaderMap::new();
        let user = body(r#"{"model":"a","messages":[],"user":"u"}"#);
        assert_eq!(user.user.as_deref(), Some("u"));
        assert_eq!(CompletionBody::conversation(&headers), None);
        headers.insert("x-openwebui-chat-id", "c1".parse().expect("a value"));
        assert_eq!(
            CompletionBody::conversation(&headers).as_deref(),
            Some("c1")
        );
    }

    #[test]
    fn side_jobs_are_recognised() {
        let none = HeaderMap::new();
        let task = body(
            r####"{"model":"a","messages":[{"role":"user","content":"### Task:\nGenerate a title"}]}"####,
        );
        assert!(task.is_side_job(&none));
        let streamed = body(
            r####"{"model":"a","stream":true,"messages":[{"role":"user","content":"### Task: fix it"}]}"####,
        );
        assert!(!streamed.is_side_job(&none), "a person may write this too");
        let named = HeaderMap::from_iter([(
            "x-task".parse().expect("a name"),
            "tags_generation".parse().expect("a value"),
        )]);
        assert!(streamed.is_side_job(&named));
    }

    #[test]
    fn forced_tools_are_rejected() {
        for (choice, permitted) in [
            (json!("auto"), true),
            (json!("required"), false),
            (json!({ "type": "function" }), false),
        ] {
            assert_eq!(
                reject_forced_tool(Some(&choice), "").is_ok(),
                permitted,
                "{choice}"
            );
        }
        assert!(reject_forced_tool(None, "").is_ok());
    }
}
