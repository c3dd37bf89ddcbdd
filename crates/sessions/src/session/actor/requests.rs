//! Requests of the agent: whether the gateway or a client handles each of them (ACP, Requesting Permission,
//! Elicitation, File System, Terminals).

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Instrument;

use super::Actor;
use crate::session::error::{AnswerError, NotFound, PartError};
use crate::session::requests::answers::{allows, answer_wait};
use crate::session::requests::client_tools::ToolClient;
use crate::session::requests::files::{Folders, work_aborted};
use crate::session::requests::work::{
    Completion, FilePermits, NewTerminal, WorkOutcome, WorkOutput,
};
use crate::session::requests::{EndedBy, Offer, Wait, if_sent, rejected};
use base::types::{Author, RequestId, TerminalId, ToolProvider};
use events::api::{PendingRequest, Resolution};
use events::event::{ElicitationCompleted, RefuseReason};
use wire::acp::{self, ElicitationMode, Outcome, RequestKind, error_code, method};
use wire::jsonrpc::IncomingId;
use workspace::{self, TerminalEvent, TerminalRequest};

/// `Err`: the response that the agent receives at once. Clients do not see the request.
type HandlerResult = Result<(), Outcome>;

fn invalid(detail: &str) -> Outcome {
    rejected(error_code::INVALID_PARAMS, detail)
}

impl Actor {
    pub(super) fn handle_request(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        if let Err(response) = self.serve_request(incoming, method, params) {
            self.binding.answer(incoming, &response);
        }
    }

    /// Passes a request to the side that serves it by policy: the gateway, a client, or neither.
    fn serve_request(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: &RawValue,
    ) -> HandlerResult {
        let kind = RequestKind::from_method(method);
        let unsupported = || Err(Err(acp::method_not_found(method)));
        if !self.binding.is_attached() {
            // The request arrives before the session is attached or after it is detached.
            return if kind.is_question() {
                Err(kind.cancelled_reply())
            } else {
                unsupported()
            };
        }
        let (files, terminals) = self.binding.tool_providers(self.journal.record());
        let tool_providers = match kind {
            RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => {
                ToolProvider::Client
            }
            _ if !self.binding.version().has_client_methods() => ToolProvider::Off,
            RequestKind::ReadFile | RequestKind::WriteFile => files,
            RequestKind::CreateTerminal
            | RequestKind::TerminalOutput
            | RequestKind::WaitForExit
            | RequestKind::EndTerminal => terminals,
        };
        if tool_providers == ToolProvider::Off {
            if let Some(method) = kind.served_method() {
                self.audit_refused(method);
            }
            return unsupported();
        }
        // An elicitation may name a call of the gateway instead of a session. An extension may name neither.
        let needs_session = !matches!(kind, RequestKind::Elicitation | RequestKind::Extension);
        let own = match self.params_for_clients(params) {
            Some(own) if !needs_session || acp::has_session_id(params) => own,
            _ => return Err(invalid("expected the sessionId of this session")),
        };
        let client = self
            .requests
            .serving_client(kind, method, params, Instant::now())?;
        let by_gateway = tool_providers == ToolProvider::Gateway && client.is_none();
        let limits = &self.context.limits;
        let wait = match kind {
            // No client is connected that could know the method.
            RequestKind::Extension if !self.journal.log().has_reader() => return unsupported(),
            RequestKind::Extension => Wait::AtMost(limits.extension_answer_timeout),
            RequestKind::Permission | RequestKind::Elicitation => {
                answer_wait(self.binding.spec(), &self.journal.record().policy)
            }
            RequestKind::ReadFile | RequestKind::WriteFile if by_gateway => {
                return self.serve_file(incoming, method, params);
            }
            _ if by_gateway => return self.serve_terminal(incoming, method, params),
            // A command may run for hours, and only the client that runs it knows its state.
            RequestKind::WaitForExit => Wait::WhileFollowed(limits.client_answer_timeout),
            _ => Wait::AtMost(limits.client_answer_timeout),
        };
        let offer = Offer {
            request: PendingRequest {
                request_id: self.journal.next_request(),
                method: method.into(),
                params: own,
                prompt_id: self.turns.sent(),
                subagent: self.subagent_of(params),
                acp_client: client.as_ref().map(|client| client.name.to_string()),
                created_at: self.context.ids.now(),
                deadline: None,
            },
            incoming,
            wait,
        };
        match kind {
            RequestKind::Permission => self.handle_permission(offer, params),
            RequestKind::Elicitation => self.handle_elicitation(offer, params),
            _ => match client {
                Some(client) => self.offer_to_client(kind, offer, client),
                None => self.offer_request(offer).map(drop),
            },
        }
    }

