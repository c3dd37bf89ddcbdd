//! Deletes sessions at the agent if no process is attached to them.

use super::context::Context;
use super::record::SessionRecord;
use agents::pool::Priority;
use base::types::Principal;
use wire::acp::{self, TraceContext, method};

/// Sends `session/delete` in the background, within a deadline, from a process that no session uses. Requests
/// run one at a time, so that a client that deletes hundreds of sessions does not block the agent.
pub(super) fn request_delete(
    context: &Context,
    record: &SessionRecord,
    owner: &Principal,
    trace: Option<TraceContext>,
) {
    let Some(id) = record.agent_session_id.clone() else {
        return;
    };
    let Some(spec) = context.catalogue.agent(&record.agent) else {
        return;
    };
    let known = context
        .pool
        .agent_stats(&record.agent, &owner.tenant)
        .and_then(|(_, initialized)| initialized);
    if known.is_some_and(|initialized| !initialized.capabilities.session.delete) {
        return;
    }
    let (context, owner, ours) = (context.clone(), owner.clone(), record.session_id);
    let shutdown = context.shutdown.clone();
    shutdown.clone().spawn_isolated(async move {
        let asked = async {
            let _alone = context.bounds.upstream_deletes.acquire().await;
            let mut visit = context.pool.short_lease(&spec, &owner, Priority::NoReclaim).await.ok()?;
            if visit.initialized().capabilities.session.delete {
                let params = acp::session_params(&id, trace.as_ref());
                visit.call(method::SESSION_DELETE, &params, context.limits.call_timeout).await.ok()?;
            }
            visit.release_untouched();
            Some(())
        };
        let deleted = tokio::select! {
            deleted = tokio::time::timeout(context.limits.upstream_delete_timeout, asked) => deleted.ok().flatten(),
            () = shutdown.drain_started() => None,
        };
        if deleted.is_none() {
            tracing::warn!(session = %ours, "could not delete the session at the agent; the agent may still have it");
        }
    });
}
