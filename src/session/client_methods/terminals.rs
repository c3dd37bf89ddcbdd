//! The terminals that the gateway runs for the agent (ACP, Terminals).
//!
//! A terminal belongs to the session and ends at the latest when the session releases its process. Its output and its exit
//! arrive as events.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use crate::acp::{self, CreateTerminal, error_code};
use crate::session::record::{StoredExit, StoredTerminal, TerminalRecord};
use crate::types::{Limits, PromptId, TerminalId, Timestamp};
use crate::workspace::{self, Scrollback, ScrollbackBudget, StartError, StartedTerminal, TerminalEvent};

/// The signal of a killed command.
const KILL_SIGNAL: &str = "SIGKILL";

/// The terminals of the attached process.
#[derive(Debug)]
pub(in crate::session) struct Terminals {
    events: mpsc::Sender<TerminalEvent>,
    /// The memory limit for the output of all terminals of all sessions.
    budget: ScrollbackBudget,
    open: BTreeMap<TerminalId, OpenTerminal>,
}

/// A terminal whose command runs or that the agent has not released.
#[derive(Debug)]
struct OpenTerminal {
    terminal: workspace::Terminal,
    record: TerminalRecord,
    /// Notifies the requests that wait for the exit.
    exit: watch::Sender<Option<StoredExit>>,
    /// Whether the agent has released the terminal. It is removed when its command ends.
    released: bool,
}

/// A started command that has no terminal id yet.
#[derive(Debug)]
pub(in crate::session) struct NewTerminal {
    started: StartedTerminal,
    asked: CreateTerminal,
    cwd: String,
}

/// A request of the agent for one of its terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum TerminalRequest {
    Output,
    WaitForExit,
    Kill,
    Release,
}

impl Terminals {
    pub(in crate::session) fn new(events: mpsc::Sender<TerminalEvent>, budget: ScrollbackBudget) -> Self {
        Self { events, budget, open: BTreeMap::new() }
    }

    /// The number of terminals that the agent has not released or whose commands run.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a terminal has this id. A released terminal has it until its command ends.
    pub(super) fn has(&self, id: &str) -> bool {
        id.parse().is_ok_and(|id: TerminalId| self.open.contains_key(&id))
    }

    /// Whether a command runs.
    pub(super) fn is_busy(&self) -> bool {
        self.open.values().any(OpenTerminal::is_running)
    }

    /// Whether a command runs whose process is alive.
    pub(super) fn is_alive(&self) -> bool {
        self.open.values().any(|open| open.is_running() && open.terminal.is_alive())
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
        let NewTerminal { started, asked, cwd } = new;
        let CreateTerminal { command, args, output_byte_limit, .. } = asked;
        let bytes = output_byte_limit.map_or(limits.default_terminal_bytes, |requested| {
            usize::try_from(requested).unwrap_or(usize::MAX).min(limits.max_terminal_bytes)
        });
        let scrollback = Scrollback::new(bytes, self.budget.clone());
        let max_logged = limits.max_terminal_log_bytes;
        let (terminal, follower) = started.follow(id, scrollback, max_logged, self.events.clone());
        let shown = StoredTerminal {
            terminal_id: id,
            prompt_id: prompt,
            command,
            args,
            cwd,
            created_at,
            exit_status: None,
        };
        let record = TerminalRecord { shown, first_seq: 0, last_seq: None };
        let open = OpenTerminal { terminal, record, exit: watch::Sender::new(None), released: false };
        (&mut self.open.entry(id).or_insert(open).record, follower)
    }

