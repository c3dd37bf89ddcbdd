//! The clients that need the agent outside a turn: those that wait for a process, and their calls to the agent.
//!
//! This part owns the waiting clients, the queued calls and the calls that wait for the agent's response. It does not send
//! anything: each method returns the clients to answer.
//! `CallRules` checks a call, and `CallTarget` encodes it for the agent.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::command::{ClientCall, CreateWaiter, Reply};
use super::error::{AttachError, CallError, InputError, ProcessError, SessionError, TurnRunning};
use super::validation::{Origin, can_fork};
use agents::agent::AgentSpec;
use base::types::{Limits, Principal, PromptId, SessionId};
use wire::acp::client_input_policy::{self, ClientInputError};
use wire::acp::{
    self, AcpVersion, AgentCapabilities, ConfigValue, ModePolicy, SessionSetup, TraceContext,
};
use wire::jsonrpc::CallId;

#[derive(Default)]
pub(super) struct ClientCalls {
    waiters: Waiters,
    sent: HashMap<CallId, PendingCall>,
}

pub(super) struct AttachWaiter {
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<u64, AttachError>,
    pub(super) deadline: Instant,
}

/// A client-initiated call that waits for a process or for the agent's response.
pub(super) struct PendingCall {
    pub(super) by: Principal,
    pub(super) call: ClientCall,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Box<RawValue>, u64), CallError>,
    pub(super) deadline: Instant,
}

#[derive(Default)]
pub(super) struct Waiters {
    pub(super) creating: Option<CreateWaiter>,
    pub(super) attaching: Vec<AttachWaiter>,
    pub(super) queued: Vec<PendingCall>,
}

impl ClientCalls {
    pub(super) fn has_waiters(&self) -> bool {
        self.waiters.creating.is_some() || self.wants_attached()
    }

    /// Whether a client of an existing session waits for a process.
    pub(super) fn wants_attached(&self) -> bool {
        self.is_attaching() || !self.waiters.queued.is_empty()
    }

    pub(super) fn is_attaching(&self) -> bool {
        !self.waiters.attaching.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.waiters.queued.is_empty()
    }

    pub(super) fn wait_for_creation(&mut self, creating: CreateWaiter) {
        self.waiters.creating = Some(creating);
    }

    pub(super) fn origin(&self) -> Option<Origin> {
        self.waiters
            .creating
            .as_ref()
            .map(|creating| creating.origin)
    }

    /// Whether the history that the agent sends is new to the log.
    pub(super) fn imports_history(&self) -> bool {
        self.origin().is_some_and(|origin| origin != Origin::New)
    }

    pub(super) fn take_creating(&mut self) -> Option<CreateWaiter> {
        self.waiters.creating.take()
    }

    pub(super) fn wait_for_attach(&mut self, attaching: AttachWaiter) {
        self.waiters.attaching.push(attaching);
    }

    pub(super) fn take_attaching(&mut self) -> Vec<AttachWaiter> {
        std::mem::take(&mut self.waiters.attaching)
    }

    pub(super) fn enqueue(&mut self, call: PendingCall) {
        self.waiters.queued.push(call);
    }

    pub(super) fn take_queued(&mut self) -> Vec<PendingCall> {
        std::mem::take(&mut self.waiters.queued)
    }

    pub(super) fn take_waiters(&mut self) -> Waiters {
        std::mem::take(&mut self.waiters)
    }

    /// The trace context of the first client that waits for a process.
    pub(super) fn trace(&self) -> Option<&TraceContext> {
        let creating = self
            .waiters
            .creating
            .iter()
            .map(|creating| creating.trace.as_ref());
        let attaching = self
            .waiters
            .attaching
            .iter()
            .map(|attaching| attaching.trace.as_ref());
        let queued = self.waiters.queued.iter().map(|call| call.trace.as_ref());
        creating.chain(attaching).chain(queued).flatten().next()
    }

