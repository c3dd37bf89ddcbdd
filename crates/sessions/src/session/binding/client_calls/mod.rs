//! The clients that need the agent outside a turn: those that wait for a process, and their calls to the agent.
//!
//! This part owns the waiting clients, the queued calls and the calls that wait for the agent's response. It does not send
//! anything: each method returns the clients to answer.
//! `check_call` checks a call, and `encode_call` encodes it for the agent.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::limits::Limits;
use crate::session::command::{ClientCall, CreateWaiter, Reply};
use crate::session::error::{
    AttachError, CallError, InputError, ProcessError, SessionError, TurnRunning,
};
use crate::session::idempotency::Claim;
use crate::session::validation::{Origin, can_fork};
use agents::agent::{AgentSpec, client_input_policy};
use base::types::{Principal, PromptId, SessionId};
use wire::acp::{
    self, AcpVersion, AgentCapabilities, ConfigValue, ModePolicy, SessionSetup, TraceContext,
};
use wire::jsonrpc::CallId;

#[derive(Default)]
pub(crate) struct ClientCalls {
    waiters: Waiters,
    sent: HashMap<CallId, PendingCall>,
}

pub(crate) struct BindingWaiter {
    pub(crate) trace: Option<TraceContext>,
    pub(crate) reply: Reply<u64, AttachError>,
    pub(crate) deadline: Instant,
}

/// A client-initiated call that waits for a process or for the agent's response.
pub(crate) struct PendingCall {
    pub(crate) by: Principal,
    pub(crate) call: ClientCall,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) reply: Reply<(Box<RawValue>, u64), CallError>,
    pub(crate) deadline: Instant,
}

#[derive(Default)]
pub(crate) struct Waiters {
    pub(crate) creating: Option<CreateWaiter>,
    pub(crate) attaching: Vec<BindingWaiter>,
    pub(crate) queued: Vec<PendingCall>,
}

impl ClientCalls {
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.creating.is_some() || self.wants_attached()
    }

    /// Whether a client of an existing session waits for a process.
    pub(crate) fn wants_attached(&self) -> bool {
        self.is_attaching() || !self.waiters.queued.is_empty()
    }

    pub(crate) fn is_attaching(&self) -> bool {
        !self.waiters.attaching.is_empty()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.waiters.queued.is_empty()
    }

    pub(crate) fn wait_for_creation(&mut self, creating: CreateWaiter) {
        self.waiters.creating = Some(creating);
    }

    pub(crate) fn origin(&self) -> Option<Origin> {
        self.waiters
            .creating
            .as_ref()
            .map(|creating| creating.origin)
    }

    /// Whether the history that the agent sends is new to the log.
    pub(crate) fn imports_history(&self) -> bool {
        self.origin().is_some_and(|origin| origin != Origin::New)
    }

    /// Takes the idempotency key of the client that creates the session.
    pub(crate) fn take_claim(&mut self) -> Option<Claim> {
        self.waiters.creating.as_mut()?.claim.take()
    }

    pub(crate) fn take_creating(&mut self) -> Option<CreateWaiter> {
        self.waiters.creating.take()
    }

    pub(crate) fn wait_for_binding(&mut self, attaching: BindingWaiter) {
        self.waiters.attaching.push(attaching);
    }

    pub(crate) fn take_attaching(&mut self) -> Vec<BindingWaiter> {
        std::mem::take(&mut self.waiters.attaching)
    }

    pub(crate) fn enqueue(&mut self, call: PendingCall) {
        self.waiters.queued.push(call);
    }

    pub(crate) fn take_queued(&mut self) -> Vec<PendingCall> {
        std::mem::take(&mut self.waiters.queued)
    }

    pub(crate) fn take_waiters(&mut self) -> Waiters {
        std::mem::take(&mut self.waiters)
    }

    /// The trace context of the first client that waits for a process.
    pub(crate) fn trace(&self) -> Option<&TraceContext> {
        let Waiters {
            creating,
            attaching,
            queued,
        } = &self.waiters;
        let creating = creating.iter().map(|client| client.trace.as_ref());
        let attaching = attaching.iter().map(|client| client.trace.as_ref());
        let queued = queued.iter().map(|call| call.trace.as_ref());
        creating.chain(attaching).chain(queued).flatten().next()
    }

    pub(crate) fn sent(
        &mut self,
        id: CallId,
        mut call: PendingCall,
        limits: &Limits,
        now: Instant,
    ) {
        let limit = match call.call {
            ClientCall::Forked(_) => limits.session_close_timeout,
            _ => limits.session_new_timeout,
        };
        call.deadline = now + limit;
        self.sent.insert(id, call);
    }

    pub(crate) fn answered(&mut self, id: CallId) -> Option<PendingCall> {
        self.sent.remove(&id)
    }

    pub(crate) fn take_sent(&mut self) -> HashMap<CallId, PendingCall> {
        std::mem::take(&mut self.sent)
    }

    /// Removes and returns a call whose response is overdue. Call it until it returns `None`.
    pub(crate) fn expire_sent(&mut self, now: Instant) -> Option<(CallId, PendingCall)> {
        let id = self
            .sent
            .iter()
            .find(|(_, call)| now >= call.deadline)
            .map(|(id, _)| *id)?;
        self.sent.remove_entry(&id)
    }

    /// When the next client has waited for too long. `waits_for_process`: the session has no process, so the clients that
    /// wait for one count too. During the setup these clients wait for the agent instead.
    pub(crate) fn deadline(&self, waits_for_process: bool) -> Option<Instant> {
        let sent = self.sent.values().map(|call| call.deadline).min();
        let waits = if waits_for_process {
            self.wait_deadlines().min()
        } else {
            None
        };
        sent.into_iter().chain(waits).min()
    }

    fn wait_deadlines(&self) -> impl Iterator<Item = Instant> {
        let Waiters {
            creating,
            attaching,
            queued,
        } = &self.waiters;
        let queued = queued.iter().map(|call| call.deadline);
        let attaching = attaching.iter().map(|client| client.deadline);
        let creating = creating.iter().map(|client| client.deadline);
        queued.chain(attaching).chain(creating)
    }

    pub(crate) fn is_wait_overdue(&self, now: Instant) -> bool {
        self.wait_deadlines().any(|deadline| now >= deadline)
    }

    /// Extends the wait of all clients, because a process is starting. The start has its own limit.
    pub(crate) fn extend_waits(&mut self, now: Instant, by: Duration) {
        let Waiters {
            creating,
            attaching,
            queued,
        } = &mut self.waiters;
        let queued = queued.iter_mut().map(|call| &mut call.deadline);
        let attaching = attaching.iter_mut().map(|client| &mut client.deadline);
        let creating = creating.iter_mut().map(|client| &mut client.deadline);
        for deadline in queued.chain(attaching).chain(creating) {
            *deadline = (*deadline).max(now + by);
        }
    }

    /// Removes and returns the clients that have waited for a process for too long. Clients that only need a process are
    /// rejected sooner than turns, which may wait in the pool's queue for longer.
    pub(crate) fn expire_waits(&mut self, now: Instant) -> Waiters {
        let Waiters {
            creating,
            attaching,
            queued,
        } = &mut self.waiters;
        Waiters {
            creating: creating.take_if(|client| now >= client.deadline),
            attaching: attaching
                .extract_if(.., |client| now >= client.deadline)
                .collect(),
            queued: queued.extract_if(.., |call| now >= call.deadline).collect(),
        }
    }
}

