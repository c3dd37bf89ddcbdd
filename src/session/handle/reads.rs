//! Reads of a session that work while the disk is full, and reads of its terminals.

use super::SessionHandle;
use crate::api::{PendingRequest, Session, Terminal, TerminalList, TerminalWindow};
use crate::session::command::Command;
use crate::session::committed;
use crate::session::record::{self, SessionRecord, TerminalRecord};
use crate::session::refusal::Refusal;
use crate::session::stored::read_record;
use crate::store::Table;
use crate::transcript::OutputFold;
use crate::types::TerminalId;

impl SessionHandle {
    /// Waits for a commit. Returns false if the disk accepts no commits.
    pub(super) async fn wait_durable_or_full(&self, seq: u64) -> Result<bool, Refusal> {
        tokio::select! {
            biased;
            durable = self.wait_durable(seq) => durable.map(|()| true),
            durable = self.entry.log.wait_or_full(seq) => durable.map_err(|error| Refusal::internal(&error)),
        }
    }

    /// The current snapshot. While the disk accepts no commits: the snapshot as of the last commit.
    pub async fn snapshot(&self) -> Result<Session, Refusal> {
        let (session, seq) = self.request(|reply| Command::Snapshot { reply }).await?;
        if self.wait_durable_or_full(seq).await? {
            return Ok(session);
        }
        committed::session(self.registry.context(), &self.entry.log).await
    }

    /// The open requests of the agent. While the disk accepts no commits: those as of the last commit.
    pub async fn requests(&self) -> Result<Vec<PendingRequest>, Refusal> {
        let (requests, seq) = self.request(|reply| Command::Requests { reply }).await?;
        if self.wait_durable_or_full(seq).await? {
            return Ok(requests);
        }
        Ok(committed::session(self.registry.context(), &self.entry.log).await?.requests)
    }

    /// A page of terminals, newest first. `before` is the last terminal of the previous page.
    pub async fn terminals(&self, before: Option<TerminalId>, limit: usize) -> Result<TerminalList, Refusal> {
        let key = record::session_key(self.id);
        let record: Option<SessionRecord> = read_record(self.registry.context(), Table::Session, key).await?;
        let last = record.ok_or(Refusal::NoSuchSession)?.last_terminal;
        let newest = before.map_or(last, |before| before.number().saturating_sub(1).min(last));
        let (mut terminals, mut next_cursor) = (Vec::new(), None);
        for number in (1..=newest).rev() {
            if terminals.len() == limit {
                next_cursor = terminals.last().map(|terminal: &Terminal| terminal.terminal_id.to_string());
                break;
            }
            terminals.extend(
                self.terminal_record(TerminalId::new(number)).await?.map(|record| record.shown.into()),
            );
        }
        Ok(TerminalList { terminals, next_cursor })
    }

    async fn terminal_record(&self, terminal: TerminalId) -> Result<Option<TerminalRecord>, Refusal> {
        read_record(self.registry.context(), Table::Terminal, record::terminal_key(self.id, terminal)).await
    }

    /// A terminal with the tail of its output, as stored in the log.
    pub async fn terminal(&self, terminal: TerminalId) -> Result<TerminalWindow, Refusal> {
        let committed = self.entry.log.committed();
        let record = self.terminal_record(terminal).await?.ok_or(Refusal::NotFound("terminal"))?;
        let last = record.last_seq.unwrap_or(committed);
        self.wait_durable(last).await?;
        let limits = &self.registry.context().limits;
        let mut window = OutputFold::new(terminal, limits.default_terminal_bytes);
        let mut seq = record.first_seq;
        while seq < last {
            let runs = self.entry.log.read(seq, limits.store_page_bytes).await;
            let runs = runs.map_err(|error| Refusal::internal(&error))?;
            let Some(end) = runs.last().map(|run| run.last_seq) else { break };
            for run in runs.iter().filter_map(|run| run.through(last)) {
                for event in run.events() {
                    window.event(&event);
                }
            }
            seq = end.min(last);
        }
        let OutputFold { output, offset, .. } = window;
        let last_event_id = self.entry.log.id(last.max(record.first_seq));
        Ok(TerminalWindow {
            terminal: record.shown.into(),
            output,
            offset,
            truncated: offset > 0,
            last_event_id,
        })
    }
}
