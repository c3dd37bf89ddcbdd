//! The requests of the agent: requests that wait for an answer of a client, and requests that the gateway handles
//! itself.
//!
//! `Requests` appends all events of requests and terminals. `open` contains the requests that wait for an answer: the
//! first answer wins, and the response waits in the outbox until the agent may receive it. A model test compiles `open`
//! and `offer` without the other files. `client_tools` tracks the ACP clients that provide client tools (files and
//! terminals). `work` runs the requests that the gateway handles outside of the actor. `files` contains the folders of
//! the session, and `answers` checks answers. `allowed_calls` records how the tool calls ended that permissions allowed.

mod allowed_calls;
pub(super) mod answers;
pub(super) mod files;
mod offer;
mod open;
pub(super) mod client_tools;
pub(super) mod work;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use self::allowed_calls::{AllowedCall, audited_id};
use self::client_tools::{Route, ToolClient};
pub(super) use self::offer::{Offer, Wait};
pub(super) use self::open::{EndedBy, Requests, rejected};
use self::work::NewTerminal;
use super::journal::Journal;
use super::record::TerminalRecord;
use crate::limits::Limits;
use base::types::{Author, PromptId, TerminalId};
use events::api::{PendingRequest, Resolution, Terminal, TerminalExit};
use events::event::{
    ActorKind, AuditActor, EncodedEvent, PermissionDecided, PermissionToolCallEnded,
    TerminalCreated, TerminalExited, TerminalOutput, ToolCallOutcome,
};
use wire::acp::{self, Outcome, RequestKind, error_code, method, tool_kind};
use wire::jsonrpc::IncomingId;
use workspace::{OutputEvent, TerminalEvent};

/// The ACP kinds of options. An agent can send any text, which must not reach the audit log.
const OPTION_KINDS: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];

/// The response if the client that must serve a request has disconnected.
fn disconnected() -> Outcome {
    let detail = "the client that served this request has disconnected from the gateway";
    rejected(error_code::INTERNAL, detail)
}

fn terminal_of(params: &RawValue) -> Option<String> {
    let acp::TerminalParams { terminal_id } = acp::parse(params).ok()?;
    Some(terminal_id.into_owned())
}