    fn audit_refused(&self, method: &'static str) {
        let record = self.journal.record();
        let now = self.context.ids.now();
        let counted = self.context.audit.counted();
        counted.refused(
            &record.agent,
            record.session_id,
            method,
            RefuseReason::Off,
            now,
        );
    }

    /// Handles a permission request: a user or the policy selects an option. `params` contains the agent's session id.
    fn handle_permission(&mut self, offer: Offer, params: &RawValue) -> HandlerResult {
        let view = acp::parse_permission(params)
            .map_err(|_| invalid("expected a toolCall, and options that each have an optionId"))?;
        // The request describes its tool call like an update does.
        if let Some(call) = view.tool_call {
            self.turns
                .track_cancellable(acp::update::TOOL_CALL_UPDATE, call);
        }
        let policy = &self.journal.record().policy;
        let allowed = allows(self.binding.spec(), policy, view.tool_kind.as_deref());
        let answer = allowed
            .then(|| view.allow_once(&self.client_rules().settings.denied_modes))
            .flatten();
        self.offer_question(offer, answer)
    }

    /// Offers a question to a user. `allowed`: the answer of the policy.
    fn offer_question(&mut self, offer: Offer, allowed: Option<Box<RawValue>>) -> HandlerResult {
        let id = self.offer_request(offer)?;
        if self.turns.is_cancelling() {
            // New questions of a cancelled turn are answered at once.
            self.requests
                .end(&mut self.journal, id, Resolution::Cancelled);
        } else if let Some(result) = allowed {
            self.requests
                .resolve(&mut self.journal, id, Resolution::Policy, None, Ok(result));
        } else {
            return Ok(());
        }
        self.requests_resolved();
        Ok(())
    }

    /// Handles an elicitation: a form to fill in or a URL to visit. `params` contains the agent's session id, if any.
    fn handle_elicitation(&mut self, mut offer: Offer, params: &RawValue) -> HandlerResult {
        let view = acp::parse_elicitation(params).map_err(|error| invalid(&error.to_string()))?;
        match view.request_id.map(|raw| self.public_call_id(raw)) {
            None if acp::has_session_id(params) => {}
            Some(Some(name)) => {
                offer.request.params = acp::replace_request_id(&offer.request.params, &name);
            }
            _ => {
                let detail = "expected the sessionId of this session or the requestId of an open request of the client";
                return Err(invalid(detail));
            }
        }
        match view.mode {
            ElicitationMode::Url { elicitation_id } => {
                self.requests.elicitation_began(elicitation_id.into_owned());
                self.offer_elicitation(offer)
            }
            ElicitationMode::Form { .. } => self.check_form(offer),
        }
    }

    /// Checks a form outside of the actor, and then offers it to clients.
    fn check_form(&mut self, offer: Offer) -> HandlerResult {
        let shutdown = self.context.shutdown.clone();
        self.serve(offer.incoming, false, async move {
            let checked = shutdown.spawn_blocking(move || {
                acp::check_form(&offer.request.params)
                    .map(|()| offer)
                    .map_err(|error| error.to_string())
            });
            let unchecked = |_| acp::error(error_code::INTERNAL, "the form could not be checked");
            let offer = checked.await.map_err(unchecked)?;
            offer
                .map(WorkOutput::Elicitation)
                .map_err(|detail| acp::error(error_code::INVALID_PARAMS, &detail))
        })
    }

