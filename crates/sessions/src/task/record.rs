//! A task in the store, and its end.
//!
//! All keys begin with the tenant. The newest task has the first key.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use base::types::{
    AgentName, CancelCause, GrantedFolders, PermissionPolicy, Principal, PromptId, Scopes,
    SessionId, Tenant, Timestamp,
};
use events::api::{
    Problem, ProblemCode, Prompt, PromptStatus, Task, TaskPriority, TaskResult, TaskStatus,
};
use events::event::EventRef;
use log::eventlog::{
    EventLog, Item, ReadError, Reader, RecordPages, Records, from_json, tenant_key, tenant_prefix,
    to_json,
};
use log::store::Table;

pub(super) const MAX_CHILDREN: usize = 1000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRecord {
    pub(super) id: Uuid,
    pub(super) agent: AgentName,
    pub(super) description: Option<String>,
    pub(super) blocks: Box<RawValue>,
    pub(super) priority: TaskPriority,
    pub(super) parent: Option<Uuid>,
    pub(super) depth: u8,
    pub(super) token_budget: Option<u64>,
    pub(super) metadata: Map<String, Value>,
    pub(super) deadline: Option<Timestamp>,
    pub(super) callback_url: Option<String>,
    pub(super) permissions: PermissionPolicy,
    pub(super) cwd: Option<String>,
    pub(super) by: TaskOwner,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) session: Option<SessionId>,
    pub(super) prompt: Option<PromptId>,
    /// Whether the agent has reported its usage of tokens.
    pub(super) usage_seen: bool,
    pub(super) outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TaskOwner {
    pub(super) id: String,
    pub(super) scopes: Scopes,
    pub(super) folders: GrantedFolders,
}

/// A task that has not ended, which a start reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenRecord {
    pub(super) task: Uuid,
    pub(super) cancelled: bool,
}

impl OpenRecord {
    pub(super) fn put(&self, tenant: &Tenant, records: Records) -> Records {
        records.put(Table::OpenTask, open_key(tenant, self.task), to_json(self))
    }

    pub(super) fn delete(tenant: &Tenant, task: Uuid, records: Records) -> Records {
        records.delete(Table::OpenTask, open_key(tenant, task))
    }
}

impl TaskRecord {
    pub(super) fn status(&self) -> TaskStatus {
        match (&self.outcome, self.started_at) {
            (Some(outcome), _) => outcome.status,
            (None, Some(_)) => TaskStatus::Running,
            (None, None) => TaskStatus::Queued,
        }
    }

    pub(super) fn principal(&self, tenant: &Tenant) -> Principal {
        Principal {
            id: self.by.id.as_str().into(),
            tenant: tenant.clone(),
            scopes: self.by.scopes,
            folders: self.by.folders.clone(),
        }
    }

    /// Adds the record. The end of a task deletes its entry among the open tasks.
    pub(super) fn put(&self, tenant: &Tenant, records: Records) -> Records {
        let records = records.put(Table::Task, task_key(tenant, self.id), to_json(self));
        match self.outcome {
            None => records,
            Some(_) => OpenRecord::delete(tenant, self.id, records),
        }
    }

    /// The record of a new task, with the entry that finds it by its parent.
    pub(super) fn put_new(&self, tenant: &Tenant) -> Records {
        let open = OpenRecord {
            task: self.id,
            cancelled: false,
        };
        let mut records = open.put(tenant, self.put(tenant, Records::default()));
        if let Some(parent) = self.parent {
            records = records.put(
                Table::TaskChild,
                child_key(tenant, parent, self.id),
                to_json(&self.id),
            );
        }
        records
    }

    pub(super) fn delete(&self, tenant: &Tenant, records: Records) -> Records {
        let mut records = records.delete(Table::Task, task_key(tenant, self.id));
        if let Some(parent) = self.parent {
            records = records.delete(Table::TaskChild, child_key(tenant, parent, self.id));
        }
        records
    }

    pub(super) fn shown(&self, children: Option<Vec<Uuid>>) -> Task {
        let duration = |from: Timestamp, to: Timestamp| {
            u64::try_from(to.as_millis() - from.as_millis()).unwrap_or_default()
        };
        let result = self.outcome.as_ref().map(|outcome| {
            let started = self.started_at.unwrap_or(outcome.ended_at);
            outcome.result(duration(started, outcome.ended_at), self.metadata.clone())
        });
        let budget_enforced = self
            .token_budget
            .filter(|_| self.prompt.is_some())
            .map(|_| self.usage_seen);
        Task {
            task_id: self.id,
            agent: self.agent.clone(),
            description: self.description.clone(),
            priority: self.priority,
            status: self.status(),
            parent_task: self.parent,
            children,
            session_id: self.session,
            prompt_id: self.prompt,
            token_budget: self.token_budget,
            budget_enforced,
            metadata: self.metadata.clone(),
            deadline: self.deadline,
            callback_url: self.callback_url.as_deref().map(origin),
            permissions: self.permissions.clone(),
            by: self.by.id.clone(),
            created_at: self.created_at,
            started_at: self.started_at,
            ended_at: self.outcome.as_ref().map(|outcome| outcome.ended_at),
            result,
        }
    }
}

