//! `terminal/*` requests of agents: the gateway runs the commands (ACP, Terminals).
//!
//! A terminal belongs to the session and ends at the latest when the session releases its process. The actor
//! starts terminals and receives their output and exit as events; it never waits for them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::client_methods::WorkOutput;
use super::record::{StoredExit, StoredTerminal, TerminalRecord};
use super::refusal::Refusal;
use crate::acp::{self, CreateTerminal, RequestKind, error_code, method};
use crate::event::{EncodedEvent, TerminalCreated, TerminalExited, TerminalOutput};
use crate::eventlog::Records;
use crate::jsonrpc::IncomingId;
use crate::types::{PromptId, TerminalId};
use crate::workspace::{self, OutputEvent, Scrollback, StartError, StartedTerminal, TerminalEvent};

/// The signal of a killed command.
const KILL_SIGNAL: &str = "SIGKILL";

/// The terminals of the attached process.
#[derive(Debug)]
pub(super) struct Terminals {
    events: mpsc::Sender<TerminalEvent>,
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
pub(super) struct NewTerminal {
    started: StartedTerminal,
    asked: CreateTerminal,
    cwd: String,
}

impl Terminals {
    pub(super) fn new(news: mpsc::Sender<TerminalEvent>) -> Self {
        Self { events: news, open: BTreeMap::new() }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = TerminalId> {
        self.open.iter().filter(|(_, open)| open.is_running()).map(|(id, _)| *id)
    }

    /// Whether a command runs.
    pub(super) fn is_busy(&self) -> bool {
        self.running().next().is_some()
    }

    /// The terminal with this id, unless the agent has released it.
    fn find(&mut self, id: &str) -> Option<(TerminalId, &mut OpenTerminal)> {
        let id: TerminalId = id.parse().ok()?;
        self.open.get_mut(&id).filter(|open| !open.released).map(|open| (id, open))
    }
}

impl OpenTerminal {
    fn is_running(&self) -> bool {
        self.record.shown.exit_status.is_none()
    }
}

impl Actor {
    pub(super) fn serve_terminal(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        if method == method::TERMINAL_CREATE {
            return self.create_terminal(incoming, params);
        }
        let Ok(named) = acp::parse_terminal_id(params) else {
            return self.refuse(incoming, error_code::INVALID_PARAMS, "expected a terminalId");
        };
        let Some((id, open)) = self.terminals.find(&named) else {
            return self.send_answer(incoming, &Err(acp::resource_not_found(&named)));
        };
        let exit = open.exit.subscribe();
        match method {
            method::TERMINAL_OUTPUT => {
                let (scrollback, exit) = (open.terminal.scrollback(), exit.borrow().clone());
                self.serve(
                    incoming,
                    async move { WorkOutput::Answer(Ok(output(&scrollback, exit.as_ref()))) },
                );
            }
            method::TERMINAL_WAIT_FOR_EXIT => self.serve(incoming, async move {
                let exit = wait_exit(exit).await;
                WorkOutput::Answer(Ok(acp::wait_for_exit_result(exit.exit_code, exit.signal.as_deref())))
            }),
            method::TERMINAL_KILL | method::TERMINAL_RELEASE => {
                open.terminal.kill();
                if method == method::TERMINAL_RELEASE {
                    open.released = true;
                    if !open.is_running() {
                        self.terminals.open.remove(&id);
                    }
                }
                self.serve(incoming, async move {
                    wait_exit(exit).await;
                    WorkOutput::Answer(Ok(acp::empty_result()))
                });
            }
            _ => self.send_answer(incoming, &Err(acp::method_not_found(method))),
        }
    }