    /// The public id of a call of the gateway: the id of its turn, or `null`. `None` if no such call is open.
    fn public_call_id(&self, raw_id: &RawValue) -> Option<String> {
        let call = self.binding.process()?.connection.find_call(raw_id)?;
        Some(match self.turns.sent() {
            Some(prompt) if self.turns.is_prompt(call) => format!("\"{prompt}\""),
            _ => "null".to_owned(),
        })
    }

    fn offer_elicitation(&mut self, offer: Offer) -> HandlerResult {
        let prompt = offer.request.prompt_id;
        let ended = prompt.is_some() && prompt != self.turns.sent();
        if ended || !self.binding.is_attached() {
            return Err(RequestKind::Elicitation.cancelled_reply());
        }
        self.offer_question(offer, None)
    }

    /// Handles `elicitation/complete`: the agent reports, once, that the user completed the page.
    pub(super) fn elicitation_completed(&mut self, params: &RawValue) {
        let Some((id, more)) = acp::completed_elicitation(params) else {
            return;
        };
        if self.requests.elicitation_completed(&id) {
            let event = ElicitationCompleted {
                elicitation_id: &id,
                more: more.as_deref(),
            };
            self.journal.append(self.turns.sent(), &event);
        }
    }

    /// Offers a request to the client that alone serves it. A client on the machine of the gateway serves only files in the
    /// folders of the session, which are checked outside of the actor.
    pub(super) fn offer_to_client(
        &mut self,
        kind: RequestKind,
        offer: Offer,
        client: Arc<ToolClient>,
    ) -> HandlerResult {
        if kind == RequestKind::CreateTerminal {
            self.requests
                .check_terminal_limit(self.context.limits.max_terminals)?;
        }
        let is_file = matches!(kind, RequestKind::ReadFile | RequestKind::WriteFile);
        if !(is_file && client.only_session_folders) {
            return self.offer_to(offer, client);
        }
        let folders = self.folders();
        let shutdown = self.context.shutdown.clone();
        self.serve(offer.incoming, true, async move {
            let checked = shutdown
                .spawn_blocking(move || {
                    folders
                        .check(&offer.request.method, &offer.request.params)
                        .map(|()| offer)
                })
                .await;
            let offer = checked.map_err(|_| work_aborted())??;
            Ok(WorkOutput::File(offer, client))
        })
    }

    pub(super) fn offer_to(&mut self, mut offer: Offer, client: Arc<ToolClient>) -> HandlerResult {
        // The turn can end during a check.
        offer.request.prompt_id = if_sent(offer.request.prompt_id, self.turns.sent());
        let id = self.offer_request(offer)?;
        self.requests.tool_clients.offered(id, client);
        Ok(())
    }

    fn offer_request(&mut self, offer: Offer) -> Result<RequestId, Outcome> {
        let peer = self.binding.peer_request(offer.incoming);
        let max_open = self.context.limits.max_pending_requests;
        let kind = RequestKind::from_method(&offer.request.method).name();
        let id = self
            .requests
            .offer(&mut self.journal, offer, peer, max_open, Instant::now())?;
        if let Some(span) = self.turns.trace_request(kind) {
            self.requests.trace(id, span);
        }
        Ok(id)
    }

    pub(crate) fn answer(
        &mut self,
        by: &Author,
        id: RequestId,
        outcome: Outcome,
    ) -> Result<(), AnswerError> {
        self.requests.get(id)?;
        self.check_answer_modes(id, &outcome)?;
        let resolution = Resolution::Answered;
        self.requests
            .resolve(&mut self.journal, id, resolution, Some(by), outcome);
        self.requests_resolved();
        Ok(())
    }

    /// The agent can continue: its idle time starts here.
    fn requests_resolved(&mut self) {
        self.turns.note_activity(Instant::now());
        self.send_responses();
    }

    pub(super) fn send_responses(&mut self) {
        let committed = self.journal.log().committed();
        while let Some((incoming, outcome)) = self.requests.take_response(committed) {
            self.binding.answer(incoming, &outcome);
        }
    }

    pub(super) fn end_requests(&mut self, by: EndedBy) {
        self.requests.end_all(&mut self.journal, by);
        self.requests_resolved();
    }

