//! `terminal/*` requests of an agent (ACP, Terminals): its terminals, and their output for the agent.
//!
//! The output and the exit of a terminal arrive as events at the owner, which passes the exit to
//! [`AgentTerminals::ended`].

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use super::scrollback::{Scrollback, ScrollbackBudget};
use super::terminal::{StartedTerminal, Terminal, TerminalEvent};
use base::types::TerminalId;
use children::Exit;
use wire::acp::{self, method};

const KILL_SIGNAL: &str = "SIGKILL";
/// The number of bytes of a terminal's output that the gateway keeps: the default, and the maximum that an agent may
/// request. Beyond it, the oldest output is discarded.
pub const DEFAULT_TERMINAL_BYTES: usize = 1 << 20;
const MAX_TERMINAL_BYTES: usize = 4 << 20;

/// The terminals of one agent process. `R`: the record of the owner for each of them.
#[derive(Debug)]
pub struct AgentTerminals<R> {
    events: mpsc::Sender<TerminalEvent>,
    /// The memory limit for the output of all terminals that share it.
    budget: ScrollbackBudget,
    open: BTreeMap<TerminalId, OpenTerminal<R>>,
}

/// A terminal whose command runs or that the agent has not released.
#[derive(Debug)]
struct OpenTerminal<R> {
    terminal: Terminal,
    record: R,
    /// Notifies the requests that wait for the exit. `Some` after the end of the command.
    exit: watch::Sender<Option<Exit>>,
    /// Whether the agent has released the terminal. It is removed when its command ends.
    released: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalRequest {
    Output,
    WaitForExit,
    Kill,
    Release,
}

impl TerminalRequest {
    pub fn from_method(method: &str) -> Option<Self> {
        Some(match method {
            method::TERMINAL_OUTPUT => Self::Output,
            method::TERMINAL_WAIT_FOR_EXIT => Self::WaitForExit,
            method::TERMINAL_KILL => Self::Kill,
            method::TERMINAL_RELEASE => Self::Release,
            _ => return None,
        })
    }
}

impl<R> AgentTerminals<R> {
    pub fn new(events: mpsc::Sender<TerminalEvent>, budget: ScrollbackBudget) -> Self {
        Self {
            events,
            budget,
            open: BTreeMap::new(),
        }
    }

    /// The number of terminals that the agent has not released or whose commands run.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether a terminal has this id. A released terminal has it until its command ends.
    pub fn has(&self, id: &str) -> bool {
        let id = id.parse::<TerminalId>();
        id.is_ok_and(|id| self.open.contains_key(&id))
    }
    pub fn is_busy(&self) -> bool {
        self.open.values().any(OpenTerminal::is_running)
    }
    /// Whether a command runs whose process is alive.
    pub fn is_alive(&self) -> bool {
        let mut open = self.open.values();
        open.any(|open| open.is_running() && open.terminal.is_alive())
    }

    /// Opens a started terminal. `kept`: the number of bytes of output that the agent requests. `max_logged`: the number of
    /// bytes of output in events. The returned future delivers its output and its exit as events.
    pub fn open(
        &mut self,
        id: TerminalId,
        record: R,
        started: StartedTerminal,
        kept: Option<u64>,
        max_logged: u64,
    ) -> (&mut R, impl Future<Output = ()> + Send + use<R>) {
        let bytes = kept.map_or(DEFAULT_TERMINAL_BYTES, |kept| {
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            kept.min(MAX_TERMINAL_BYTES)
        });
        let scrollback = Scrollback::new(bytes, self.budget.clone());
        let (terminal, follower) = started.follow(id, scrollback, max_logged, self.events.clone());
        let open = OpenTerminal {
            terminal,
            record,
            exit: watch::Sender::new(None),
            released: false,
        };
        (&mut self.open.entry(id).or_insert(open).record, follower)
    }

    /// The work for a request, or `None` if the agent has no such terminal.
    pub fn serve(
        &mut self,
        id: &str,
        request: TerminalRequest,
    ) -> Option<impl Future<Output = Box<RawValue>> + Send + use<R>> {
        let id: TerminalId = id.parse().ok()?;
        let open = self.open.get_mut(&id).filter(|open| !open.released)?;
        let exit = open.exit.subscribe();
        let scrollback = open.terminal.scrollback();
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
                    acp::wait_for_exit_result(exit.code, exit.signal.as_deref())
                }
                TerminalRequest::Kill | TerminalRequest::Release => {
                    wait_exit(exit).await;
                    acp::empty_result()
                }
            }
        })
    }

    /// The record of a terminal whose command runs.
    pub fn running(&self, id: TerminalId) -> Option<&R> {
        let open = self.open.get(&id).filter(|open| open.is_running())?;
        Some(&open.record)
    }

    /// Kills a command. The agent keeps its terminal.
    pub fn kill(&mut self, id: TerminalId) {
        if let Some(open) = self.open.get_mut(&id) {
            open.terminal.kill();
        }
    }

    /// Kills the running commands whose records satisfy the condition. The agent keeps its terminals and can still read
    /// their output. Returns the ids.
    pub fn kill_all(&mut self, condition: impl Fn(&R) -> bool) -> Vec<TerminalId> {
        let mut killed = Vec::new();
        for (id, open) in &mut self.open {
            if open.is_running() && condition(&open.record) {
                open.terminal.kill();
                killed.push(*id);
            }
        }
        killed
    }
}

impl<R: Clone> AgentTerminals<R> {
    /// Ends a terminal, and notifies the requests that wait for it. Returns its record.
    pub fn ended(&mut self, id: TerminalId, exit: Exit) -> Option<R> {
        let open = self.open.get_mut(&id).filter(|open| open.is_running())?;
        open.exit.send_replace(Some(exit));
        let record = open.record.clone();
        if open.released {
            self.open.remove(&id);
        }
        Some(record)
    }

    /// Ends the next running terminal, because the process is released. Returns its record and its signal. Call it until it
    /// returns `None`; then no terminal is left.
    pub fn end_next(&mut self) -> Option<(R, String)> {
        let mut open = self.open.iter();
        let Some((&id, _)) = open.find(|(_, open)| open.is_running()) else {
            self.open.clear();
            return None;
        };
        let signal = KILL_SIGNAL.to_owned();
        let killed = Exit {
            code: None,
            signal: Some(signal.clone()),
        };
        let record = self.ended(id, killed)?;
        Some((record, signal))
    }
}

impl<R> OpenTerminal<R> {
    fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }
}

fn output(scrollback: &Scrollback, exit: Option<&Exit>) -> Box<RawValue> {
    let (text, truncated) = scrollback.snapshot();
    let exit = exit.map(|exit| (exit.code, exit.signal.as_deref()));
    acp::terminal_output_result(&text, truncated, exit)
}

/// Waits for the exit of a terminal. The owner always reports it.
async fn wait_exit(mut exit: watch::Receiver<Option<Exit>>) -> Exit {
    let exit = exit.wait_for(Option::is_some).await;
    let exit = exit.ok().and_then(|exit| exit.clone());
    exit.unwrap_or_default()
}