    pub(super) fn sent(
        &mut self,
        id: CallId,
        mut call: PendingCall,
        limits: &Limits,
        now: Instant,
    ) {
        let limit = match call.call {
            ClientCall::Forked(_) => limits.stop_stdin_timeout,
            _ => limits.session_new_timeout,
        };
        call.deadline = now + limit;
        self.sent.insert(id, call);
    }

    pub(super) fn answered(&mut self, id: CallId) -> Option<PendingCall> {
        self.sent.remove(&id)
    }

    pub(super) fn take_sent(&mut self) -> HashMap<CallId, PendingCall> {
        std::mem::take(&mut self.sent)
    }

    /// Removes and returns a call whose response is overdue. Call it until it returns `None`.
    pub(super) fn expire_sent(&mut self, now: Instant) -> Option<(CallId, PendingCall)> {
        let id = self
            .sent
            .iter()
            .find(|(_, call)| now >= call.deadline)
            .map(|(id, _)| *id)?;
        self.sent.remove_entry(&id)
    }

    /// When the next client has waited for too long. `waits_for_process`: the session has no process, so the clients that
    /// wait for one count too. During the setup these clients wait for the agent instead.
    pub(super) fn deadline(&self, waits_for_process: bool) -> Option<Instant> {
        let sent = self.sent.values().map(|call| call.deadline);
        sent.chain(self.wait_deadlines().filter(|_| waits_for_process))
            .min()
    }

    fn wait_deadlines(&self) -> impl Iterator<Item = Instant> {
        let queued = self.waiters.queued.iter().map(|call| call.deadline);
        let attaching = self
            .waiters
            .attaching
            .iter()
            .map(|attaching| attaching.deadline);
        queued.chain(attaching).chain(
            self.waiters
                .creating
                .iter()
                .map(|creating| creating.deadline),
        )
    }

    pub(super) fn is_wait_overdue(&self, now: Instant) -> bool {
        self.wait_deadlines().any(|deadline| now >= deadline)
    }

    /// Extends the wait of all clients, because a process is starting. The start has its own limit.
    pub(super) fn extend_waits(&mut self, now: Instant, by: Duration) {
        let queued = self
            .waiters
            .queued
            .iter_mut()
            .map(|call| &mut call.deadline);
        let attaching = self
            .waiters
            .attaching
            .iter_mut()
            .map(|attaching| &mut attaching.deadline);
        let creating = self
            .waiters
            .creating
            .iter_mut()
            .map(|creating| &mut creating.deadline);
        for deadline in queued.chain(attaching).chain(creating) {
            *deadline = (*deadline).max(now + by);
        }
    }

    /// Removes and returns the clients that have waited for a process for too long. Clients that only need a process are
    /// rejected sooner than turns, which may wait in the pool's queue for longer.
    pub(super) fn expire_waits(&mut self, now: Instant) -> Waiters {
        Waiters {
            creating: self
                .waiters
                .creating
                .take_if(|creating| now >= creating.deadline),
            attaching: self
                .waiters
                .attaching
                .extract_if(.., |attaching| now >= attaching.deadline)
                .collect(),
            queued: self
                .waiters
                .queued
                .extract_if(.., |call| now >= call.deadline)
                .collect(),
        }
    }
}

/// The rules for calls that do not depend on a process.
pub(crate) struct CallRules<'a> {
    pub(crate) session: SessionId,
    pub(crate) spec: &'a AgentSpec,
    pub(crate) modes: ModePolicy<'a>,
    /// Whether the agent reports `models` and therefore accepts `session/set_model`.
    pub(crate) accepts_models: bool,
    pub(crate) running: Option<PromptId>,
}

