//! A task in the store, and its end.
//!
//! All keys begin with the user. The newest task has the first key.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use base::types::{GrantedFolders, Principal, Scopes, Timestamp, UserId};
use events::api::{
    CancelCause, Problem, ProblemCode, Prompt, PromptStatus, Task, TaskResult, TaskStatus,
};
use events::event::EventRef;
use log::eventlog::{
    EventLog, Item, ReadError, Reader, RecordPages, Records, from_json, to_json, user_key,
    user_prefix,
};
use log::store::Table;
use wire::acp::{stop_reason, update};

pub(super) const MAX_CHILDREN: usize = 1000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRecord {
    /// The task for clients, without its children.
    pub(super) task: Task,
    pub(super) blocks: Box<RawValue>,
    pub(super) depth: u8,
    /// The complete URL. Clients see only its origin, because the path and the query can have a secret.
    pub(super) callback_url: Option<String>,
    pub(super) cwd: Option<String>,
    /// The rights of the key that created the task.
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
    pub(super) fn put(&self, user: &UserId, records: Records) -> Records {
        records.put(Table::OpenTask, open_key(user, self.task), to_json(self))
    }

    pub(super) fn delete(user: &UserId, task: Uuid, records: Records) -> Records {
        records.delete(Table::OpenTask, open_key(user, task))
    }
}

impl TaskRecord {
    pub(super) fn principal(&self, user: &UserId) -> Principal {
        Principal {
            user: user.clone(),
            scopes: self.scopes,
            folders: self.folders.clone(),
            is_local: false,
        }
    }

    /// Adds the record. The end of a task deletes its entry among the open tasks.
    pub(super) fn put(&self, user: &UserId, records: Records) -> Records {
        let id = self.task.task_id;
        let records = records.put(Table::Task, task_key(user, id), to_json(self));
        if self.task.status.has_ended() {
            OpenRecord::delete(user, id, records)
        } else {
            records
        }
    }

    /// The record of a new task, with the entry that finds it by its parent.
    pub(super) fn put_new(&self, user: &UserId) -> Records {
        let id = self.task.task_id;
        let open = OpenRecord {
            task: id,
            cancelled: false,
        };
        let records = open.put(user, self.put(user, Records::default()));
        match self.task.parent_task {
            Some(parent) => {
                records.put(Table::TaskChild, child_key(user, parent, id), to_json(&id))
            }
            None => records,
        }
    }

    pub(super) fn delete(&self, user: &UserId, records: Records) -> Records {
        let id = self.task.task_id;
        let records = records.delete(Table::Task, task_key(user, id));
        match self.task.parent_task {
            Some(parent) => records.delete(Table::TaskChild, child_key(user, parent, id)),
            None => records,
        }
    }

    /// Ends a task that has no turn.
    pub(super) fn fail(&mut self, problem: &Problem, now: Timestamp) {
        let status = failed_status(Some(problem));
        self.end(status, Some(raw(problem)), now);
    }

    /// Ends a task that has no turn.
    pub(super) fn cancel(&mut self, reason: CancelReason, now: Timestamp) {
        self.end(reason.status(), reason.problem().as_ref().map(raw), now);
    }

    /// Ends a task with its turn. `reported`: the last usage that the agent reported during the turn.
    pub(super) fn end_turn(
        &mut self,
        turn: Prompt,
        reason: Option<CancelReason>,
        reported: Option<u64>,
        now: Timestamp,
    ) {
        let tokens_used = turn.usage.as_deref().and_then(total_tokens).or(reported);
        if tokens_used.is_some() || turn.usage.is_some() {
            self.usage_reported();
        }
        let failed = turn.status == PromptStatus::Failed;
        let cancelled = failed || turn.stop_reason.as_deref() == Some(stop_reason::CANCELLED);
        let (status, error) = match reason {
            Some(reason) if cancelled => (reason.status(), reason.problem().as_ref().map(raw)),
            _ if failed => {
                let problem = turn.error.as_deref();
                let problem = problem.and_then(|raw| serde_json::from_str(raw.get()).ok());
                (failed_status(problem.as_ref()), turn.error)
            }
            // Somebody else has cancelled the turn of the session.
            _ if cancelled => (TaskStatus::Cancelled, None),
            _ => (TaskStatus::Completed, None),
        };
        let result = self.end(status, error, turn.ended_at.unwrap_or(now));
        result.success = status == TaskStatus::Completed
            && turn.stop_reason.as_deref() == Some(stop_reason::END_TURN);
        result.output = turn.text;
        result.truncated = turn.truncated;
        if result.output.len() > MAX_OUTPUT_BYTES {
            let end = result.output.floor_char_boundary(MAX_OUTPUT_BYTES);
            result.output.truncate(end);
            result.truncated = true;
        }
        result.stop_reason = turn.stop_reason;
        result.cancel_cause = turn.cancel_cause;
        result.tokens_used = tokens_used;
    }

