//! Requests of the agent that the gateway serves: files and terminals (ACP, File System, Terminals).

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::acp::{self, RequestKind, error_code, method};
use crate::event::{TerminalCreated, TerminalExited, TerminalOutput};
use crate::jsonrpc::IncomingId;
use crate::session::client_methods::files::{FileAccess, work_aborted};
use crate::session::client_methods::terminals::{
    EndedTerminal, Folders, NewTerminal, OutputLimits, TerminalRequest,
};
use crate::session::client_methods::{Completion, FilePermits, WorkOutput};
use crate::session::record::StoredExit;
use crate::session::refusal::Refusal;
use crate::types::{PromptId, TerminalId};
use crate::workspace::{self, OutputEvent, TerminalEvent};

impl Actor {
    /// Runs `work` outside of the actor and sends its output to the agent. The work is dropped if the agent
    /// cancels its request or the session releases the process.
    fn serve(&mut self, incoming: IncomingId, work: impl Future<Output = WorkOutput> + Send + 'static) {
        let max = self.context.limits.max_pending_requests;
        let Some((completer, cancelled)) = self.client_methods.begin(incoming, max) else {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are in progress");
        };
        self.context.shutdown.spawn_isolated(async move {
            if let Some(output) = cancelled.run_until_cancelled_owned(work).await {
                completer.complete(output).await;
            }
        });
    }

    /// Runs `work` to its end, because the actor needs its output.
    pub(super) fn serve_to_completion(
        &mut self,
        incoming: IncomingId,
        work: impl Future<Output = WorkOutput> + Send + 'static,
    ) {
        let max = self.context.limits.max_pending_requests;
        let Some(completer) = self.client_methods.begin_uncancellable(incoming, max) else {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are in progress");
        };
        self.context.shutdown.spawn_isolated(async move { completer.complete(work.await).await });
    }

    pub(super) fn request_completed(&mut self, completion: Completion) {
        let Some((incoming, output)) = self.client_methods.completed(completion) else { return };
        self.turns.note_activity(Instant::now());
        match output {
            WorkOutput::Answer(outcome) => self.link.answer(incoming, &outcome),
            WorkOutput::File(outcome, permit) => self.link.answer_with_guard(incoming, &outcome, permit),
            WorkOutput::Elicitation(elicitation) => self.offer_elicitation(incoming, elicitation),
            WorkOutput::Terminal(outcome) => self.terminal_started(incoming, *outcome),
        }
    }

    fn additional_folders(&self) -> Vec<PathBuf> {
        self.journal.record().additional_directories.iter().map(PathBuf::from).collect()
    }

