//! The terminals that the gateway runs for the agent (ACP, Terminals).
//!
//! A terminal belongs to the session and ends at the latest when the session releases its process. Its output and its exit
//! arrive as events.

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::acp::CreateTerminal;
use crate::session::record::{StoredExit, StoredTerminal, TerminalRecord};
use crate::types::{Limits, PromptId, TerminalId, Timestamp};
use crate::workspace::{
    AgentTerminals, ScrollbackBudget, StartError, StartedTerminal, TerminalEvent, TerminalRequest,
};

/// The terminals of the attached process.
#[derive(Debug)]
pub(in crate::session) struct Terminals(AgentTerminals<TerminalRecord>);

/// A started command that has no terminal id yet.
#[derive(Debug)]
pub(in crate::session) struct NewTerminal {
    started: StartedTerminal,
    asked: CreateTerminal,
    cwd: String,
}

impl Terminals {
    pub(in crate::session) fn new(
        events: mpsc::Sender<TerminalEvent>,
        budget: ScrollbackBudget,
    ) -> Self {
        Self(AgentTerminals::new(events, budget))
    }

    /// The number of terminals that the agent has not released or whose commands run.
    pub(super) fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether a terminal has this id. A released terminal has it until its command ends.
    pub(super) fn has(&self, id: &str) -> bool {
        self.0.has(id)
    }

    /// Whether a command runs.
    pub(super) fn is_busy(&self) -> bool {
        self.0.is_busy()
    }

    /// Whether a command runs whose process is alive.
    pub(super) fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Opens a started terminal. The caller completes its record. The returned future delivers its output and its exit
    /// as events.
    pub(super) fn open(
        &mut self,
        id: TerminalId,
        new: NewTerminal,
        prompt: Option<PromptId>,
        created_at: Timestamp,
        limits: &Limits,
    ) -> (&mut TerminalRecord, impl Future<Output = ()> + Send + use<>) {
        let NewTerminal {
            started,
            asked,
            cwd,
        } = new;
        let CreateTerminal {
            command,
            args,
            output_byte_limit,
            ..
        } = asked;
        let shown = StoredTerminal {
            terminal_id: id,
            prompt_id: prompt,
            command,
            args,
            cwd,
            created_at,
            exit_status: None,
        };
        let record = TerminalRecord {
            shown,
            first_seq: 0,
            last_seq: None,
        };
        self.0.open(
            (id, record),
            started,
            output_byte_limit,
            (limits, limits.max_terminal_log_bytes),
        )
    }

    /// The work for a request, or `None` if the agent has no such terminal.
    pub(super) fn serve(
        &mut self,
        id: &str,
        request: TerminalRequest,
    ) -> Option<impl Future<Output = Box<RawValue>> + Send + use<>> {
        self.0.serve(id, request)
    }

    /// The record of a terminal whose command runs.
    pub(super) fn running(&self, id: TerminalId) -> Option<&TerminalRecord> {
        self.0.running(id)
    }

    /// Ends a terminal and notifies the requests that wait for it. Returns its record with the exit status.
    pub(super) fn ended(&mut self, id: TerminalId, exit: StoredExit) -> Option<TerminalRecord> {
        let StoredExit { exit_code, signal } = exit.clone();
        self.0
            .ended(id, (exit_code, signal))
            .map(|record| with_exit(record, exit))
    }

    /// Ends the next running terminal, because the session releases its process. Call it until it returns `None`; then no
    /// terminal is left.
    pub(super) fn end_next(&mut self) -> Option<TerminalRecord> {
        let (record, signal) = self.0.end_next()?;
        Some(with_exit(
            record,
            StoredExit {
                exit_code: None,
                signal: Some(signal),
            },
        ))
    }

    /// Kills a command. The agent keeps its terminal.
    pub(super) fn kill(&mut self, id: TerminalId) {
        self.0.kill(id);
    }

    /// Kills the commands of a turn, or all commands. The agent keeps its terminals and can still read their output.
    /// Returns the ids.
    pub(super) fn kill_all(&mut self, of_turn: Option<PromptId>) -> Vec<TerminalId> {
        self.0
            .kill_all(|record| of_turn.is_none() || record.shown.prompt_id == of_turn)
    }
}

fn with_exit(mut record: TerminalRecord, exit: StoredExit) -> TerminalRecord {
    record.shown.exit_status = Some(exit);
    record
}

impl NewTerminal {
    /// The terminal after the start of its command, or the error for the agent.
    pub(in crate::session) fn new(
        started: Result<StartedTerminal, StartError>,
        asked: CreateTerminal,
        cwd: String,
    ) -> Result<Self, Box<RawValue>> {
        let started = started.map_err(|error| error.response())?;
        Ok(Self {
            started,
            asked,
            cwd,
        })
    }
}
