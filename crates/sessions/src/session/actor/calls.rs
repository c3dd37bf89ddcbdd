//! Client-initiated calls outside a turn, and the handling of their results.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Actor, send_reply};
use crate::session::binding::client_calls::{PendingCall, check_call, encode_call};
use crate::session::binding::setup::session_setup;
use crate::session::command::{ClientCall, Reply};
use crate::session::error::{CallError, InputError, NotFound, ProcessError, SessionError};
use agents::agent::{AgentExit, AgentFailure};
use base::types::Principal;
use events::event::{EncodedEvent, SessionChanged};
use wire::acp::{self, AcpVersion, CancelTarget, TraceContext};
use wire::jsonrpc::{CallId, RpcError};

impl Actor {
    pub(crate) fn queue_call(
        &mut self,
        by: Principal,
        call: ClientCall,
        trace: Option<TraceContext>,
        reply: Reply<(Box<RawValue>, u64), CallError>,
    ) {
        if self.journal.record().is_closed() {
            return send_reply(reply, Err(ProcessError::Closed.into()));
        }
        if let Err(error) = self.admit_call(&call) {
            return send_reply(reply, Err(error));
        }
        let deadline = Instant::now() + self.context.limits.settings_queue_timeout;
        self.binding.calls.enqueue(PendingCall {
            by,
            call,
            trace,
            reply,
            deadline,
        });
    }

    fn admit_call(&mut self, call: &ClientCall) -> Result<(), CallError> {
        // A cancel ends work, so the quota does not apply to it.
        if !matches!(call, ClientCall::Cancel(_)) {
            self.check_quota()?;
        }
        self.check_call(call)?;
        Ok(self.reserve()?)
    }

    /// Checks that do not need a process.
    fn check_call(&self, call: &ClientCall) -> Result<(), CallError> {
        let entry = self.client_rules();
        check_call(
            call,
            self.journal.session(),
            &entry,
            &self.journal.mode_policy(&entry),
            self.journal.record().models,
            self.turns.running(),
        )?;
        match call {
            ClientCall::Cancel(part) => self.check_cancellable(part),
            _ => Ok(()),
        }
    }

    fn check_cancellable(&self, part: &CancelTarget) -> Result<(), CallError> {
        let has_targets = match self.binding.process() {
            Some(process) => process.version().has_cancel_targets(),
            None => {
                AcpVersion::from_number(self.binding.spec().settings.protocol)
                    == Some(AcpVersion::V2)
            }
        };
        if !has_targets {
            return Err(ProcessError::unsupported(part.cancel_method()).into());
        }
        if self.turns.can_cancel(part) {
            return Ok(());
        }
        let missing = NotFound(match part {
            CancelTarget::ToolCall(_) => "tool call that can be cancelled now",
            CancelTarget::Terminal(_) => "terminal of the agent that can be cancelled now",
        });
        Err(missing.into())
    }

    /// Sends the calls that waited for a process. A process that is being stopped gets none.
    pub(super) fn send_queued_calls(&mut self) {
        if !self.binding.is_attached() || self.turns.is_stopping_process() {
            return;
        }
        for call in self.binding.calls.take_queued() {
            self.send_call(call);
        }
    }

    fn send_call(&mut self, call: PendingCall) {
        // The access can have changed while the call waited for a process.
        let permitted = self.require(&call.by.user, call.call.needed_access());
        let encoded = permitted
            .map_err(CallError::from)
            .and_then(|()| self.encode_call(&call));
        let sent = encoded.and_then(|(method, params)| {
            let sent = match &call.call {
                ClientCall::Rpc { notify: true, .. } => {
                    self.binding.notify(&method, &params).then_some(None)
                }
                _ => self.binding.call(&method, &params).map(Some),
            };
            Ok(sent
                .ok_or_else(|| ProcessError::Agent(AgentFailure::Exited(AgentExit::default())))?)
        });
        match sent {
            Ok(Some(id)) => self
                .binding
                .calls
                .sent(id, call, &self.context.limits, Instant::now()),
            // A notification has no response.
            Ok(None) => send_reply(
                call.reply,
                Ok((RawValue::NULL.to_owned(), self.journal.appended())),
            ),
            Err(error) => send_reply(call.reply, Err(error)),
        }
    }

