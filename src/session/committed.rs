//! The snapshot of a session as of its last commit. Readers receive it while the disk is full.

use super::context::Context;
use super::record::{self, FoldRecord, RequestRecord, SessionRecord};
use super::refusal::Refusal;
use super::stored::read_record;
use crate::api::{PendingRequest, Session};
use crate::eventlog::SessionLog;
use crate::store::{Run, Table};
use crate::transcript::SessionFold;
use crate::types::EventId;

/// Builds the snapshot from the record and the fold.
pub(super) fn build_snapshot(
    record: &SessionRecord,
    fold: &SessionFold,
    requests: Vec<PendingRequest>,
    last_event_id: EventId,
) -> Session {
    Session {
        session_id: record.session_id,
        agent: record.agent.clone(),
        title: fold.title().map(str::to_owned),
        metadata: record.metadata.clone(),
        cwd: record.cwd.clone(),
        state: record.state.into(),
        attached: record.attached,
        created_at: record.created_at,
        updated_at: record.updated_at,
        prompt_id: record.prompt_id,
        queued: record.queued.clone(),
        requests,
        prompt_capabilities: record.prompt_capabilities.clone(),
        modes: fold.modes.clone(),
        config_options: fold.config_options.clone(),
        available_commands: fold.available_commands.clone(),
        plan: fold.plan().map(ToOwned::to_owned),
        usage: fold.usage.clone(),
        subagents: fold.subagents(),
        policy: record.policy.clone().into(),
        last_event_id,
    }
}

/// The last committed snapshot of a session.
pub(super) async fn session(context: &Context, log: &SessionLog) -> Result<Session, Refusal> {
    let key = record::session_key(log.session());
    let record = read_record::<SessionRecord>(context, Table::Session, key.clone())
        .await?
        .ok_or(Refusal::NoSuchSession)?;
    let folded = read_record::<FoldRecord>(context, Table::Fold, key).await?;
    // Up to the position in the session's record, no event has changed the fold.
    let (mut fold, mut seq) = match folded {
        Some(FoldRecord { seq, fold }) => (fold, seq.max(record.seq)),
        None => (SessionFold::default(), 0),
    };
    loop {
        let runs = log.read(seq, context.limits.store_page_bytes).await;
        let runs = runs.map_err(|error| Refusal::internal(&error))?;
        let Some(last) = runs.last() else { break };
        seq = last.last_seq;
        for event in runs.iter().flat_map(Run::events) {
            fold.event(&event);
        }
    }
    let requests = requests(context, &record).await?;
    Ok(build_snapshot(&record, &fold, requests, log.id(seq)))
}

/// The requests of the agent that were open at the last commit.
async fn requests(context: &Context, record: &SessionRecord) -> Result<Vec<PendingRequest>, Refusal> {
    let mut open = Vec::new();
    for request in &record.open_requests {
        let key = record::request_key(record.session_id, *request);
        let stored = read_record::<RequestRecord>(context, Table::Request, key).await?;
        let pending = stored.filter(|stored| stored.resolution.is_none()).and_then(|stored| stored.pending);
        open.extend(pending.map(PendingRequest::from));
    }
    Ok(open)
}