    fn create_terminal(&mut self, incoming: IncomingId, params: &RawValue) {
        let Ok(asked) = acp::parse_create_terminal(params) else {
            let detail = "expected a command, and args, env, cwd, outputByteLimit as in ACP";
            return self.refuse(incoming, error_code::INVALID_PARAMS, detail);
        };
        if self.is_at_terminal_limit() {
            return self.refuse_terminal(incoming);
        }
        let Some(lease) = &self.event_loop.lease else { return };
        let Some(terminals) = lease.process().terminals().cloned() else {
            let error = acp::method_not_found(acp::method::TERMINAL_CREATE);
            return self.send_answer(incoming, &Err(error));
        };
        let (workspaces, session) = (self.context.workspaces.clone(), PathBuf::from(&self.record.cwd));
        let additional: Vec<PathBuf> = self.record.additional_directories.iter().map(PathBuf::from).collect();
        let shutdown = self.context.shutdown.clone();
        self.serve_to_completion(incoming, async move {
            let wanted = asked.cwd.clone();
            let find = move || match wanted {
                Some(wanted) => workspaces.open(&session, &additional)?.real_directory(&wanted),
                None => Ok(session),
            };
            let cwd = match shutdown.spawn_blocking(find).await {
                Ok(Ok(cwd)) => cwd,
                Ok(Err(error)) => {
                    return terminal_error(error_code::INVALID_PARAMS, &format!("cwd: {error}"));
                }
                Err(_) => return terminal_error(error_code::INTERNAL, "the work was aborted"),
            };
            let shown = cwd.to_string_lossy().into_owned();
            match workspace::start_terminal(&terminals, workspace::terminal_spec(&asked, cwd)).await {
                Ok(started) => WorkOutput::Terminal(Box::new(Ok(NewTerminal { started, asked, cwd: shown }))),
                Err(StartError::InvalidSpec(detail)) => terminal_error(error_code::INVALID_PARAMS, &detail),
                Err(error @ StartError::Failed(_)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "could not start a terminal");
                    terminal_error(error_code::INTERNAL, &error.to_string())
                }
            }
        });
    }

    /// Assigns an id to the started terminal and appends its event.
    pub(super) fn terminal_started(
        &mut self,
        incoming: IncomingId,
        outcome: Result<NewTerminal, Box<RawValue>>,
    ) {
        let NewTerminal { started, asked, cwd } = match outcome {
            Ok(new) => new,
            Err(error) => return self.send_answer(incoming, &Err(error)),
        };
        if !matches!(self.attachment, Attachment::Attached) {
            // The session was detached while the command was being started.
            drop(started);
            return self.send_answer(incoming, &RequestKind::CreateTerminal.cancelled_reply());
        }
        if self.is_at_terminal_limit() {
            return self.refuse_terminal(incoming);
        }
        let limits = &self.context.limits;
        let limit = asked.output_byte_limit.map_or(limits.default_terminal_bytes, |wanted| {
            usize::try_from(wanted).unwrap_or(usize::MAX).min(limits.max_terminal_bytes)
        });
        let id = TerminalId::new(self.record.last_terminal + 1);
        self.record.last_terminal += 1;
        let scrollback = Scrollback::new(limit, self.context.scrollback_budget.clone());
        let news = self.terminals.events.clone();
        let (terminal, follower) = started.follow(id, scrollback, limits.max_terminal_log_bytes, news);
        self.context.shutdown.spawn_isolated(follower);
        let prompt = self.running_turn();
        let CreateTerminal { command, args, .. } = asked;
        let shown = StoredTerminal {
            terminal_id: id,
            prompt_id: prompt,
            command,
            args,
            cwd,
            created_at: self.context.ids.now(),
            exit_status: None,
        };
        let record = TerminalRecord { shown, first_seq: self.log.appended() + 1, last_seq: None };
        let mut records = Records::default();
        record.put(self.record.session_id, &mut records);
        let open = OpenTerminal { terminal, record, exit: watch::Sender::new(None), released: false };
        let open = self.terminals.open.entry(id).insert_entry(open).into_mut();
        let StoredTerminal { command, args, cwd, .. } = &open.record.shown;
        let event = EncodedEvent::from(&TerminalCreated { terminal_id: id, command, args, cwd });
        let records = self.with_session_records(records);
        self.append(prompt, event, records);
        self.send_answer(incoming, &Ok(acp::create_terminal_result(id)));
    }

    fn is_at_terminal_limit(&self) -> bool {
        self.terminals.open.len() >= self.context.limits.max_terminals
    }

    fn refuse_terminal(&self, incoming: IncomingId) {
        self.refuse(incoming, error_code::INTERNAL, "too many terminals are open; release some first");
    }

