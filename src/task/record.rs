//! A task in the store.
//!
//! All keys begin with the tenant. The newest task has the first key.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::outcome::Outcome;
use crate::api::{Task, TaskPriority, TaskStatus};
use crate::eventlog::{
    EventLog, ReadError, RecordPages, Records, from_json, tenant_key, tenant_prefix, to_json,
};
use crate::store::Table;
use crate::types::{
    AgentName, GrantedFolders, PermissionPolicy, Principal, PromptId, Scopes, SessionId, Tenant,
    Timestamp,
};

/// The number of children in a response.
pub(super) const MAX_CHILDREN: usize = 1000;

/// A task and its record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRecord {
    pub(super) id: Uuid,
    pub(super) agent: AgentName,
    pub(super) description: Option<String>,
    /// The content blocks of the prompt.
    pub(super) blocks: Box<RawValue>,
    pub(super) priority: TaskPriority,
    pub(super) parent: Option<Uuid>,
    /// The number of ancestors.
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

/// The principal that created a task.
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
    /// Whether a client has cancelled the task.
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
        let TaskOwner {
            id,
            scopes,
            folders,
        } = self.by.clone();
        Principal {
            id: id.into(),
            tenant: tenant.clone(),
            scopes,
            folders,
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

    /// Deletes the record of a task that has ended.
    pub(super) fn delete(&self, tenant: &Tenant, records: Records) -> Records {
        let mut records = records.delete(Table::Task, task_key(tenant, self.id));
        if let Some(parent) = self.parent {
            records = records.delete(Table::TaskChild, child_key(tenant, parent, self.id));
        }
        records
    }

    /// The task as clients see it.
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