    /// The work for a request, or `None` if the agent has no such terminal.
    pub(super) fn serve(
        &mut self,
        id: &str,
        request: TerminalRequest,
    ) -> Option<impl Future<Output = Box<RawValue>> + Send + use<>> {
        let id: TerminalId = id.parse().ok()?;
        let open = self.open.get_mut(&id).filter(|open| !open.released)?;
        let (exit, scrollback) = (open.exit.subscribe(), open.terminal.scrollback());
        if matches!(request, TerminalRequest::Kill | TerminalRequest::Release) {
            open.terminal.kill();
        }
        if request == TerminalRequest::Release {
            open.released = true;
            if !open.is_running() {
                self.open.remove(&id);
            }
        }
        Some(async move {
            match request {
                TerminalRequest::Output => output(&scrollback, exit.borrow().as_ref()),
                TerminalRequest::WaitForExit => {
                    let exit = wait_exit(exit).await;
                    acp::wait_for_exit_result(exit.exit_code, exit.signal.as_deref())
                }
                TerminalRequest::Kill | TerminalRequest::Release => {
                    wait_exit(exit).await;
                    acp::empty_result()
                }
            }
        })
    }

    /// The record of a terminal whose command runs.
    pub(super) fn running(&self, id: TerminalId) -> Option<&TerminalRecord> {
        self.open.get(&id).filter(|open| open.is_running()).map(|open| &open.record)
    }

    /// Ends a terminal and notifies the requests that wait for it. Returns its record with the exit status.
    pub(super) fn ended(&mut self, id: TerminalId, exit: StoredExit) -> Option<TerminalRecord> {
        let open = self.open.get_mut(&id).filter(|open| open.is_running())?;
        open.exit.send_replace(Some(exit.clone()));
        open.record.shown.exit_status = Some(exit);
        let record = open.record.clone();
        if open.released {
            self.open.remove(&id);
        }
        Some(record)
    }

    /// Ends the next running terminal, because the session releases its process. Call it until it returns `None`; then no
    /// terminal is left.
    pub(super) fn end_next(&mut self) -> Option<TerminalRecord> {
        let running = self.open.iter().find(|(_, open)| open.is_running()).map(|(id, _)| *id);
        let Some(id) = running else {
            self.open.clear();
            return None;
        };
        self.ended(id, StoredExit { exit_code: None, signal: Some(KILL_SIGNAL.to_owned()) })
    }

    /// Kills a command. The agent keeps its terminal.
    pub(super) fn kill(&mut self, id: TerminalId) {
        if let Some(open) = self.open.get_mut(&id) {
            open.terminal.kill();
        }
    }

    /// Kills the commands of a turn, or all commands. The agent keeps its terminals and can still read their output.
    /// Returns the ids.
    pub(super) fn kill_all(&mut self, of_turn: Option<PromptId>) -> Vec<TerminalId> {
        let mut killed = Vec::new();
        for (id, open) in &mut self.open {
            if open.is_running() && (of_turn.is_none() || open.record.shown.prompt_id == of_turn) {
                open.terminal.kill();
                killed.push(*id);
            }
        }
        killed
    }
}

impl OpenTerminal {
    fn is_running(&self) -> bool {
        self.record.shown.exit_status.is_none()
    }
}

impl NewTerminal {
    /// The terminal after the start of its command, or the error for the agent.
    pub(in crate::session) fn new(
        started: Result<StartedTerminal, StartError>,
        asked: CreateTerminal,
        cwd: String,
    ) -> Result<Self, Box<RawValue>> {
        match started {
            Ok(started) => Ok(Self { started, asked, cwd }),
            Err(StartError::InvalidSpec(detail)) => Err(acp::error(error_code::INVALID_PARAMS, &detail)),
            Err(error @ StartError::Failed(_)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "could not start a terminal");
                Err(acp::error(error_code::INTERNAL, &error.to_string()))
            }
        }
    }
}

fn output(scrollback: &Scrollback, exit: Option<&StoredExit>) -> Box<RawValue> {
    let (text, truncated) = scrollback.snapshot();
    acp::terminal_output_result(&text, truncated, exit.map(|exit| (exit.exit_code, exit.signal.as_deref())))
}

/// Waits for the exit of a terminal. The actor always reports it.
async fn wait_exit(mut exit: watch::Receiver<Option<StoredExit>>) -> StoredExit {
    let exit = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
    exit.unwrap_or(StoredExit { exit_code: None, signal: None })
}
