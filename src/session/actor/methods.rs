//! Requests of the agent that the gateway serves: files and terminals (ACP, File System, Terminals).

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use super::requests::{HandlerResult, invalid, rejected};
use crate::acp::{self, RequestKind, error_code, method};
use crate::event::{EncodedEvent, TerminalCreated, TerminalExited, TerminalOutput};
use crate::jsonrpc::IncomingId;
use crate::session::client_methods::files::{Folders, Refusals, work_aborted};
use crate::session::client_methods::terminals::NewTerminal;
use crate::session::client_methods::{Completion, FilePermits, WorkOutcome, WorkOutput};
use crate::session::error::{NotFound, PartError};
use crate::session::record::{StoredExit, StoredTerminal, TerminalRecord};
use crate::types::{PromptId, TerminalId};
use crate::workspace::{self, OutputEvent, TerminalEvent, TerminalRequest};

impl Actor {
    /// Runs `work` outside of the actor. Work that is `cancellable` is dropped if the agent cancels its request or the
    /// session releases the process. Other work runs to its end, because the actor needs its output.
    pub(super) fn serve(
        &mut self,
        incoming: IncomingId,
        cancellable: bool,
        work: impl Future<Output = WorkOutcome> + Send + 'static,
    ) -> HandlerResult {
        let begun = self.client_methods.begin(
            incoming,
            cancellable,
            self.context.limits.max_pending_requests,
        );
        let Some((completer, cancelled)) = begun else {
            return Err(rejected(
                error_code::INTERNAL,
                "too many requests are in progress",
            ));
        };
        self.context.shutdown.spawn_isolated(async move {
            if let Some(outcome) = cancelled.run_until_cancelled_owned(work).await {
                completer.complete(outcome).await;
            }
        });
        Ok(())
    }

    pub(super) fn request_completed(&mut self, completion: Completion) {
        let Some((incoming, outcome)) = self.client_methods.completed(completion) else {
            return;
        };
        self.turns.note_activity(Instant::now());
        let served = match outcome {
            Ok(WorkOutput::Result(result, permit)) => {
                return self.link.answer_with_guard(incoming, &Ok(result), permit);
            }
            Ok(WorkOutput::Elicitation(offer)) => self.offer_elicitation(offer),
            Ok(WorkOutput::File(offer, client)) => self.offer_to(offer, client),
            Ok(WorkOutput::Terminal(new)) => self.terminal_started(incoming, *new),
            Err(error) => Err(Err(error)),
        };
        if let Err(response) = served {
            self.link.answer(incoming, &response);
        }
    }

    pub(super) fn folders(&self) -> Folders {
        let record = self.journal.record();
        Folders {
            workspaces: self.context.workspaces_of(record),
            cwd: PathBuf::from(&record.cwd),
            additional: record
                .additional_directories
                .iter()
                .map(PathBuf::from)
                .collect(),
            refusals: Refusals {
                counted: self.context.audit.counted().clone(),
                agent: record.agent.clone(),
                session: record.session_id,
                ids: self.context.ids.clone(),
            },
        }
    }

    /// Reads or writes a file for the agent. The caller has checked the session of the request.
    pub(super) fn serve_file(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: &RawValue,
    ) -> HandlerResult {
        let (folders, max_bytes) = (self.folders(), self.context.limits.max_file_bytes);
        let Some(FilePermits {
            answers,
            params: held,
        }) = self.client_methods.file_permits(params)
        else {
            return Err(rejected(
                error_code::INTERNAL,
                "too many bytes are waiting to be written",
            ));
        };
        let (method, params) = (method.to_owned(), params.to_owned());
        let shutdown = self.context.shutdown.clone();
        self.serve(incoming, true, async move {
            // The semaphore is never closed.
            let permit = Arc::clone(&answers)
                .acquire_owned()
                .await
                .map_err(|_| work_aborted())?;
            // The work continues after a cancellation and holds its permit until it ends.
            let work = shutdown.spawn_blocking(move || {
                let outcome = folders.serve(&method, &params, max_bytes);
                drop((params, held));
                outcome.map(|result| WorkOutput::Result(result, Some(permit)))
            });
            work.await.unwrap_or_else(|_| Err(work_aborted()))
        })
    }

    pub(super) fn serve_terminal(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: &RawValue,
    ) -> HandlerResult {
        if method == method::TERMINAL_CREATE {
            return self.create_terminal(incoming, params);
        }
        let request = TerminalRequest::from_method(method)
            .ok_or_else(|| Err(acp::method_not_found(method)))?;
        let acp::TerminalParams { terminal_id: named } =
            acp::parse(params).map_err(|_| invalid("expected a terminalId"))?;
        let work = self.client_methods.serve_terminal(&named, request);
        let work = work.ok_or_else(|| Err(acp::resource_not_found(&named)))?;
        self.serve(incoming, true, async {
            Ok(WorkOutput::Result(work.await, None))
        })
    }

