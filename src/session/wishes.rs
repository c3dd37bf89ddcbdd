//! Client-initiated calls outside a turn, and the handling of their results.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, answer};
use super::changes::Setting;
use super::command::Wish;
use super::refusal::Refusal;
use super::taken::can_fork;
use super::written::Written;
use crate::acp::gate::{self, Gated};
use crate::acp::{self, ConfigValue};
use crate::agent::AgentFailure;
use crate::api::event::SessionChanged;
use crate::eventlog::Records;
use crate::jsonrpc::CallId;

/// An encoded call.
pub(super) struct Worded {
    method: String,
    params: Box<RawValue>,
}

impl Actor {
    /// Checks that do not need a process.
    pub(super) fn check_wish(&self, wish: &Wish) -> Result<(), Refusal> {
        match wish {
            Wish::Mode(_) | Wish::Forked(_) => Ok(()),
            Wish::Config { value, .. } => ConfigValue::parse(value).map(drop).map_err(|_| {
                let detail = "expected one of the option's value ids, or a boolean".to_owned();
                Refusal::Invalid { pointer: "/value".to_owned(), detail }
            }),
            Wish::Fork => {
                self.turn.as_ref().map_or(Ok(()), |turn| Err(Refusal::TurnRunning(turn.record.prompt_id)))
            }
            Wish::Cancel(part) => self.check_cancellable(part),
            Wish::Rpc { method, params, .. } => self.check_rpc(method, params),
        }
    }

    fn check_rpc(&self, method: &str, params: &RawValue) -> Result<(), Refusal> {
        let gated = |gated: Gated| Refusal::gated(&gated, "/params");
        // Agents that report `models` accept this method, so it needs no permission of the operator.
        if !(method == acp::method::SESSION_SET_MODEL && self.record.models) {
            gate::check_method(&self.spec.rpc, method).map_err(gated)?;
        }
        gate::check_params(&self.spec.meta, params).map_err(gated)?;
        let named = acp::session_id_of(params).map_err(|_| not_ours());
        let ours = self.record.session_id.to_string();
        if named?.is_none_or(|id| *id == *ours) { Ok(()) } else { Err(not_ours()) }
    }

    /// Encodes a call for this agent.
    pub(super) fn word(&self, setting: &Setting, id: &str) -> Result<Worded, Refusal> {
        self.check_wish(&setting.wish)?;
        let (trace, dialect) = (setting.trace.as_ref(), self.dialect());
        let mut method = setting.wish.method().to_owned();
        let params = match &setting.wish {
            Wish::Mode(mode) if dialect.has_modes() => acp::set_mode(id, mode, trace),
            Wish::Mode(mode) => {
                let option = self.fold.config_options.as_deref().and_then(acp::mode_option);
                let option = option.ok_or_else(|| unsupported(&method))?;
                acp::method::SESSION_SET_CONFIG_OPTION.clone_into(&mut method);
                acp::set_config_option(dialect, id, &option, &ConfigValue::Id(mode.into()), trace)
            }
            Wish::Config { option, value } => {
                let value = ConfigValue::parse(value).expect("checked above");
                acp::set_config_option(dialect, id, option, &value, trace)
            }
            Wish::Cancel(part) => acp::cancel_part(id, part, trace),
            Wish::Fork => {
                let lease = self.inputs.lease.as_ref();
                lease.map_or(Ok(()), |lease| can_fork(&lease.process().initialized.capabilities))?;
                acp::fork_session(id, self.setup(&self.servers()), trace)
            }
            Wish::Forked(result) => {
                let forked = acp::NewSession::parse(result).map_err(|_| Refusal::Internal)?;
                acp::close_session(&forked.session_id, trace)
            }
            Wish::Rpc { params, .. } => {
                let params = acp::with_session_id(params, id).map_err(|_| not_ours())?;
                acp::traced(&params, trace)
            }
        };
        Ok(Worded { method, params })
    }

    /// Sends a call to the agent and registers it for its response.
    pub(super) fn send_wish(&mut self, mut setting: Setting, id: &str) {
        let Worded { method, params } = match self.word(&setting, id) {
            Ok(worded) => worded,
            Err(refusal) => return answer(setting.reply, Err(refusal)),
        };
        let Some(lease) = &self.inputs.lease else { return };
        let connection = &lease.process().connection;
        let gone = || Refusal::Agent(AgentFailure::Exited(crate::agent::Ended::default()));
        if matches!(setting.wish, Wish::Rpc { notify: true, .. }) {
            let sent = connection.notify(&method, &params).map_err(|_| gone());
            let null = RawValue::NULL.to_owned();
            return answer(setting.reply, sent.map(|()| (null, self.log.appended())));
        }
        let limits = &self.context.limits;
        let limit = match setting.wish {
            Wish::Forked(_) => limits.stop_stdin,
            _ => limits.session_new,
        };
        setting.deadline = Instant::now() + limit;
        match connection.call(&method, &params) {
            Ok(call) => drop(self.settings.insert(call, setting)),
            Err(_) => answer(setting.reply, Err(gone())),
        }
    }