/// The scheme and the host of a URL. The path and the query can have a secret.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    format!(
        "{scheme}://{}",
        rest.split(['/', '?', '#']).next().unwrap_or_default()
    )
}

fn task_key(tenant: &Tenant, task: Uuid) -> Vec<u8> {
    tenant_key(tenant, !task.as_u128())
}

fn open_key(tenant: &Tenant, task: Uuid) -> Vec<u8> {
    tenant_key(tenant, task.as_u128())
}

fn child_key(tenant: &Tenant, parent: Uuid, child: Uuid) -> Vec<u8> {
    [
        &tenant_key(tenant, parent.as_u128())[..],
        &(!child.as_u128()).to_be_bytes(),
    ]
    .concat()
}

pub(super) async fn get(
    log: &EventLog,
    tenant: &Tenant,
    task: Uuid,
) -> Result<Option<TaskRecord>, ReadError> {
    Ok(log
        .get(Table::Task, task_key(tenant, task))
        .await?
        .and_then(|value| from_json(&value)))
}

/// The children of a task, newest first.
pub(super) fn children<'a>(log: &'a EventLog, tenant: &Tenant, task: Uuid) -> RecordPages<'a> {
    RecordPages::below(log, Table::TaskChild, tenant_key(tenant, task.as_u128()))
}

/// The tasks of a tenant that are older than `before`, newest first.
pub(super) fn older<'a>(
    log: &'a EventLog,
    tenant: &Tenant,
    before: Option<Uuid>,
) -> RecordPages<'a> {
    let after = before.map(|before| task_key(tenant, before));
    RecordPages::below(log, Table::Task, tenant_prefix(tenant)).after(after)
}

/// The size of the output in a record, in bytes. The transcript of the session has the whole text.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) status: TaskStatus,
    pub(super) ended_at: Timestamp,
    output: String,
    truncated: bool,
    stop_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel_cause: Option<CancelCause>,
    tokens_used: Option<u64>,
    error: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelReason {
    Client,
    Deadline,
    Budget,
}

impl CancelReason {
    fn status(self) -> TaskStatus {
        match self {
            Self::Client => TaskStatus::Cancelled,
            Self::Deadline | Self::Budget => TaskStatus::Failed,
        }
    }

    pub(super) fn of_turn(self) -> CancelCause {
        match self {
            Self::Client => CancelCause::Person,
            Self::Deadline => CancelCause::Deadline,
            Self::Budget => CancelCause::Budget,
        }
    }

    fn problem(self) -> Option<Problem> {
        match self {
            Self::Client => None,
            Self::Deadline => Some((
                ProblemCode::DeadlineExceeded,
                "the deadline of the task has passed",
            )),
            Self::Budget => Some((
                ProblemCode::BudgetExceeded,
                "the task used more tokens than its budget",
            )),
        }
        .map(|(code, detail)| Problem::new(code, detail))
    }
}

impl Outcome {
    fn without_turn(status: TaskStatus, problem: Option<&Problem>, ended_at: Timestamp) -> Self {
        let (output, truncated, stop_reason, tokens_used) = (String::new(), false, None, None);
        Self {
            status,
            ended_at,
            output,
            truncated,
            stop_reason,
            cancel_cause: None,
            tokens_used,
            error: problem.map(raw),
        }
    }

    pub(super) fn failed(problem: &Problem, now: Timestamp) -> Self {
        let interrupted = problem.code == ProblemCode::Interrupted;
        let status = if interrupted {
            TaskStatus::Interrupted
        } else {
            TaskStatus::Failed
        };
        Self::without_turn(status, Some(problem), now)
    }

    pub(super) fn cancelled(reason: CancelReason, now: Timestamp) -> Self {
        Self::without_turn(reason.status(), reason.problem().as_ref(), now)
    }

