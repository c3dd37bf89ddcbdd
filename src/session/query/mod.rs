//! Reads that need no actor: the store and the log have the answer.
//!
//! `list`, `metadata` and `agent_sessions` find sessions of a tenant. `prompts`, `terminals` and `committed`
//! read one session. This module must not know the registry, the handles or the actors.

pub(super) mod agent_sessions;
mod committed;
pub(super) mod list;
mod metadata;
mod prompts;
mod terminals;

use super::context::Context;
use super::durable;
use super::error::SessionError;
use super::record::{self, SessionRecord};
use super::stored::read_record;
use crate::event::EventRef;
use crate::eventlog::SessionLog;
use crate::store::Table;
use crate::types::SessionId;

pub use list::{ListOrder, ListQuery};
pub use metadata::MetadataFilter;
pub use prompts::PromptRange;

/// Reads one session. Every result reflects only committed events.
#[derive(Debug, Clone, Copy)]
pub struct SessionQuery<'a> {
    context: &'a Context,
    log: &'a SessionLog,
}

impl<'a> SessionQuery<'a> {
    pub(super) fn new(context: &'a Context, log: &'a SessionLog) -> Self {
        Self { context, log }
    }

    fn id(self) -> SessionId {
        self.log.session()
    }

    pub(super) async fn record(self) -> Result<SessionRecord, SessionError> {
        let record =
            read_record(self.context, Table::Session, record::session_key(self.id())).await?;
        record.ok_or(SessionError::NoSuchSession)
    }

    /// Passes the events after `seq` and up to `last` to `fold`. Returns the sequence number of the last one, and the
    /// number of log bytes that were read.
    async fn fold_events(
        self,
        mut seq: u64,
        last: u64,
        mut fold: impl FnMut(&EventRef<'_>),
    ) -> Result<(u64, usize), SessionError> {
        let mut read = 0;
        while seq < last {
            let runs = self
                .log
                .read(seq, self.context.limits.store_page_bytes)
                .await?;
            let Some(end) = runs.last() else { break };
            seq = end.last_seq.min(last);
            read += runs.iter().map(|run| run.frames.len()).sum::<usize>();
            for run in runs.iter().filter_map(|run| run.through(last)) {
                run.events().for_each(|event| fold(&event));
            }
        }
        Ok((seq, read))
    }

    async fn wait_durable(self, seq: u64) -> Result<(), SessionError> {
        durable::wait(self.context, self.log, seq).await
    }
}

/// The numbers of a page, newest first: those up to `last` and before `before`.
fn newest_first(last: u32, before: Option<u32>) -> impl Iterator<Item = u32> {
    let newest = before.map_or(last, |before| before.saturating_sub(1).min(last));
    (1..=newest).rev()
}
