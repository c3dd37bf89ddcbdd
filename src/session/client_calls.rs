//! Client-initiated calls outside a turn, and the handling of their results.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, send_reply};
use super::adopt::can_fork;
use super::changes::PendingCall;
use super::command::ClientCall;
use super::refusal::Refusal;
use crate::acp::client_input_policy::{self, ClientInputError};
use crate::acp::{self, ConfigValue};
use crate::agent::AgentFailure;
use crate::event::{EncodedEvent, SessionChanged};
use crate::eventlog::Records;
use crate::jsonrpc::CallId;

/// An encoded call.
pub(super) struct OutgoingCall {
    method: String,
    params: Box<RawValue>,
}

impl Actor {
    /// Checks that do not need a process.
    pub(super) fn check_call(&self, client_call: &ClientCall) -> Result<(), Refusal> {
        match client_call {
            ClientCall::Mode(_) | ClientCall::Forked(_) => Ok(()),
            ClientCall::Config { value, .. } => ConfigValue::parse(value).map(drop).map_err(|_| {
                let detail = "expected one of the option's value ids, or a boolean".to_owned();
                Refusal::Invalid { pointer: "/value".to_owned(), detail }
            }),
            ClientCall::Fork => {
                self.turn.as_ref().map_or(Ok(()), |turn| Err(Refusal::TurnRunning(turn.record.prompt_id)))
            }
            ClientCall::Cancel(part) => self.check_cancellable(part),
            ClientCall::Rpc { method, params, .. } => self.check_rpc(method, params),
        }
    }

    fn check_rpc(&self, method: &str, params: &RawValue) -> Result<(), Refusal> {
        let gated = |gated: ClientInputError| Refusal::from_policy(&gated, "/params");
        // Agents that report `models` accept this method, so it needs no permission of the operator.
        if !(method == acp::method::SESSION_SET_MODEL && self.record.models) {
            client_input_policy::check_method(&self.spec.settings.allowed_rpc_methods, method)
                .map_err(gated)?;
        }
        client_input_policy::check_params(&self.spec.settings.allowed_meta_keys, params).map_err(gated)?;
        let named = acp::session_id_of(params).map_err(|_| wrong_session());
        let ours = self.record.session_id.to_string();
        if named?.is_none_or(|id| *id == *ours) { Ok(()) } else { Err(wrong_session()) }
    }

    /// Encodes a call for this agent.
    pub(super) fn encode_call(&self, setting: &PendingCall, id: &str) -> Result<OutgoingCall, Refusal> {
        self.check_call(&setting.call)?;
        let (trace, dialect) = (setting.trace.as_ref(), self.dialect());
        let mut method = setting.call.method().to_owned();
        let params = match &setting.call {
            ClientCall::Mode(mode) if dialect.has_modes() => acp::set_mode(id, mode, trace),
            ClientCall::Mode(mode) => {
                let option = self.fold.config_options.as_deref().and_then(acp::mode_option);
                let option = option.ok_or_else(|| unsupported(&method))?;
                acp::method::SESSION_SET_CONFIG_OPTION.clone_into(&mut method);
                acp::set_config_option(dialect.version(), id, &option, &ConfigValue::Id(mode.into()), trace)
            }
            ClientCall::Config { option, value } => {
                let value = ConfigValue::parse(value).expect("checked above");
                acp::set_config_option(dialect.version(), id, option, &value, trace)
            }
            ClientCall::Cancel(part) => acp::cancel_target(id, part, trace),
            ClientCall::Fork => {
                let lease = self.event_loop.lease.as_ref();
                lease.map_or(Ok(()), |lease| can_fork(&lease.process().initialized.capabilities))?;
                acp::fork_session(id, self.setup(&self.mcp_servers()), trace)
            }
            ClientCall::Forked(result) => {
                let forked = acp::NewSessionResult::parse(result).map_err(|_| Refusal::Internal)?;
                acp::close_session(&forked.session_id, trace)
            }
            ClientCall::Rpc { params, .. } => {
                let params = acp::with_session_id(params, id).map_err(|_| wrong_session())?;
                acp::with_trace(&params, trace)
            }
        };
        Ok(OutgoingCall { method, params })
    }

    /// Sends a call to the agent and registers it for its response.
    pub(super) fn send_call(&mut self, mut setting: PendingCall, id: &str) {
        let OutgoingCall { method, params } = match self.encode_call(&setting, id) {
            Ok(worded) => worded,
            Err(refusal) => return send_reply(setting.reply, Err(refusal)),
        };
        let Some(lease) = &self.event_loop.lease else { return };
        let connection = &lease.process().connection;
        let gone = || Refusal::Agent(AgentFailure::Exited(crate::agent::AgentExit::default()));
        if matches!(setting.call, ClientCall::Rpc { notify: true, .. }) {
            let sent = connection.notify(&method, &params).map_err(|_| gone());
            let null = RawValue::NULL.to_owned();
            return send_reply(setting.reply, sent.map(|()| (null, self.log.appended())));
        }
        let limits = &self.context.limits;
        let limit = match setting.call {
            ClientCall::Forked(_) => limits.stop_stdin_timeout,
            _ => limits.session_new_timeout,
        };
        setting.deadline = Instant::now() + limit;
        match connection.call(&method, &params) {
            Ok(call) => drop(self.sent_calls.insert(call, setting)),
            Err(_) => send_reply(setting.reply, Err(gone())),
        }
    }

