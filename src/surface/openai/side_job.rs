//! Jobs that chat programs send beside a conversation: titles, tags, follow-up questions. They run as tasks, so the session
//! of the conversation does not have them.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::chat_request::CompletionBody;
use crate::api::{CreateTask, Problem, ProblemCode};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::chat::Message;
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::task::NewTask;
use crate::types::AgentName;

const DEADLINE: Duration = Duration::from_mins(1);

/// Runs the prompt in a hidden session, and responds with its text.
pub(super) async fn run(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    agent: AgentName,
    body: &CompletionBody,
) -> Result<Response, ApiError> {
    let messages = body.messages();
    let text = messages
        .iter()
        .rev()
        .find(|message| message.is_user())
        .map(|message: &Message| message.text.clone());
    let text = text
        .filter(|text| !text.is_empty())
        .ok_or_else(|| ApiError::invalid("/messages", "expected a text"))?;
    let blocks =
        to_raw_value(&[json!({ "type": "text", "text": text })]).map_err(ApiError::internal)?;
    let request = CreateTask {
        agent,
        description: Some("A title or tags for a conversation".to_owned()),
        prompt: None,
        priority: crate::api::TaskPriority::default(),
        parent_task: None,
        token_budget: None,
        metadata: None,
        deadline: Some(gateway.ids.now().after(DEADLINE)),
        callback_url: None,
        permissions: None,
        cwd: None,
    };
    gateway.rates().check_prompt(by)?;
    let _guard = gateway.streams().acquire(by)?;
    let created = gateway
        .tasks
        .create(
            by,
            NewTask {
                request,
                blocks,
                key: None,
            },
        )
        .await?;
    gateway
        .tasks
        .wait_ended(&by.tenant, created.response.task_id, DEADLINE)
        .await;
    let task = gateway
        .tasks
        .get(&by.tenant, created.response.task_id)
        .await
        .map_err(ApiError::internal)?;
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
        "id": format!("chatcmpl-{}", gateway.ids.session()),
        "object": "chat.completion",
        "created": gateway.ids.now().as_millis() / 1000,
        "model": body.model,
        "choices": [{ "index": 0, "finish_reason": "stop", "logprobs": null,
            "message": { "role": "assistant", "content": result.output, "refusal": null } }],
    });
    Ok(Json(answer).into_response())
}