    /// Checks a mode or an option against the lists of the attached agent: those of an earlier process can be outdated.
    fn check_is_offered(&self, call: &ClientCall) -> Result<(), InputError> {
        let entry = self.client_rules();
        let policy = self.journal.mode_policy(&entry);
        match call {
            ClientCall::Mode(mode) => policy
                .check_mode_is_offered(mode)
                .map_err(|error| InputError::invalid("/modeId", error.to_string())),
            ClientCall::Config { option, value } => {
                let Ok(value) = acp::parse::<acp::ConfigValue<'_>>(value) else {
                    return Ok(());
                };
                policy
                    .check_option_is_offered(option, &value)
                    .map_err(|error| {
                        // The path of the request contains the id of the option.
                        let pointer = if error.is_option() {
                            "option"
                        } else {
                            "/value"
                        };
                        InputError::invalid(pointer, error.to_string())
                    })
            }
            _ => Ok(()),
        }
    }

    fn encode_call(&self, call: &PendingCall) -> Result<(String, Box<RawValue>), CallError> {
        self.check_call(&call.call)?;
        self.check_is_offered(&call.call)?;
        let (Some(initialized), Some(id)) = (
            self.binding.initialized(),
            self.journal.record().agent_session_id.as_deref(),
        ) else {
            tracing::error!(session = %self.journal.session(), "a call of a client began without an attached agent session");
            return Err(SessionError::Internal.into());
        };
        let servers = self.binding.mcp_servers(self.journal.record());
        encode_call(
            &call.call,
            id,
            self.binding.version(),
            &initialized.capabilities,
            self.journal.fold().config_options.as_deref(),
            session_setup(self.journal.record(), &servers),
            call.trace.as_ref(),
        )
    }

    pub(super) fn call_answered(&mut self, id: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        let Some(call) = self.binding.calls.answered(id) else {
            return;
        };
        self.binding.touch(Instant::now());
        match outcome {
            Ok(result) => self.call_succeeded(call, &result),
            Err(error) => {
                let failure = self.binding.agent_failure(error);
                self.call_failed(call, &failure.into());
            }
        }
    }

    fn call_succeeded(&mut self, call: PendingCall, result: &RawValue) {
        if !matches!(call.call, ClientCall::Cancel(_)) {
            self.journal.update(|record| record.called = true);
        }
        let before = self.current_denied_mode();
        let mut event = SessionChanged {
            by: call.by.user.name(),
            ..SessionChanged::default()
        };
        match &call.call {
            ClientCall::Mode(mode) if self.binding.version().has_modes() => {
                event.current_mode_id = Some(mode);
            }
            ClientCall::Mode(_) | ClientCall::Config { .. } => {
                event.config_options = acp::config_options_of(result);
            }
            // The agent reports the effect of the cancel in its updates.
            ClientCall::Cancel(_) => {
                return send_reply(call.reply, Ok((result.to_owned(), self.journal.appended())));
            }
            ClientCall::Fork => return self.fork_created(call, result),
            ClientCall::Forked(_) => return self.reply_with_fork(call),
            ClientCall::Rpc { .. } => {
                let ours = self.result_for_clients(result);
                return send_reply(call.reply, Ok((ours, self.journal.appended())));
            }
        }
        self.journal.append_changed(EncodedEvent::from(&event));
        self.report_current_mode(before.as_ref());
        let seq = self.journal.appended();
        let fold = self.journal.fold();
        let now = match &call.call {
            ClientCall::Mode(_) => &fold.modes,
            _ => &fold.config_options,
        };
        let now = now.clone().unwrap_or_else(|| RawValue::NULL.to_owned());
        send_reply(call.reply, Ok((now, seq)));
    }

    /// The result with the gateway's session id if it contains the agent's id of this session.
    fn result_for_clients(&self, result: &RawValue) -> Box<RawValue> {
        let record = self.journal.record();
        let named = acp::session_id_of(result).ok().flatten();
        let replaced = named
            .filter(|id| record.agent_session_id.as_deref() == Some(&**id))
            .and_then(|_| acp::replace_session_id(result, &record.session_id).ok());
        replaced.unwrap_or_else(|| result.to_owned())
    }

    /// Handles a new fork. It exists in this process, so it is closed here before another process loads it.
    fn fork_created(&mut self, call: PendingCall, result: &RawValue) {
        if let (Some(lease), Ok(forked)) = (
            self.binding.lease(),
            acp::parse::<acp::NewSessionResult<'_>>(result),
        ) {
            lease.record_session(&forked.session_id);
        }
        let call = PendingCall {
            call: ClientCall::Forked(result.to_owned()),
            ..call
        };
        let record = self.journal.record();
        if record.own_folder && !record.shared_folder {
            self.journal.update(|record| record.shared_folder = true);
            self.journal.save_record();
        }
        if self
            .binding
            .initialized()
            .is_some_and(|known| known.capabilities.session.close)
        {
            self.send_call(call);
        } else {
            self.reply_with_fork(call);
        }
    }

    fn reply_with_fork(&self, call: PendingCall) {
        if let ClientCall::Forked(result) = call.call {
            send_reply(call.reply, Ok((result, self.journal.appended())));
        }
    }

    /// Handles the failure of a call. A fork stays usable even if the agent failed to close it here.
    pub(super) fn call_failed(&self, call: PendingCall, error: &ProcessError) {
        if matches!(call.call, ClientCall::Forked(_)) {
            self.reply_with_fork(call);
        } else {
            send_reply(call.reply, Err(error.clone().into()));
        }
    }

    pub(super) fn check_call_deadlines(&mut self, now: Instant) {
        while let Some((id, call)) = self.binding.calls.expire_sent(now) {
            self.binding.cancel_call(id);
            let timeout = self.binding.timeout(call.call.method());
            self.call_failed(call, &timeout);
        }
        if self.binding.waits_for_process() && self.binding.calls.is_wait_overdue(now) {
            self.expire_waits(now);
        }
    }

    /// Rejects the clients that have waited for a process for too long. While a process is starting, the wait continues.
    fn expire_waits(&mut self, now: Instant) {
        if self.context.pool.is_starting(
            &self.journal.record().agent,
            &self.binding.owner().user.tenant(),
        ) {
            return self
                .binding
                .calls
                .extend_waits(now, self.context.limits.settings_queue_timeout);
        }
        let waiters = self.binding.calls.expire_waits(now);
        self.reject(waiters, &ProcessError::Busy);
        self.drop_pending_lease();
    }
}