    fn end(
        &mut self,
        status: TaskStatus,
        error: Option<Box<RawValue>>,
        ended_at: Timestamp,
    ) -> &mut TaskResult {
        let task = &mut self.task;
        let started_at = task.started_at.unwrap_or(ended_at);
        let duration = ended_at.since(started_at).as_millis();
        task.status = status;
        task.ended_at = Some(ended_at);
        task.result.insert(TaskResult {
            success: false,
            output: String::new(),
            truncated: false,
            stop_reason: None,
            cancel_cause: None,
            tokens_used: None,
            duration_ms: u64::try_from(duration).unwrap_or_default(),
            error,
            metadata: task.metadata.clone(),
        })
    }

    /// The agent reports its usage, so that the budget of the task has an effect. Returns true if this was not known.
    pub(super) fn usage_reported(&mut self) -> bool {
        self.task.token_budget.is_some() && self.task.budget_enforced.replace(true) != Some(true)
    }
}

/// The scheme and the host of a URL.
pub(super) fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    format!(
        "{scheme}://{}",
        rest.split(['/', '?', '#']).next().unwrap_or_default()
    )
}

fn task_key(user: &UserId, task: Uuid) -> Vec<u8> {
    user_key(user, !task.as_u128())
}

fn open_key(user: &UserId, task: Uuid) -> Vec<u8> {
    user_key(user, task.as_u128())
}

fn child_key(user: &UserId, parent: Uuid, child: Uuid) -> Vec<u8> {
    [
        &user_key(user, parent.as_u128())[..],
        &(!child.as_u128()).to_be_bytes(),
    ]
    .concat()
}

pub(super) async fn get(
    log: &EventLog,
    user: &UserId,
    task: Uuid,
) -> Result<Option<TaskRecord>, ReadError> {
    let value = log.get(Table::Task, task_key(user, task)).await?;
    Ok(value.and_then(|value| from_json(&value)))
}

/// `None` if the task has ended.
pub(super) async fn get_open(
    log: &EventLog,
    user: &UserId,
    task: Uuid,
) -> Result<Option<TaskRecord>, ReadError> {
    let record = get(log, user, task).await?;
    Ok(record.filter(|record| !record.task.status.has_ended()))
}

/// The children of a task, newest first.
pub(super) fn children<'a>(log: &'a EventLog, user: &UserId, task: Uuid) -> RecordPages<'a> {
    RecordPages::below(log, Table::TaskChild, user_key(user, task.as_u128()))
}

/// The tasks of a user that are older than `before`, newest first.
pub(super) fn older<'a>(log: &'a EventLog, user: &UserId, before: Option<Uuid>) -> RecordPages<'a> {
    let after = before.map(|before| task_key(user, before));
    RecordPages::below(log, Table::Task, user_prefix(user)).after(after)
}

/// The size of the output in a record, in bytes. The transcript of the session has the whole text.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

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
        let (code, detail) = match self {
            Self::Client => return None,
            Self::Deadline => (
                ProblemCode::DeadlineExceeded,
                "the deadline of the task has passed",
            ),
            Self::Budget => (
                ProblemCode::BudgetExceeded,
                "the task used more tokens than its budget",
            ),
        };
        Some(Problem::new(code, detail))
    }
}

fn raw(problem: &Problem) -> Box<RawValue> {
    serde_json::value::to_raw_value(problem).expect("a problem has string keys and serializes")
}

fn failed_status(problem: Option<&Problem>) -> TaskStatus {
    match problem {
        Some(problem) if problem.code == ProblemCode::Interrupted => TaskStatus::Interrupted,
        _ => TaskStatus::Failed,
    }
}

fn total_tokens(usage: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Usage {
        total_tokens: u64,
    }
    let usage: Usage = serde_json::from_str(usage.get()).ok()?;
    Some(usage.total_tokens)
}

/// The usage of tokens that an agent reports.
pub(super) struct Usage {
    reader: Reader,
    /// The latest report.
    pub(super) reported: Option<u64>,
}

impl Usage {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader,
            reported: None,
        }
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
    (update.session_update == update::USAGE).then_some(update.used)
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