impl CallRules<'_> {
    pub(crate) fn check(&self, call: &ClientCall) -> Result<(), CallError> {
        match call {
            ClientCall::Forked(_) | ClientCall::Cancel(_) => Ok(()),
            ClientCall::Mode(mode) => Ok(permit_mode(self.modes.find_mode(mode))?),
            ClientCall::Config { option, value } => {
                let value = acp::parse::<ConfigValue<'_>>(value).map_err(|_| {
                    let detail = "expected one of the option's value ids, or a boolean".to_owned();
                    InputError::invalid("/value", detail)
                })?;
                Ok(permit_mode(self.modes.find_option(option, &value))?)
            }
            ClientCall::Fork => self
                .running
                .map_or(Ok(()), |prompt| Err(TurnRunning(prompt).into())),
            ClientCall::Rpc { method, params, .. } => Ok(self.check_rpc(method, params)?),
        }
    }

    fn check_rpc(&self, method: &str, params: &RawValue) -> Result<(), InputError> {
        let rejected = |at| move |error: ClientInputError| InputError::from_policy(&error, at);
        // Agents that report `models` accept this method, so it needs no permission of the operator.
        if !(method == acp::method::SESSION_SET_MODEL && self.accepts_models) {
            client_input_policy::check_method(&self.spec.settings, method)
                .map_err(rejected("/method"))?;
        }
        client_input_policy::check_params(&self.spec.settings, params)
            .map_err(rejected("/params"))?;
        let named = acp::session_id_of(params).map_err(|_| wrong_session())?;
        let ours = self.session.to_string();
        if named.is_none_or(|id| *id == *ours) {
            Ok(())
        } else {
            Err(wrong_session())
        }
    }
}

/// `denying`: the entry of `modes.deny` that the input of a client selects.
pub(crate) fn permit_mode(denying: Option<&str>) -> Result<(), InputError> {
    client_input_policy::permit_mode(denying).map_err(|denied| InputError::from_policy(&denied, ""))
}

pub(crate) struct CallTarget<'a> {
    pub(crate) id: &'a str,
    pub(crate) version: AcpVersion,
    pub(crate) capabilities: &'a AgentCapabilities,
    pub(crate) config_options: Option<&'a RawValue>,
    pub(crate) setup: SessionSetup<'a>,
}

impl CallTarget<'_> {
    /// Encodes a checked call for the agent. Returns its method and its params.
    pub(crate) fn encode(
        &self,
        call: &ClientCall,
        trace: Option<&TraceContext>,
    ) -> Result<(String, Box<RawValue>), CallError> {
        let id = self.id;
        let mut method = call.method().to_owned();
        let params = match call {
            ClientCall::Mode(mode) if self.version.has_modes() => acp::set_mode(id, mode, trace),
            ClientCall::Mode(mode) => {
                let option = self.config_options.and_then(acp::mode_option);
                let option = option.ok_or_else(|| ProcessError::unsupported(&method))?;
                acp::method::SESSION_SET_CONFIG_OPTION.clone_into(&mut method);
                acp::set_config_option(
                    self.version,
                    id,
                    &option,
                    &ConfigValue::Id(mode.into()),
                    trace,
                )
            }
            ClientCall::Config { option, value } => {
                let value: ConfigValue<'_> =
                    acp::parse(value).map_err(|_| SessionError::Internal)?;
                acp::set_config_option(self.version, id, option, &value, trace)
            }
            ClientCall::Cancel(part) => acp::cancel_target(id, part, trace),
            ClientCall::Fork => {
                can_fork(self.capabilities)?;
                acp::resume_session(id, self.setup, trace)
            }
            ClientCall::Forked(result) => {
                let forked: acp::NewSessionResult<'_> =
                    acp::parse(result).map_err(|_| SessionError::Internal)?;
                acp::session_params(&forked.session_id, trace)
            }
            ClientCall::Rpc { params, .. } => {
                let params = acp::with_session_id(params, id).map_err(|_| wrong_session())?;
                acp::with_trace(&params, trace)
            }
        };
        Ok((method, params))
    }
}

fn wrong_session() -> InputError {
    let detail =
        "expected the id of this session; if `sessionId` is absent, the gateway inserts it"
            .to_owned();
    InputError::invalid("/params/sessionId", detail)
}