    fn create_terminal(&mut self, incoming: IncomingId, params: &RawValue) -> HandlerResult {
        let asked = acp::parse::<acp::CreateTerminal>(params).map_err(|_| {
            invalid("expected a command, and args, env, cwd, outputByteLimit as in ACP")
        })?;
        self.check_terminal_limit()?;
        let Some(process) = self.link.process() else {
            return Ok(());
        };
        let terminals = process.terminals().cloned();
        let terminals =
            terminals.ok_or_else(|| Err(acp::method_not_found(method::TERMINAL_CREATE)))?;
        let (folders, shutdown) = (self.folders(), self.context.shutdown.clone());
        self.serve(incoming, false, async move {
            let cwd = folders.of_command(&asked, &shutdown).await?;
            let shown = cwd.to_string_lossy().into_owned();
            let started = workspace::start_terminal(&terminals, &asked, cwd).await;
            Ok(WorkOutput::Terminal(Box::new(NewTerminal::new(
                started, asked, shown,
            )?)))
        })
    }

    /// Assigns an id to the started terminal and appends its event.
    fn terminal_started(&mut self, incoming: IncomingId, new: NewTerminal) -> HandlerResult {
        if !self.attachment.is_attached() {
            // The session was detached while the command was being started.
            return Err(RequestKind::CreateTerminal.cancelled_reply());
        }
        self.check_terminal_limit()?;
        let id = self
            .journal
            .next_terminal(|id| self.serving.has_terminal(&id.to_string()));
        let (prompt, now) = (self.turns.sent(), self.context.ids.now());
        let (record, follower) =
            self.client_methods
                .open_terminal(id, new, prompt, now, &self.context.limits);
        self.context.shutdown.spawn_isolated(follower);
        let StoredTerminal {
            command, args, cwd, ..
        } = &record.shown;
        let event = EncodedEvent::from(&TerminalCreated {
            terminal_id: id,
            command,
            args,
            cwd,
        });
        self.journal.append_with(prompt, event, |seq, change| {
            record.first_seq = seq;
            change.open_terminal(record);
        });
        self.link
            .answer(incoming, &Ok(acp::create_terminal_result(id)));
        Ok(())
    }

    pub(super) fn check_terminal_limit(&self) -> HandlerResult {
        let open = self.client_methods.terminal_count() + self.serving.terminal_count();
        if open < self.context.limits.max_terminals {
            return Ok(());
        }
        Err(rejected(
            error_code::INTERNAL,
            "too many terminals are open; release some first",
        ))
    }

    pub(super) fn handle_terminal_event(
        &mut self,
        TerminalEvent {
            terminal: id,
            event,
        }: TerminalEvent,
    ) {
        match event {
            OutputEvent::Output { offset, text } => {
                // Without a running command, the end of the terminal is in the log.
                if let Some(record) = self.client_methods.running_terminal(id) {
                    let prompt = self.if_sent(record.shown.prompt_id);
                    self.journal.append(
                        prompt,
                        &TerminalOutput {
                            terminal_id: id,
                            offset,
                            data: &text,
                        },
                    );
                }
            }
            OutputEvent::Exited(exit) => {
                let exit = StoredExit {
                    exit_code: exit.code,
                    signal: exit.signal,
                };
                if let Some(ended) = self.client_methods.end_terminal(id, exit) {
                    self.terminal_ended(ended);
                }
            }
        }
    }

    /// The turn if it still runs. No event belongs to a turn after its end.
    pub(super) fn if_sent(&self, prompt: Option<PromptId>) -> Option<PromptId> {
        prompt.filter(|_| prompt == self.turns.sent())
    }

    fn terminal_ended(&mut self, record: TerminalRecord) {
        let now = Instant::now();
        if self.turns.running().is_some() {
            self.turns.note_activity(now);
        } else {
            self.attachment.touch(now);
        }
        self.append_terminal_end(self.if_sent(record.shown.prompt_id), record);
    }

    /// Appends the only end of a terminal. The record has the exit status.
    pub(super) fn append_terminal_end(
        &mut self,
        prompt: Option<PromptId>,
        mut record: TerminalRecord,
    ) {
        let Some(StoredExit { exit_code, signal }) = &record.shown.exit_status else {
            return;
        };
        let (terminal_id, exit_code, signal) =
            (record.shown.terminal_id, *exit_code, signal.as_deref());
        let event = EncodedEvent::from(&TerminalExited {
            terminal_id,
            exit_code,
            signal,
        });
        self.journal.append_with(prompt, event, |seq, change| {
            record.last_seq = Some(seq);
            change.close_terminal(&record);
        });
    }

    /// Ends all terminals, because the session releases its process.
    pub(super) fn end_terminals(&mut self) {
        while let Some(ended) = self.client_methods.end_next_terminal() {
            self.terminal_ended(ended);
        }
    }

    /// Kills a command for a client. The agent keeps its terminal.
    pub(super) fn kill_terminal(&mut self, id: TerminalId) -> Result<u64, PartError> {
        if id.number() == 0 || id.number() > self.journal.record().last_terminal {
            return Err(NotFound("terminal").into());
        }
        self.client_methods.kill_terminal(id);
        Ok(self.journal.appended())
    }

    /// The deadline of commands that outlive their turn.
    pub(super) fn terminal_deadline(&self) -> Option<Instant> {
        let outlives = self.turns.running().is_none() && self.client_methods.has_live_terminal();
        outlives.then(|| self.attachment.idle_since() + self.context.limits.terminal_idle_timeout)
    }

    pub(super) fn check_terminal_deadline(&mut self, now: Instant) {
        if self
            .terminal_deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            for terminal in self.client_methods.kill_terminals(None) {
                tracing::info!(%terminal, "killing a terminal that outlived its turn");
            }
        }
    }
}