    pub(super) fn handle_terminal_event(
        &mut self,
        TerminalEvent { terminal: id, event: news }: TerminalEvent,
    ) {
        let Some(open) = self.terminals.open.get(&id).filter(|open| open.is_running()) else { return };
        match news {
            OutputEvent::Output { offset, text } => {
                let prompt = self.if_running(open.record.shown.prompt_id);
                let event = TerminalOutput { terminal_id: id, offset, data: &text };
                self.append(prompt, &event, Records::default());
            }
            OutputEvent::Exited(exit) => {
                self.terminal_ended(id, &StoredExit { exit_code: exit.code, signal: exit.signal });
            }
        }
    }

    /// The turn if it still runs. No event belongs to a turn after its end.
    fn if_running(&self, prompt: Option<PromptId>) -> Option<PromptId> {
        prompt.filter(|prompt| self.running_turn() == Some(*prompt))
    }

    /// Appends the only end of a terminal and notifies the requests that wait for it.
    fn terminal_ended(&mut self, id: TerminalId, exit: &StoredExit) {
        let seq = self.log.appended() + 1;
        let Some(open) = self.terminals.open.get_mut(&id) else { return };
        open.record.shown.exit_status = Some(exit.clone());
        open.record.last_seq = Some(seq);
        let mut records = Records::default();
        open.record.put(self.record.session_id, &mut records);
        let prompt = open.record.shown.prompt_id;
        open.exit.send_replace(Some(exit.clone()));
        if open.released {
            self.terminals.open.remove(&id);
        }
        let now = Instant::now();
        match &mut self.turn {
            // The agent continues now, so its silence is measured from here.
            Some(turn) => turn.last_activity = now,
            None => self.idle_since = now,
        }
        let prompt = self.if_running(prompt);
        let event =
            TerminalExited { terminal_id: id, exit_code: exit.exit_code, signal: exit.signal.as_deref() };
        let records = self.with_session_records(records);
        self.append(prompt, &event, records);
    }

    /// Ends all terminals, because the session releases its process.
    pub(super) fn end_terminals(&mut self) {
        let running: Vec<TerminalId> = self.terminals.running().collect();
        for id in running {
            self.terminal_ended(id, &StoredExit { exit_code: None, signal: Some(KILL_SIGNAL.to_owned()) });
        }
        self.terminals.open.clear();
    }

    /// Closes a terminal that a crash left open. Its exit status is unknown.
    pub(super) fn close_lost_terminal(&mut self, mut record: TerminalRecord) {
        let id = record.shown.terminal_id;
        record.shown.exit_status = Some(StoredExit { exit_code: None, signal: None });
        record.last_seq = Some(self.log.appended() + 1);
        let mut records = Records::default();
        record.put(self.record.session_id, &mut records);
        self.append(None, &TerminalExited { terminal_id: id, exit_code: None, signal: None }, records);
    }

    /// Kills a command for a client. The agent keeps its terminal.
    pub(super) fn kill_terminal(&mut self, id: TerminalId) -> Result<u64, Refusal> {
        if id.number() == 0 || id.number() > self.record.last_terminal {
            return Err(Refusal::NotFound("terminal"));
        }
        if let Some(open) = self.terminals.open.get_mut(&id) {
            open.terminal.kill();
        }
        Ok(self.log.appended())
    }

    /// Kills the commands of a cancelled turn. The agent keeps its terminals and can still read their output.
    pub(super) fn kill_commands(&mut self, prompt: PromptId) {
        let of_turn =
            |open: &&mut OpenTerminal| open.is_running() && open.record.shown.prompt_id == Some(prompt);
        for open in self.terminals.open.values_mut().filter(of_turn) {
            open.terminal.kill();
        }
    }

    /// The deadline of commands that outlive their turn.
    pub(super) fn terminal_deadline(&self) -> Option<Instant> {
        let held = self.terminals.open.values().any(|open| open.is_running() && open.terminal.is_alive());
        (held && self.turn.is_none()).then(|| self.idle_since + self.context.limits.terminal_idle_timeout)
    }

    pub(super) fn check_terminal_deadline(&mut self, now: Instant) {
        if self.terminal_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        for open in self.terminals.open.values_mut().filter(|open| open.is_running()) {
            tracing::info!(terminal = %open.record.shown.terminal_id, "killing a terminal that outlived its turn");
            open.terminal.kill();
        }
    }
}

fn terminal_error(code: i64, detail: &str) -> WorkOutput {
    WorkOutput::Terminal(Box::new(Err(acp::error(code, detail))))
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
