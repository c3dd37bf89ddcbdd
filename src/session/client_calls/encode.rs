//! Checks of client-initiated calls, and their encoding for the agent.

use serde_json::value::RawValue;

use crate::acp::client_input_policy::{self, ClientInputError};
use crate::acp::{
    self, AcpVersion, AgentCapabilities, ConfigValue, ModePolicy, SessionSetup, TraceContext,
};
use crate::agent::AgentSpec;
use crate::session::command::ClientCall;
use crate::session::error::{CallError, InputError, ProcessError, SessionError, TurnRunning};
use crate::session::origin::can_fork;
use crate::types::{PromptId, SessionId};

/// The rules for calls that do not depend on a process.
pub(in crate::session) struct CallRules<'a> {
    pub(in crate::session) session: SessionId,
    pub(in crate::session) spec: &'a AgentSpec,
    pub(in crate::session) modes: ModePolicy<'a>,
    /// Whether the agent reports `models` and therefore accepts `session/set_model`.
    pub(in crate::session) accepts_models: bool,
    pub(in crate::session) running: Option<PromptId>,
}

impl CallRules<'_> {
    pub(in crate::session) fn check(&self, call: &ClientCall) -> Result<(), CallError> {
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
pub(in crate::session) fn permit_mode(denying: Option<&str>) -> Result<(), InputError> {
    client_input_policy::permit_mode(denying).map_err(|denied| InputError::from_policy(&denied, ""))
}

/// The agent's session that a call is encoded for.
pub(in crate::session) struct CallTarget<'a> {
    /// The agent's id of the session.
    pub(in crate::session) id: &'a str,
    pub(in crate::session) version: AcpVersion,
    pub(in crate::session) capabilities: &'a AgentCapabilities,
    pub(in crate::session) config_options: Option<&'a RawValue>,
    /// The setup of the session, which a fork repeats.
    pub(in crate::session) setup: SessionSetup<'a>,
}

impl CallTarget<'_> {
    /// Encodes a checked call for the agent. Returns its method and its params.
    pub(in crate::session) fn encode(
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