    /// Handles the result of a call.
    pub(super) fn granted(&mut self, setting: Setting, result: &RawValue) {
        self.record.called |= !matches!(setting.wish, Wish::Cancel(_));
        let mut event = SessionChanged { by: &setting.by.id, ..SessionChanged::default() };
        match &setting.wish {
            Wish::Mode(mode) if self.dialect().has_modes() => event.current_mode_id = Some(mode),
            Wish::Mode(_) | Wish::Config { .. } => event.config_options = acp::config_options_of(result),
            // The agent reports the effect of the cancel in its updates.
            Wish::Cancel(_) => return answer(setting.reply, Ok((result.to_owned(), self.log.appended()))),
            Wish::Fork => return self.forked(setting, result),
            Wish::Forked(_) => return self.given_away(setting),
            Wish::Rpc { .. } => {
                let ours = self.own_result(result);
                return answer(setting.reply, Ok((ours, self.log.appended())));
            }
        }
        let seq = self.changed(Written::from(&event));
        let now = match &setting.wish {
            Wish::Mode(_) => &self.fold.modes,
            _ => &self.fold.config_options,
        };
        let null = || RawValue::NULL.to_owned();
        answer(setting.reply, Ok((now.clone().unwrap_or_else(null), seq)));
    }

    /// The result with the gateway's session id if it contains the agent's id of this session.
    fn own_result(&self, result: &RawValue) -> Box<RawValue> {
        let named = acp::session_id_of(result).ok().flatten();
        let replaced = named
            .filter(|id| self.record.agent_session_id.as_deref() == Some(&**id))
            .and_then(|_| acp::replace_session_id(result, &self.record.session_id).ok());
        replaced.unwrap_or_else(|| result.to_owned())
    }

    /// Handles a new fork. It exists in this process, so it is closed here before another process loads it.
    fn forked(&mut self, setting: Setting, result: &RawValue) {
        let Setting { by, trace, reply, deadline, .. } = setting;
        if let (Some(lease), Ok(forked)) = (&self.inputs.lease, acp::NewSession::parse(result)) {
            lease.holds(&forked.session_id);
        }
        let wish = Wish::Forked(result.to_owned());
        let setting = Setting { by, wish, trace, reply, deadline };
        if self.record.own_folder && !self.record.shared_folder {
            self.record.shared_folder = true;
            // No event is appended, so the position up to which the record is exact stays the same.
            let mut records = Records::default();
            self.record.put(self.indexed_at.as_deref(), &mut records);
            self.log.put(records);
        }
        let closes = self.inputs.lease.as_ref().map(|l| l.process().initialized.capabilities.session.close);
        match (closes, self.record.agent_session_id.clone()) {
            (Some(true), Some(id)) => self.send_wish(setting, &id),
            _ => self.given_away(setting),
        }
    }

    fn given_away(&self, setting: Setting) {
        if let Wish::Forked(result) = setting.wish {
            answer(setting.reply, Ok((result, self.log.appended())));
        }
    }

    /// Handles the failure of a call. A fork stays usable even if the agent failed to close it here.
    pub(super) fn refuse_setting(&self, setting: Setting, refusal: &Refusal) {
        if matches!(setting.wish, Wish::Forked(_)) {
            self.given_away(setting);
        } else {
            answer(setting.reply, Err(refusal.clone()));
        }
    }

    /// Sends `$/cancel_request` for a call. A later response is ignored.
    pub(super) fn abandon(&self, call: CallId) {
        if let Some(lease) = &self.inputs.lease {
            // If stdin is closed, the batches report the end of the process.
            let params = acp::cancel_request(call);
            drop(lease.process().connection.notify(acp::method::CANCEL_REQUEST, &params));
        }
    }
}

fn not_ours() -> Refusal {
    let detail = "expected the id of this session or none; the gateway inserts it".to_owned();
    Refusal::Invalid { pointer: "/params/sessionId".to_owned(), detail }
}

fn unsupported(method: &str) -> Refusal {
    Refusal::Agent(AgentFailure::Unsupported { method: method.to_owned() })
}
