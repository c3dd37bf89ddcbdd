//! Closes or deletes all sessions that match a filter, one page at a time.

use tracing::Instrument;

use super::SessionRegistry;
use crate::acp::TraceContext;
use crate::api::{BulkResult, BulkResults};
use crate::session::error::{DeleteError, ListError, SessionError, ToProblem};
use crate::session::query::ListQuery;
use crate::types::{Principal, SessionId};

/// The number of sessions that are closed or deleted concurrently.
const CONCURRENCY: usize = 8;

/// The action on each session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    Close,
    Delete,
}

impl SessionRegistry {
    /// Applies the action to the sessions of one page. Each session has its own result. A session that
    /// changes meanwhile moves to the start of the list, so a pass from the first page to the last one
    /// terminates.
    pub async fn bulk(
        &self,
        by: &Principal,
        action: BulkAction,
        query: &ListQuery,
        trace: Option<TraceContext>,
    ) -> Result<BulkResults, ListError> {
        let page = self.list(by, query).await?;
        let mut results = Vec::with_capacity(page.sessions.len());
        for batch in page.sessions.chunks(CONCURRENCY) {
            let begin = |id: SessionId| {
                let (registry, by, trace) = (self.clone(), by.clone(), trace.clone());
                let ended = async move { registry.end(&by, action, id, trace).await };
                (
                    id,
                    self.context()
                        .shutdown
                        .spawn_isolated(ended.in_current_span()),
                )
            };
            let running: Vec<_> = batch
                .iter()
                .map(|session| begin(session.session_id))
                .collect();
            for (session_id, ended) in running {
                let problem = ended
                    .await
                    .map_err(DeleteError::from)
                    .flatten()
                    .map_err(|error| error.problem());
                let status = problem
                    .as_ref()
                    .map_or_else(|problem| problem.status, |status| *status);
                let problem = problem.err();
                results.push(BulkResult {
                    session_id,
                    status,
                    problem,
                });
            }
        }
        Ok(BulkResults {
            results,
            next_cursor: page.next_cursor,
        })
    }

    async fn end(
        &self,
        by: &Principal,
        action: BulkAction,
        id: SessionId,
        trace: Option<TraceContext>,
    ) -> Result<u16, DeleteError> {
        let session = match (self.open(by, id).await, action) {
            // Another client has deleted the session.
            (Err(SessionError::NoSuchSession), BulkAction::Delete) => return Ok(204),
            (session, _) => session?,
        };
        match action {
            BulkAction::Close => {
                session.close(by, trace).await?;
                Ok(200)
            }
            BulkAction::Delete => session
                .delete(by, None, trace)
                .await
                .map(|durable| if durable { 204 } else { 202 }),
        }
    }
}
