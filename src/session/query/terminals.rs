//! Terminals of a session, with their output from the log.

use super::{SessionQuery, newest_first};
use crate::api::{Terminal, TerminalList, TerminalWindow};
use crate::session::error::SessionError;
use crate::session::record::{self, TerminalRecord};
use crate::session::stored::read_record;
use crate::store::Table;
use crate::transcript::OutputFold;
use crate::types::TerminalId;

impl SessionQuery<'_> {
    /// A page of terminals, newest first. `before` is the last terminal of the previous page.
    pub async fn terminals(
        self,
        before: Option<TerminalId>,
        limit: usize,
    ) -> Result<TerminalList, SessionError> {
        let (mut terminals, mut next_cursor) = (Vec::new(), None);
        for number in newest_first(
            self.record().await?.last_terminal,
            before.map(TerminalId::number),
        ) {
            if terminals.len() == limit {
                next_cursor = terminals
                    .last()
                    .map(|terminal: &Terminal| terminal.terminal_id.to_string());
                break;
            }
            let record = self.terminal_record(TerminalId::new(number)).await?;
            terminals.extend(record.map(|record| Terminal::from(record.shown)));
        }
        Ok(TerminalList {
            terminals,
            next_cursor,
        })
    }

    async fn terminal_record(
        self,
        terminal: TerminalId,
    ) -> Result<Option<TerminalRecord>, SessionError> {
        read_record(
            self.context,
            Table::Terminal,
            record::numbered_key(self.id(), terminal.number()),
        )
        .await
    }

    /// A terminal with the tail of its output, as stored in the log. `None` if there is no such terminal.
    pub async fn terminal(
        self,
        terminal: TerminalId,
    ) -> Result<Option<TerminalWindow>, SessionError> {
        let committed = self.log.committed();
        let Some(record) = self.terminal_record(terminal).await? else {
            return Ok(None);
        };
        let last = record.last_seq.unwrap_or(committed);
        self.wait_durable(last).await?;
        let mut window = OutputFold::new(terminal, self.context.limits.default_terminal_bytes);
        self.fold_events(record.first_seq, last, |event| window.event(event))
            .await?;
        let OutputFold { output, offset, .. } = window;
        let last_event_id = self.log.id(last.max(record.first_seq));
        Ok(Some(TerminalWindow {
            terminal: record.shown.into(),
            output,
            offset,
            truncated: offset > 0,
            last_event_id,
        }))
    }
}