impl Requests {
    /// Whether the agent waits for a response, or runs a command.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty() || self.work.is_busy() || self.terminals.is_busy()
    }

    /// Records the end of a permission request. Other requests are not decisions about access.
    fn audit_decision(
        &mut self,
        journal: &Journal,
        request: &PendingRequest,
        resolution: Resolution,
        by: Option<&Author>,
        outcome: &Outcome,
    ) {
        if RequestKind::from_method(&request.method) != RequestKind::Permission {
            return;
        }
        let record = journal.record();
        let actor = match (by, resolution) {
            (Some(author), _) => author.into(),
            (None, Resolution::Policy) => ActorKind::Policy.into(),
            (None, Resolution::Expired) => ActorKind::Timeout.into(),
            (None, Resolution::Withdrawn) => AuditActor::agent(&record.agent),
            (None, Resolution::Answered | Resolution::Cancelled | Resolution::Disconnected) => {
                ActorKind::Gateway.into()
            }
        };
        let known_option = |kind: &str| {
            let kind = if OPTION_KINDS.contains(&kind) {
                kind
            } else {
                "other"
            };
            kind.to_owned()
        };
        let view = acp::parse_permission(&request.params).ok();
        let selected = outcome.as_deref().ok().and_then(acp::selected_option);
        let option = view.as_ref().zip(selected.as_deref());
        let option = option.and_then(|(view, id)| view.option(id));
        let is_allowed = option.is_some_and(|option| option.kind.starts_with("allow_"));
        let tool_kind = view.as_ref().and_then(|view| view.tool_kind.as_deref());
        let tool_call_id = view.as_ref().and_then(|view| view.tool_call_id.as_deref());
        let tool_call_id = tool_call_id.map(audited_id);
        let decided = PermissionDecided {
            session_id: record.session_id,
            prompt_id: request.prompt_id,
            request_id: request.request_id,
            agent: record.agent.clone(),
            resolution,
            option_kind: option.map(|option| known_option(&option.kind)),
            tool_kind: tool_kind.map(|kind| tool_kind::known(kind).to_owned()),
            tool_call_id: tool_call_id.clone(),
        };
        self.audit.append(actor, decided);
        if is_allowed && let Some(tool_call_id) = tool_call_id {
            self.allowed_calls.push(AllowedCall {
                subagent: request.subagent.clone(),
                unended: PermissionToolCallEnded {
                    session_id: record.session_id,
                    prompt_id: request.prompt_id,
                    request_id: request.request_id,
                    tool_call_id,
                    outcome: ToolCallOutcome::Unknown,
                },
            });
        }
    }

    /// The client that alone serves a request of the agent that the policy permits. `None`: the policy decides. Fails with the
    /// response for the agent.
    pub(super) fn serving_client(
        &mut self,
        kind: RequestKind,
        method: &str,
        params: &RawValue,
        now: Instant,
    ) -> Result<Option<Arc<ToolClient>>, Outcome> {
        let terminal = match kind {
            RequestKind::TerminalOutput | RequestKind::WaitForExit | RequestKind::EndTerminal => {
                terminal_of(params)
            }
            _ => None,
        };
        match self.tool_clients.route(kind, terminal.as_deref(), now) {
            Route::Policy => Ok(None),
            Route::Client(client) => Ok(Some(client)),
            Route::Disconnected => {
                if method == method::TERMINAL_RELEASE {
                    self.forget_terminal(params);
                }
                Err(disconnected())
            }
        }
    }

    /// Notes the answer to a request that one client had to answer. Returns the outcome for the agent.
    fn served_by_client(&mut self, request: &PendingRequest, outcome: Outcome) -> Outcome {
        let Some(client) = self.tool_clients.resolved(request.request_id) else {
            return outcome;
        };
        match (request.method.as_str(), &outcome) {
            (method::TERMINAL_CREATE, Ok(result)) => {
                let id = terminal_of(result).unwrap_or_default();
                if self.terminals.has(&id) || !self.tool_clients.terminal_created(id, client) {
                    let detail = "the client returned the id of another terminal";
                    return rejected(error_code::INTERNAL, detail);
                }
            }
            (method::TERMINAL_RELEASE, Ok(_)) => self.forget_terminal(&request.params),
            _ => {}
        }
        outcome
    }

    fn forget_terminal(&mut self, params: &RawValue) {
        if let Some(id) = terminal_of(params) {
            self.tool_clients.terminal_released(&id);
        }
    }

    /// Ends the requests whose only client has disconnected. Returns those for files if the policy serves them
    /// (`files_served`): the agent still waits for their responses. A command may have been started already, so the requests
    /// for terminals fail.
    pub(super) fn end_disconnected(
        &mut self,
        journal: &mut Journal,
        files_served: bool,
        now: Instant,
    ) -> Vec<(IncomingId, Arc<PendingRequest>)> {
        let mut waiting = Vec::new();
        while let Some(id) = self.tool_clients.disconnected(now) {
            let is_file = self.open.get(&id).is_some_and(|open| {
                matches!(open.kind, RequestKind::ReadFile | RequestKind::WriteFile)
            });
            let resolution = Resolution::Disconnected;
            if !(is_file && files_served) {
                self.resolve(journal, id, resolution, None, disconnected());
            } else if let Some(open) = self.open.remove(&id) {
                let request = &open.request;
                self.append_end(journal, request, resolution, None, &disconnected(), None);
                waiting.push((open.incoming, open.request));
            }
            self.tool_clients.resolved(id);
        }
        waiting
    }

    pub(super) fn check_terminal_limit(&self, max: usize) -> Result<(), Outcome> {
        if self.terminals.count() + self.tool_clients.terminal_count() < max {
            return Ok(());
        }
        let detail = "too many terminals are open; release some first";
        Err(rejected(error_code::INTERNAL, detail))
    }

    /// Opens a terminal for a started command. The returned future delivers its output and its exit as events.
    pub(super) fn open_terminal(
        &mut self,
        journal: &mut Journal,
        new: NewTerminal,
        prompt: Option<PromptId>,
        limits: &Limits,
    ) -> (TerminalId, impl Future<Output = ()> + Send + use<>) {
        let id = journal.next_terminal(|id| self.tool_clients.has_terminal(&id.to_string()));
        let record = TerminalRecord {
            shown: Terminal {
                terminal_id: id,
                prompt_id: prompt,
                command: new.asked.command,
                args: new.asked.args,
                cwd: new.cwd,
                created_at: journal.now(),
                exit_status: None,
            },
            first_seq: 0,
            last_seq: None,
        };
        let (record, follower) = self.terminals.open(
            id,
            record,
            new.started,
            new.asked.output_byte_limit,
            limits.max_terminal_log_bytes,
        );
        let event = EncodedEvent::from(&TerminalCreated {
            terminal_id: id,
            command: &record.shown.command,
            args: &record.shown.args,
            cwd: &record.shown.cwd,
        });
        journal.append_with(prompt, event, |seq, change| {
            record.first_seq = seq;
            change.open_terminal(record);
        });
        (id, follower)
    }

    /// Appends an event of a terminal. `sent`: the running turn. Returns whether the terminal has ended.
    pub(super) fn terminal_event(
        &mut self,
        journal: &mut Journal,
        sent: Option<PromptId>,
        TerminalEvent { terminal, event }: TerminalEvent,
    ) -> bool {
        match event {
            OutputEvent::Output { offset, text } => {
                // Without a running command, the end of the terminal is in the log.
                if let Some(record) = self.terminals.running(terminal) {
                    let event = TerminalOutput {
                        terminal_id: terminal,
                        offset,
                        data: &text,
                    };
                    journal.append(if_sent(record.shown.prompt_id, sent), &event);
                }
                false
            }
            OutputEvent::Exited(exit) => {
                let Some(record) = self.terminals.ended(terminal, exit.clone()) else {
                    return false;
                };
                append_terminal_end(journal, sent, record, exit.code, exit.signal);
                true
            }
        }
    }

    /// Ends all terminals, because the session releases its process. Returns whether there was one.
    pub(super) fn end_terminals(&mut self, journal: &mut Journal, sent: Option<PromptId>) -> bool {
        let mut has_ended = false;
        while let Some((record, signal)) = self.terminals.end_next() {
            append_terminal_end(journal, sent, record, None, Some(signal));
            has_ended = true;
        }
        has_ended
    }

    pub(super) fn kill_terminals_of(&mut self, prompt: PromptId) {
        self.terminals
            .kill_all(|record| record.shown.prompt_id == Some(prompt));
    }
}

/// The turn if it still runs. No event belongs to a turn after its end.
pub(super) fn if_sent(prompt: Option<PromptId>, sent: Option<PromptId>) -> Option<PromptId> {
    if prompt == sent { sent } else { None }
}

/// Appends the only end of a terminal. Without an exit code and a signal, its exit status is unknown.
pub(super) fn append_terminal_end(
    journal: &mut Journal,
    sent: Option<PromptId>,
    mut record: TerminalRecord,
    exit_code: Option<i32>,
    signal: Option<String>,
) {
    let event = EncodedEvent::from(&TerminalExited {
        terminal_id: record.shown.terminal_id,
        exit_code,
        signal: signal.as_deref(),
    });
    record.shown.exit_status = Some(TerminalExit { exit_code, signal });
    let prompt = if_sent(record.shown.prompt_id, sent);
    journal.append_with(prompt, event, |seq, change| {
        record.last_seq = Some(seq);
        change.close_terminal(&record);
    });
}
