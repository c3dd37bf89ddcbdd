//! Deleted sessions that no process holds: the agent is asked to forget them too, beside everything else.

use super::context::Context;
use super::record::SessionRecord;
use crate::acp::{self, TraceContext, method};
use crate::pool::Priority;
use crate::types::Principal;

/// Asks the agent in the background, within a deadline and only with a process that no session holds. One session at
/// a time: a client that deletes hundreds must not keep the agent from working.
pub(super) fn request_delete(context: &Context, record: &SessionRecord, owner: &Principal, trace: Option<TraceContext>) {
    let Some(id) = record.agent_session_id.clone() else { return };
    let Some(spec) = context.catalogue.agent(&record.agent) else { return };
    let known = context.pool.agent_stats(&record.agent).and_then(|(_, initialized)| initialized);
    if known.is_some_and(|initialized| !initialized.capabilities.session.delete) {
        return;
    }
    let (context, owner, ours) = (context.clone(), owner.clone(), record.session_id);
    let shutdown = context.shutdown.clone();
    shutdown.clone().spawn_isolated(async move {
        let asked = async {
            let _alone = context.upstream_deletes.acquire().await;
            let mut visit = context.pool.short_lease(&spec, &owner, Priority::NoReclaim).await.ok()?;
            if visit.initialized().capabilities.session.delete {
                let params = acp::delete_session(&id, trace.as_ref());
                visit.call(method::SESSION_DELETE, &params, context.limits.call).await.ok()?;
            }
            visit.release_untouched();
            Some(())
        };
        let deleted = tokio::select! {
            told = tokio::time::timeout(context.limits.delete_wait, asked) => told.ok().flatten(),
            () = shutdown.drain_started() => None,
        };
        if deleted.is_none() {
            tracing::warn!(session = %ours, "a deleted session may still be there at the agent, which did not take the word");
        }
    });
}