    /// Handles the result of a call.
    pub(super) fn call_succeeded(&mut self, setting: PendingCall, result: &RawValue) {
        self.record.called |= !matches!(setting.call, ClientCall::Cancel(_));
        let mut event = SessionChanged { by: &setting.by.id, ..SessionChanged::default() };
        match &setting.call {
            ClientCall::Mode(mode) if self.dialect().has_modes() => event.current_mode_id = Some(mode),
            ClientCall::Mode(_) | ClientCall::Config { .. } => {
                event.config_options = acp::config_options_of(result);
            }
            // The agent reports the effect of the cancel in its updates.
            ClientCall::Cancel(_) => {
                return send_reply(setting.reply, Ok((result.to_owned(), self.log.appended())));
            }
            ClientCall::Fork => return self.fork_created(setting, result),
            ClientCall::Forked(_) => return self.reply_with_fork(setting),
            ClientCall::Rpc { .. } => {
                let ours = self.result_for_clients(result);
                return send_reply(setting.reply, Ok((ours, self.log.appended())));
            }
        }
        let seq = self.append_changed(EncodedEvent::from(&event));
        let now = match &setting.call {
            ClientCall::Mode(_) => &self.fold.modes,
            _ => &self.fold.config_options,
        };
        let null = || RawValue::NULL.to_owned();
        send_reply(setting.reply, Ok((now.clone().unwrap_or_else(null), seq)));
    }

    /// The result with the gateway's session id if it contains the agent's id of this session.
    fn result_for_clients(&self, result: &RawValue) -> Box<RawValue> {
        let named = acp::session_id_of(result).ok().flatten();
        let replaced = named
            .filter(|id| self.record.agent_session_id.as_deref() == Some(&**id))
            .and_then(|_| acp::replace_session_id(result, &self.record.session_id).ok());
        replaced.unwrap_or_else(|| result.to_owned())
    }

    /// Handles a new fork. It exists in this process, so it is closed here before another process loads it.
    fn fork_created(&mut self, setting: PendingCall, result: &RawValue) {
        let PendingCall { by, trace, reply, deadline, .. } = setting;
        if let (Some(lease), Ok(forked)) = (&self.event_loop.lease, acp::NewSessionResult::parse(result)) {
            lease.record_session(&forked.session_id);
        }
        let client_call = ClientCall::Forked(result.to_owned());
        let setting = PendingCall { by, call: client_call, trace, reply, deadline };
        if self.record.own_folder && !self.record.shared_folder {
            self.record.shared_folder = true;
            // No event is appended, so the position up to which the record is exact stays the same.
            let mut records = Records::default();
            self.record.put(self.stored_index_key.as_deref(), &mut records);
            self.log.put(records);
        }
        let closes =
            self.event_loop.lease.as_ref().map(|l| l.process().initialized.capabilities.session.close);
        match (closes, self.record.agent_session_id.clone()) {
            (Some(true), Some(id)) => self.send_call(setting, &id),
            _ => self.reply_with_fork(setting),
        }
    }

    fn reply_with_fork(&self, setting: PendingCall) {
        if let ClientCall::Forked(result) = setting.call {
            send_reply(setting.reply, Ok((result, self.log.appended())));
        }
    }

    /// Handles the failure of a call. A fork stays usable even if the agent failed to close it here.
    pub(super) fn call_failed(&self, setting: PendingCall, refusal: &Refusal) {
        if matches!(setting.call, ClientCall::Forked(_)) {
            self.reply_with_fork(setting);
        } else {
            send_reply(setting.reply, Err(refusal.clone()));
        }
    }

    /// Sends `$/cancel_request` for a call. A later response is ignored.
    pub(super) fn cancel_call(&self, call: CallId) {
        if let Some(lease) = &self.event_loop.lease {
            // If stdin is closed, the batches report the end of the process.
            let params = acp::cancel_request(call);
            drop(lease.process().connection.notify(acp::method::CANCEL_REQUEST, &params));
        }
    }
}

fn wrong_session() -> Refusal {
    let detail = "expected the id of this session or none; the gateway inserts it".to_owned();
    Refusal::Invalid { pointer: "/params/sessionId".to_owned(), detail }
}

fn unsupported(method: &str) -> Refusal {
    Refusal::Agent(AgentFailure::Unsupported { method: method.to_owned() })
}
