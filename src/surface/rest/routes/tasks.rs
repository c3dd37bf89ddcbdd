//! `/v1/tasks`: one-shot work that the gateway runs when a process is free.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::operations::Routes;
use super::prompts::{MAX_WAIT_SECONDS, content_blocks};
use crate::stream::StreamGuard;
use crate::surface::http::{
    ApiError, ApiRequest, CanPrompt, CanRead, IdempotencyHeader, JsonBody, Params, PreferWait,
    PreferenceApplied, Replayed, Result, location,
};
use events::api::{CreateTask, Problem, Task, TaskList};
use sessions::task::Filter;
use wire::acp::to_raw;

pub(super) fn routes() -> Routes {
    routes![list_tasks, create_task, get_task, cancel_task]
}

const DEFAULT_TASKS: usize = 50;
const MAX_TASKS: usize = 200;

/// Creates a task: one prompt in a session of its own.
///
/// The task waits until a process is free. The order is by priority, then by age. The queue survives restarts of the
/// gateway, and no task runs twice: a task that ran during a restart ends as `interrupted`. With `Prefer: wait=N`, the
/// gateway responds when the task ends or after N seconds.
#[utoipa::path(post, path = "/v1/tasks", request_body = CreateTask, responses(
    (status = 200, body = Task, description = "The task has ended within the wait."),
    (status = 202, body = Task, description = "The task is queued or runs."),
))]
async fn create_task(
    request: ApiRequest<CanPrompt>,
    wait: PreferWait,
    key: IdempotencyHeader,
    body: JsonBody<CreateTask>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let blocks = blocks(&body.value)?;
    let held = held(&request, wait)?;
    let tasks = &request.app.tasks;
    let created = tasks.create(&request.by, body.value, blocks, key).await?;
    let response = respond(&request, created.response, held, true).await?;
    Ok((Replayed(created.replayed), response).into_response())
}

fn blocks(task: &CreateTask) -> Result<Box<RawValue>> {
    match (&task.prompt, &task.description) {
        (Some(prompt), _) => content_blocks(prompt.clone()),
        (None, Some(text)) => Ok(to_raw(&json!([{ "type": "text", "text": text }]))),
        (None, None) => Err(ApiError::invalid("", "expected `description` or `prompt`")),
    }
}

/// Lists tasks, newest first.
///
/// A filtered page can have fewer tasks than `limit` and a cursor.
#[utoipa::path(get, path = "/v1/tasks", responses(
    (status = 200, body = TaskList, description = "A page of tasks."),
))]
async fn list_tasks(mut request: ApiRequest<CanRead, (), Params>) -> Result<Json<TaskList>> {
    let filter = Filter {
        agent: request.params.parsed("agent", "an agent's name")?,
        status: request.params.named(
            "status",
            "queued, running, completed, failed, cancelled or interrupted",
        )?,
        parent: request.params.parsed("parent", "the id of a task")?,
    };
    let before = request
        .params
        .parsed("cursor", "the `nextCursor` of a page")?;
    let limit = request.params.limit(DEFAULT_TASKS, MAX_TASKS)?;
    request.params.finish()?;
    let tasks = &request.app.tasks;
    let list = tasks.list(&request.by.user, &filter, before, limit).await;
    Ok(Json(list.map_err(ApiError::internal)?))
}

/// Gets a task. `Prefer: wait=N` waits for its end.
///
/// `N` is in seconds, at most 300. The response after the wait has the task as it is then, also if it still runs. The
/// gateway keeps a finished task for a limited time; after it, the response is 404.
#[utoipa::path(get, path = "/v1/tasks/{task}", responses(
    (status = 200, body = Task, description = "The task. Its `status` shows whether it has ended."),
))]
async fn get_task(request: ApiRequest<CanRead, Uuid>, wait: PreferWait) -> Result<Response> {
    let tasks = &request.app.tasks;
    let task = tasks.get(&request.by.user, request.ids).await;
    let task = task.map_err(ApiError::internal)?;
    let task = task.ok_or_else(ApiError::not_found)?;
    let held = if task.status.has_ended() {
        None
    } else {
        held(&request, wait)?
    };
    respond(&request, task, held, false).await
}

/// Cancels a task and the tasks below it.
///
/// A queued task ends at once. A running one ends when the agent has stopped.
#[utoipa::path(post, path = "/v1/tasks/{task}/cancel", responses(
    (status = 200, body = Task, description = "The task has ended."),
    (status = 202, body = Task, description = "The gateway cancels the turn of the task."),
))]
async fn cancel_task(request: ApiRequest<CanPrompt, Uuid>) -> Result<Response> {
    let tasks = &request.app.tasks;
    let task = tasks.cancel(&request.by.user, request.ids).await?;
    respond(&request, task.ok_or_else(ApiError::not_found)?, None, true).await
}

struct Held {
    limit: Duration,
    _guard: StreamGuard,
}

fn held<S, I, Q>(request: &ApiRequest<S, I, Q>, wait: PreferWait) -> Result<Option<Held>> {
    let Some(limit) = wait.duration(MAX_WAIT_SECONDS) else {
        return Ok(None);
    };
    Ok(Some(Held {
        limit,
        _guard: request.app.streams.acquire(&request.by, "held")?,
    }))
}

/// Responds with the task. `accepts`: the status is 202 if the task has not ended.
async fn respond<S, I, Q>(
    request: &ApiRequest<S, I, Q>,
    mut task: Task,
    held: Option<Held>,
    accepts: bool,
) -> Result<Response> {
    let tasks = &request.app.tasks;
    if let Some(held) = &held {
        tokio::select! {
            biased;
            () = request.by.admission().wait_key_ended() => return Err(Problem::key_ended().into()),
            () = tasks.wait_ended(&request.by.user, task.task_id, held.limit) => {}
        }
        let now = tasks.get(&request.by.user, task.task_id).await;
        let now = now.map_err(ApiError::internal)?;
        task = now.ok_or_else(ApiError::not_found)?;
    }
    let status = if accepts && !task.status.has_ended() {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let location = location(format!("/v1/tasks/{}", task.task_id));
    let applied = PreferenceApplied(held.map(|held| held.limit));
    Ok((status, location, applied, Json(task)).into_response())
}