    /// Expires requests that no client answered in time, and those whose only client has disconnected.
    pub(super) fn expire_requests(&mut self, now: Instant) {
        if self
            .requests
            .deadline()
            .is_none_or(|deadline| now < deadline)
        {
            return;
        }
        let is_followed = self.journal.log().has_reader();
        let extension = self.context.limits.client_answer_timeout;
        self.requests
            .expire(&mut self.journal, is_followed, extension, now);
        let tool_providers = self.binding.tool_providers(self.journal.record()).0;
        let files_served = tool_providers != ToolProvider::Off;
        let waiting = self
            .requests
            .end_disconnected(&mut self.journal, files_served, now);
        self.requests_resolved();
        for (incoming, request) in waiting {
            if let Err(response) = self.serve_by_policy(incoming, &request, tool_providers) {
                self.binding.answer(incoming, &response);
            }
        }
    }

    /// Handles `$/cancel_request` of the agent.
    pub(crate) fn cancelled_by_agent(&mut self, params: &RawValue) {
        let Ok(acp::CancelRequest { request_id: raw_id }) = acp::parse(params) else {
            return;
        };
        let found = self
            .binding
            .process()
            .and_then(|process| process.connection.find(raw_id));
        let Some(incoming) = found else { return };
        if let Some(id) = self.requests.find(incoming) {
            self.requests
                .end(&mut self.journal, id, Resolution::Withdrawn);
            self.requests_resolved();
        } else if self.requests.work.cancel(incoming) {
            let cancelled = rejected(error_code::REQUEST_CANCELLED, "");
            self.binding.answer(incoming, &cancelled);
        }
    }

    /// Serves a request for a file again that a client did not answer.
    fn serve_by_policy(
        &mut self,
        incoming: IncomingId,
        request: &PendingRequest,
        tool_providers: ToolProvider,
    ) -> HandlerResult {
        if tool_providers == ToolProvider::Gateway {
            return self.serve_file(incoming, &request.method, &request.params);
        }
        let offer = Offer {
            request: PendingRequest {
                prompt_id: if_sent(request.prompt_id, self.turns.sent()),
                acp_client: None,
                deadline: None,
                ..request.clone()
            },
            incoming,
            wait: Wait::AtMost(self.context.limits.client_answer_timeout),
        };
        self.offer_request(offer).map(drop)
    }