/// Checks a call by rules that do not depend on a process. `accepts_models`: the agent reports `models` and therefore accepts
/// `session/set_model`. `running`: the running turn.
pub(crate) fn check_call(
    call: &ClientCall,
    session: SessionId,
    spec: &AgentSpec,
    modes: &ModePolicy<'_>,
    accepts_models: bool,
    running: Option<PromptId>,
) -> Result<(), CallError> {
    match call {
        ClientCall::Forked(_) | ClientCall::Cancel(_) => {}
        ClientCall::Mode(mode) => permit_mode(modes.find_mode(mode))?,
        ClientCall::Config { option, value } => {
            let value = acp::parse::<ConfigValue<'_>>(value).map_err(|_| {
                let detail = "expected one of the option's value ids, or a boolean";
                InputError::invalid("/value", detail)
            })?;
            permit_mode(modes.find_option(option, &value))?;
        }
        ClientCall::Fork => {
            if let Some(prompt) = running {
                return Err(TurnRunning(prompt).into());
            }
        }
        ClientCall::Rpc { method, params, .. } => {
            // Agents that report `models` accept this method, so it needs no permission of the operator.
            let is_accepted = method == acp::method::SESSION_SET_MODEL && accepts_models;
            if !is_accepted {
                client_input_policy::check_method(&spec.settings, method)
                    .map_err(|error| InputError::from_policy(&error, "/method"))?;
            }
            client_input_policy::check_params(&spec.settings, params)
                .map_err(|error| InputError::from_policy(&error, "/params"))?;
            let named = acp::session_id_of(params).map_err(|_| wrong_session())?;
            if named.is_some_and(|id| *id != *session.to_string()) {
                return Err(wrong_session().into());
            }
        }
    }
    Ok(())
}

/// `denying`: the entry of `modes.deny` that the input of a client selects.
pub(crate) fn permit_mode(denying: Option<&str>) -> Result<(), InputError> {
    client_input_policy::permit_mode(denying).map_err(|denied| InputError::from_policy(&denied, ""))
}

/// Encodes a checked call for the agent session `id`. Returns its method and its params.
pub(crate) fn encode_call(
    call: &ClientCall,
    id: &str,
    version: AcpVersion,
    capabilities: &AgentCapabilities,
    config_options: Option<&RawValue>,
    setup: SessionSetup<'_>,
    trace: Option<&TraceContext>,
) -> Result<(String, Box<RawValue>), CallError> {
    let mut method = call.method().to_owned();
    let params = match call {
        ClientCall::Mode(mode) if version.has_modes() => acp::set_mode(id, mode, trace),
        ClientCall::Mode(mode) => {
            let option = config_options.and_then(acp::mode_option);
            let option = option.ok_or_else(|| ProcessError::unsupported(&method))?;
            acp::method::SESSION_SET_CONFIG_OPTION.clone_into(&mut method);
            acp::set_config_option(version, id, &option, &ConfigValue::Id(mode.into()), trace)
        }
        ClientCall::Config { option, value } => {
            let value: ConfigValue<'_> = acp::parse(value).map_err(|_| SessionError::Internal)?;
            acp::set_config_option(version, id, option, &value, trace)
        }
        ClientCall::Cancel(part) => acp::cancel_target(id, part, trace),
        ClientCall::Fork => {
            can_fork(capabilities)?;
            acp::resume_session(id, setup, trace)
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

fn wrong_session() -> InputError {
    let detail =
        "expected the id of this session; if `sessionId` is absent, the gateway inserts it"
            .to_owned();
    InputError::invalid("/params/sessionId", detail)
}
