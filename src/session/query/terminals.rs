//! Terminals of a session, with their output from the log.

use super::SessionQuery;
use crate::api::{Terminal, TerminalList, TerminalWindow};
use crate::session::record::{self, TerminalRecord};
use crate::session::refusal::Refusal;
use crate::session::stored::read_record;
use crate::store::Table;
use crate::transcript::OutputFold;
use crate::types::TerminalId;

impl SessionQuery<'_> {
    /// A page of terminals, newest first. `before` is the last terminal of the previous page.
    pub async fn terminals(self, before: Option<TerminalId>, limit: usize) -> Result<TerminalList, Refusal> {
        let last = self.record().await?.last_terminal;
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

    async fn terminal_record(self, terminal: TerminalId) -> Result<Option<TerminalRecord>, Refusal> {
        read_record(self.context, Table::Terminal, record::terminal_key(self.id(), terminal)).await
    }

    /// A terminal with the tail of its output, as stored in the log.
    pub async fn terminal(self, terminal: TerminalId) -> Result<TerminalWindow, Refusal> {
        let committed = self.log.committed();
        let record = self.terminal_record(terminal).await?.ok_or(Refusal::NotFound("terminal"))?;
        let last = record.last_seq.unwrap_or(committed);
        self.wait_durable(last).await?;
        let mut window = OutputFold::new(terminal, self.context.limits.default_terminal_bytes);
        let mut seq = record.first_seq;
        while seq < last {
            let runs = self.read(seq).await?;
            let Some(end) = runs.last().map(|run| run.last_seq) else { break };
            for run in runs.iter().filter_map(|run| run.through(last)) {
                for event in run.events() {
                    window.event(&event);
                }
            }
            seq = end.min(last);
        }
        let OutputFold { output, offset, .. } = window;
        let last_event_id = self.log.id(last.max(record.first_seq));
        Ok(TerminalWindow {
            terminal: record.shown.into(),
            output,
            offset,
            truncated: offset > 0,
            last_event_id,
        })
    }
}