    /// The end of the turn of a task. `reported`: the last usage that the agent reported during the turn.
    pub(super) fn of_turn(
        turn: Prompt,
        reason: Option<CancelReason>,
        reported: Option<u64>,
        now: Timestamp,
    ) -> Self {
        let cancelled =
            turn.status == PromptStatus::Failed || turn.stop_reason.as_deref() == Some("cancelled");
        let (status, error) = match reason.filter(|_| cancelled) {
            Some(reason) => (reason.status(), reason.problem().as_ref().map(raw)),
            None if turn.status == PromptStatus::Failed => {
                (failed_status(turn.error.as_deref()), turn.error)
            }
            // Somebody else has cancelled the turn of the session.
            None if cancelled => (TaskStatus::Cancelled, None),
            None => (TaskStatus::Completed, None),
        };
        let (mut output, mut truncated) = (turn.text, turn.truncated);
        if output.len() > MAX_OUTPUT_BYTES {
            output.truncate(output.floor_char_boundary(MAX_OUTPUT_BYTES));
            truncated = true;
        }
        let tokens_used = turn.usage.as_deref().and_then(total_tokens).or(reported);
        let cancel_cause = turn.cancel_cause;
        let (stop_reason, ended_at) = (turn.stop_reason, turn.ended_at.unwrap_or(now));
        Self {
            status,
            ended_at,
            output,
            truncated,
            stop_reason,
            cancel_cause,
            tokens_used,
            error,
        }
    }

    pub(super) fn result(&self, duration_ms: u64, metadata: Map<String, Value>) -> TaskResult {
        TaskResult {
            success: self.status == TaskStatus::Completed
                && self.stop_reason.as_deref() == Some("end_turn"),
            output: self.output.clone(),
            truncated: self.truncated,
            stop_reason: self.stop_reason.clone(),
            cancel_cause: self.cancel_cause,
            tokens_used: self.tokens_used,
            duration_ms,
            error: self.error.clone(),
            metadata,
        }
    }
}

fn raw(problem: &Problem) -> Box<RawValue> {
    serde_json::value::to_raw_value(problem).expect("a problem has string keys and serializes")
}

fn failed_status(problem: Option<&RawValue>) -> TaskStatus {
    let code = problem.and_then(|problem| serde_json::from_str::<Problem>(problem.get()).ok());
    if code.is_some_and(|problem| problem.code == ProblemCode::Interrupted) {
        TaskStatus::Interrupted
    } else {
        TaskStatus::Failed
    }
}

fn total_tokens(usage: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Usage {
        total_tokens: u64,
    }
    Some(
        serde_json::from_str::<Usage>(usage.get())
            .ok()?
            .total_tokens,
    )
}

pub(super) struct Usage {
    reader: Reader,
    reported: Option<u64>,
}

impl Usage {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader,
            reported: None,
        }
    }

    pub(super) fn reported(&self) -> Option<u64> {
        self.reported
    }

    /// Waits for the next report. Cancel-safe. Never returns after the end of the log.
    pub(super) async fn next(&mut self) -> u64 {
        loop {
            match self.read().await {
                Some(Some(used)) => return used,
                Some(None) => {}
                None => return std::future::pending().await,
            }
        }
    }

    pub(super) async fn read_to(&mut self, seq: u64) {
        while self.reader.cursor() < seq && self.read().await.is_some() {}
    }

    /// The last report of the next events, if they have one. `None` after the end of the log.
    async fn read(&mut self) -> Option<Option<u64>> {
        match self.reader.next().await {
            Ok(Item::Run(run)) => {
                let used = run.events().filter_map(|event| used(&event)).last();
                self.reported = used.or(self.reported);
                Some(used)
            }
            Ok(Item::Ready { .. } | Item::Reset { .. }) => Some(None),
            Ok(Item::End) => None,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not read the usage of a task; its budget is not enforced"
                );
                None
            }
        }
    }
}

/// The tokens in a `usage_update` (ACP, "Session Usage").
fn used(event: &EventRef<'_>) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update<'a> {
        session_update: &'a str,
        used: u64,
    }
    if event.kind() != "session.update" {
        return None;
    }
    let payload = event.payload()?;
    // The usage of a child session is not that of the session.
    if payload.subagent.is_some() {
        return None;
    }
    let update: Update<'_> = serde_json::from_str(payload.update?.get()).ok()?;
    (update.session_update == "usage_update").then_some(update.used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::event::testing::{event, frame};

    #[test]
    fn usage_of_a_child_session_does_not_count() {
        let used = |members: &str| {
            let time = "2026-11-21T22:15:00.000Z";
            used(&event(&frame(1, "session.update", None, time, members)))
        };
        let update = r#""update":{"sessionUpdate":"usage_update","used":7}"#;
        assert_eq!(used(update), Some(7));
        assert_eq!(used(&format!(r#"{update},"subagent":"child""#)), None);
    }
}
