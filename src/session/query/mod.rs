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
use super::record::{self, SessionRecord};
use super::refusal::Refusal;
use super::stored::read_record;
use crate::eventlog::SessionLog;
use crate::store::{Run, Table};
use crate::types::SessionId;

pub use list::ListQuery;
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

    pub(super) async fn record(self) -> Result<SessionRecord, Refusal> {
        let record = read_record(self.context, Table::Session, record::session_key(self.id())).await?;
        record.ok_or(Refusal::NoSuchSession)
    }

    /// A page of the log after `seq`.
    async fn read(self, seq: u64) -> Result<Vec<Run>, Refusal> {
        let runs = self.log.read(seq, self.context.limits.store_page_bytes).await;
        runs.map_err(|error| Refusal::internal(&error))
    }

    async fn wait_durable(self, seq: u64) -> Result<(), Refusal> {
        durable::wait(self.context, self.log, seq).await
    }
}