    /// Runs `work` outside of the actor. Work that is `cancellable` is dropped if the agent cancels its request or the
    /// session releases the process. Other work runs to its end, because the actor needs its output.
    fn serve(
        &mut self,
        incoming: IncomingId,
        cancellable: bool,
        work: impl Future<Output = WorkOutcome> + Send + 'static,
    ) -> HandlerResult {
        let begun = self.requests.work.begin(
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
        let work = async move {
            if let Some(outcome) = cancelled.run_until_cancelled_owned(work).await {
                completer.complete(outcome).await;
            }
        };
        self.context.shutdown.spawn_isolated(work.in_current_span());
        Ok(())
    }

    pub(super) fn request_completed(&mut self, completion: Completion) {
        let Some((incoming, outcome)) = self.requests.work.completed(completion) else {
            return;
        };
        self.turns.note_activity(Instant::now());
        let served = match outcome {
            Ok(WorkOutput::Result(result, permit)) => {
                return self
                    .binding
                    .answer_with_guard(incoming, &Ok(result), permit);
            }
            Ok(WorkOutput::Elicitation(offer)) => self.offer_elicitation(offer),
            Ok(WorkOutput::File(offer, client)) => self.offer_to(offer, client),
            Ok(WorkOutput::Terminal(new)) => self.terminal_started(incoming, *new),
            Err(error) => Err(Err(error)),
        };
        if let Err(response) = served {
            self.binding.answer(incoming, &response);
        }
    }

    fn folders(&self) -> Folders {
        let record = self.journal.record();
        Folders {
            workspaces: self.context.workspaces_of(record),
            cwd: PathBuf::from(&record.cwd),
            additional: record
                .additional_directories
                .iter()
                .map(PathBuf::from)
                .collect(),
            refusals: self.context.audit.counted().clone(),
            agent: record.agent.clone(),
            session: record.session_id,
            ids: self.context.ids.clone(),
        }
    }

    /// Reads or writes a file for the agent. The caller has checked the session of the request.
    fn serve_file(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: &RawValue,
    ) -> HandlerResult {
        let folders = self.folders();
        let max_bytes = self.context.limits.max_file_bytes;
        let Some(FilePermits {
            answers,
            params: held,
        }) = self.requests.work.file_permits(params)
        else {
            return Err(rejected(
                error_code::INTERNAL,
                "too many bytes are waiting to be written",
            ));
        };
        let method = method.to_owned();
        let params = params.to_owned();
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

    fn serve_terminal(
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
        let work = self.requests.terminals.serve(&named, request);
        let work = work.ok_or_else(|| Err(acp::resource_not_found(&named)))?;
        self.serve(incoming, true, async {
            Ok(WorkOutput::Result(work.await, None))
        })
    }

    fn create_terminal(&mut self, incoming: IncomingId, params: &RawValue) -> HandlerResult {
        let asked = acp::parse::<acp::CreateTerminal>(params).map_err(|_| {
            invalid("expected a command, and args, env, cwd, outputByteLimit as in ACP")
        })?;
        self.requests
            .check_terminal_limit(self.context.limits.max_terminals)?;
        let Some(process) = self.binding.process() else {
            return Ok(());
        };
        let terminals = process.terminals().cloned();
        let terminals =
            terminals.ok_or_else(|| Err(acp::method_not_found(method::TERMINAL_CREATE)))?;
        let folders = self.folders();
        let shutdown = self.context.shutdown.clone();
        self.serve(incoming, false, async move {
            let cwd = folders.of_command(&asked, &shutdown).await?;
            let shown = cwd.to_string_lossy().into_owned();
            let started = workspace::start_terminal(&terminals, &asked, cwd)
                .await
                .map_err(|error| error.response())?;
            Ok(WorkOutput::Terminal(Box::new(NewTerminal {
                started,
                asked,
                cwd: shown,
            })))
        })
    }

    fn terminal_started(&mut self, incoming: IncomingId, new: NewTerminal) -> HandlerResult {
        if !self.binding.is_attached() {
            // The session was detached while the command was being started.
            return Err(RequestKind::CreateTerminal.cancelled_reply());
        }
        let limits = &self.context.limits;
        self.requests.check_terminal_limit(limits.max_terminals)?;
        let sent = self.turns.sent();
        let (id, follower) = self
            .requests
            .open_terminal(&mut self.journal, new, sent, limits);
        self.context.shutdown.spawn_isolated(follower);
        self.binding
            .answer(incoming, &Ok(acp::create_terminal_result(id)));
        Ok(())
    }

    pub(super) fn handle_terminal_event(&mut self, event: TerminalEvent) {
        let sent = self.turns.sent();
        if self.requests.terminal_event(&mut self.journal, sent, event) {
            self.terminal_ended();
        }
    }

    pub(super) fn end_terminals(&mut self) {
        let sent = self.turns.sent();
        if self.requests.end_terminals(&mut self.journal, sent) {
            self.terminal_ended();
        }
    }

    fn terminal_ended(&mut self) {
        let now = Instant::now();
        if self.turns.running().is_some() {
            self.turns.note_activity(now);
        } else {
            self.binding.touch(now);
        }
    }

    pub(crate) fn kill_terminal(&mut self, id: TerminalId) -> Result<(), PartError> {
        if id.number() == 0 || id.number() > self.journal.record().last_terminal {
            return Err(NotFound("terminal").into());
        }
        self.requests.terminals.kill(id);
        Ok(())
    }

    /// The deadline of commands that outlive their turn.
    pub(super) fn terminal_deadline(&self) -> Option<Instant> {
        let outlives = self.turns.running().is_none() && self.requests.terminals.is_alive();
        outlives.then(|| self.binding.idle_since() + self.context.limits.terminal_idle_timeout)
    }

    pub(super) fn check_terminal_deadline(&mut self, now: Instant) {
        if self
            .terminal_deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            for terminal in self.requests.terminals.kill_all(|_| true) {
                tracing::info!(%terminal, "killing a terminal that outlived its turn");
            }
        }
    }
}