    /// Reads or writes a file for the agent. The caller has checked the session of the request.
    pub(super) fn serve_file(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let access = FileAccess {
            workspaces: self.context.workspaces.clone(),
            cwd: PathBuf::from(&self.journal.record().cwd),
            additional: self.additional_folders(),
            max_bytes: self.context.limits.max_file_bytes,
        };
        let Some(FilePermits { answers, params: held }) = self.client_methods.file_permits(params) else {
            return self.refuse(incoming, error_code::INTERNAL, "too many bytes are waiting to be written");
        };
        let (method, params) = (method.to_owned(), params.to_owned());
        let shutdown = self.context.shutdown.clone();
        self.serve(incoming, async move {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&answers).acquire_owned().await else {
                return WorkOutput::Answer(Err(work_aborted()));
            };
            // The work continues after a cancellation and holds its permit until it ends.
            let work = shutdown.spawn_blocking(move || {
                let outcome = access.serve(&method, &params);
                drop((params, held));
                WorkOutput::File(outcome, permit)
            });
            work.await.unwrap_or_else(|_| WorkOutput::Answer(Err(work_aborted())))
        });
    }

    pub(super) fn serve_terminal(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let request = match method {
            method::TERMINAL_CREATE => return self.create_terminal(incoming, params),
            method::TERMINAL_OUTPUT => TerminalRequest::Output,
            method::TERMINAL_WAIT_FOR_EXIT => TerminalRequest::WaitForExit,
            method::TERMINAL_KILL => TerminalRequest::Kill,
            method::TERMINAL_RELEASE => TerminalRequest::Release,
            _ => return self.link.answer(incoming, &Err(acp::method_not_found(method))),
        };
        let Ok(acp::TerminalParams { terminal_id: named }) = acp::parse(params) else {
            return self.refuse(incoming, error_code::INVALID_PARAMS, "expected a terminalId");
        };
        match self.client_methods.terminals.serve(&named, request) {
            Some(work) => self.serve(incoming, async { WorkOutput::Answer(work.await) }),
            None => self.link.answer(incoming, &Err(acp::resource_not_found(&named))),
        }
    }

    fn create_terminal(&mut self, incoming: IncomingId, params: &RawValue) {
        let Ok(asked) = acp::parse::<acp::CreateTerminal>(params) else {
            let detail = "expected a command, and args, env, cwd, outputByteLimit as in ACP";
            return self.refuse(incoming, error_code::INVALID_PARAMS, detail);
        };
        if self.is_at_terminal_limit() {
            return self.refuse_terminal(incoming);
        }
        let Some(process) = self.link.process() else { return };
        let Some(terminals) = process.terminals().cloned() else {
            return self.refuse_method(incoming, method::TERMINAL_CREATE);
        };
        let folders = Folders {
            workspaces: self.context.workspaces.clone(),
            cwd: PathBuf::from(&self.journal.record().cwd),
            additional: self.additional_folders(),
        };
        let shutdown = self.context.shutdown.clone();
        self.serve_to_completion(incoming, async move {
            let cwd = match folders.resolve(&asked, &shutdown).await {
                Ok(cwd) => cwd,
                Err(error) => return WorkOutput::Terminal(Box::new(Err(error))),
            };
            let shown = cwd.to_string_lossy().into_owned();
            let started = workspace::start_terminal(&terminals, &asked, cwd).await;
            WorkOutput::Terminal(Box::new(NewTerminal::new(started, asked, shown)))
        });
    }

    /// Assigns an id to the started terminal and appends its event.
    fn terminal_started(&mut self, incoming: IncomingId, outcome: Result<NewTerminal, Box<RawValue>>) {
        let new = match outcome {
            Ok(new) => new,
            Err(error) => return self.link.answer(incoming, &Err(error)),
        };
        if !self.attachment.is_attached() {
            // The session was detached while the command was being started.
            drop(new);
            return self.link.answer(incoming, &RequestKind::CreateTerminal.cancelled_reply());
        }
        if self.is_at_terminal_limit() {
            return self.refuse_terminal(incoming);
        }
        let limits = &self.context.limits;
        let output_limits = OutputLimits {
            default: limits.default_terminal_bytes,
            max: limits.max_terminal_bytes,
            max_logged: limits.max_terminal_log_bytes,
            budget: self.context.bounds.scrollback_budget.clone(),
        };
        let (id, prompt, now) = (self.journal.next_terminal(), self.turns.sent(), self.context.ids.now());
        let (mut record, follower) = self.client_methods.terminals.open(id, new, prompt, now, output_limits);
        self.context.shutdown.spawn_isolated(follower);
        let shown = record.shown.clone();
        let event =
            TerminalCreated { terminal_id: id, command: &shown.command, args: &shown.args, cwd: &shown.cwd };
        let seq = self.journal.append_with(prompt, &event, |seq, change| {
            record.first_seq = seq;
            change.open_terminal(&record);
        });
        self.client_methods.terminals.created_at(id, seq);
        self.link.answer(incoming, &Ok(acp::create_terminal_result(id)));
    }

    fn is_at_terminal_limit(&self) -> bool {
        self.client_methods.terminals.len() >= self.context.limits.max_terminals
    }

    fn refuse_terminal(&self, incoming: IncomingId) {
        self.refuse(incoming, error_code::INTERNAL, "too many terminals are open; release some first");
    }

    pub(super) fn handle_terminal_event(&mut self, TerminalEvent { terminal: id, event }: TerminalEvent) {
        match event {
            OutputEvent::Output { offset, text } if self.client_methods.terminals.is_running(id) => {
                let prompt = self.if_sent(self.client_methods.terminals.turn_of(id));
                self.journal.append(prompt, &TerminalOutput { terminal_id: id, offset, data: &text });
            }
            // The end of the terminal is in the log.
            OutputEvent::Output { .. } => {}
            OutputEvent::Exited(exit) => {
                let exit = StoredExit { exit_code: exit.code, signal: exit.signal };
                if let Some(ended) = self.client_methods.terminals.ended(id, exit) {
                    self.terminal_ended(ended);
                }
            }
        }
    }

    /// The turn if it still runs. No event belongs to a turn after its end.
    fn if_sent(&self, prompt: Option<PromptId>) -> Option<PromptId> {
        prompt.filter(|prompt| self.turns.is_sent(*prompt))
    }

    /// Appends the only end of a terminal.
    fn terminal_ended(&mut self, EndedTerminal { mut record, exit }: EndedTerminal) {
        let now = Instant::now();
        if self.turns.running().is_some() {
            self.turns.note_activity(now);
        } else {
            self.attachment.touch(now);
        }
        let (terminal_id, signal) = (record.shown.terminal_id, exit.signal.as_deref());
        let event = TerminalExited { terminal_id, exit_code: exit.exit_code, signal };
        let prompt = self.if_sent(record.shown.prompt_id);
        self.journal.append_with(prompt, &event, |seq, change| {
            record.last_seq = Some(seq);
            change.close_terminal(&record);
        });
    }

    /// Ends all terminals, because the session releases its process.
    pub(super) fn end_terminals(&mut self) {
        while let Some(ended) = self.client_methods.terminals.end_next() {
            self.terminal_ended(ended);
        }
    }

    /// Kills a command for a client. The agent keeps its terminal.
    pub(super) fn kill_terminal(&mut self, id: TerminalId) -> Result<u64, Refusal> {
        if id.number() == 0 || id.number() > self.journal.record().last_terminal {
            return Err(Refusal::NotFound("terminal"));
        }
        self.client_methods.terminals.kill(id);
        Ok(self.journal.appended())
    }

    /// The deadline of commands that outlive their turn.
    pub(super) fn terminal_deadline(&self) -> Option<Instant> {
        let outlives = self.turns.running().is_none() && self.client_methods.terminals.is_alive();
        outlives.then(|| self.attachment.idle_since() + self.context.limits.terminal_idle_timeout)
    }

    pub(super) fn check_terminal_deadline(&mut self, now: Instant) {
        if self.terminal_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        for terminal in self.client_methods.terminals.kill_all(None) {
            tracing::info!(%terminal, "killing a terminal that outlived its turn");
        }
    }
}
