//! The gateway of the local data folder: its address, and the key of this process, through the control socket.

use std::sync::{Mutex, MutexGuard};

use http::HeaderValue;

use super::failure::AttachFailure;
use super::gateway_url::acp_url;
use super::start::{StartError, Starter};
use crate::attach::{AllowError, Locator, Target};
use crate::config::DataDir;
use crate::control::{Access, ClientError, ControlClient, Secret, Welcome};
use crate::shutdown::lock_or_abort;
use crate::telemetry::ErrorChain;
use crate::types::AgentName;

/// Finds the gateway of a data folder, or starts it.
pub(super) struct LocalGateway {
    data: DataDir,
    agent: Option<AgentName>,
    /// The key of the person. Without it, the gateway creates a key that ends with the connection.
    own_key: Option<Secret>,
    state: Mutex<State>,
}

struct State {
    control: Option<ControlClient>,
    key: Option<Secret>,
    starter: Starter,
    /// Whether a gateway may be started. A gateway that a person has started and stopped stays stopped.
    may_start: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LocalError {
    #[error("no gateway uses the data folder now")]
    Stopped(#[source] ClientError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the gateway sent an invalid address or key")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl LocalGateway {
    pub(super) fn new(
        data: DataDir,
        starter: Starter,
        agent: Option<AgentName>,
        key: Option<String>,
    ) -> Self {
        let state = State {
            control: None,
            key: None,
            starter,
            may_start: true,
        };
        Self {
            data,
            agent,
            own_key: key.map(Secret),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.state.lock())
    }

    /// Finds the gateway, or starts it. Blocks.
    pub(super) fn find(&self) -> Result<Target, LocalError> {
        let mut state = self.state();
        let welcome = self.welcome(&mut state)?;
        state.may_start = welcome.exits_when_idle;
        if welcome.key.is_some() {
            state.key = welcome.key;
        }
        drop(state);
        let url = acp_url(&welcome.url, self.agent.as_ref())
            .map_err(|error| LocalError::Invalid(error.into()))?;
        let key = self.own_key.clone().or_else(|| self.state().key.clone());
        let key = key.ok_or_else(|| LocalError::Invalid(AttachFailure::NoKey.into()))?;
        let authorization =
            authorization(&key.0).map_err(|error| LocalError::Invalid(error.into()))?;
        Ok(Target { url, authorization })
    }

    fn welcome(&self, state: &mut State) -> Result<Welcome, LocalError> {
        let access = match &self.own_key {
            Some(_) => Access::OwnKey,
            None => Access::Editor {
                former: state.key.clone(),
            },
        };
        if let Some(welcome) = state
            .control
            .as_mut()
            .and_then(|control| control.hello(access.clone()).ok())
        {
            return Ok(welcome);
        }
        // The gateway revokes the key of a connection after its end, so the former connection ends first.
        state.control = None;
        let connect = || {
            let mut control = ControlClient::connect(&self.data.private())?;
            let welcome = control.hello(access.clone())?;
            Ok((control, welcome))
        };
        let (control, welcome) = if state.may_start {
            state.starter.connect_or_start(&self.data, connect)?
        } else {
            connect().map_err(LocalError::Stopped)?
        };
        state.control = Some(control);
        Ok(welcome)
    }
}

/// The header with a key.
pub(in crate::cli) fn authorization(
    key: &str,
) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Locator for LocalGateway {
    fn locate(&self, renew_key: bool) -> Result<Target, String> {
        if renew_key {
            let mut state = self.state();
            // The gateway revokes the key of a connection after its end.
            (state.control, state.key) = (None, None);
        }
        self.find().map_err(|error| ErrorChain(&error).to_string())
    }

    fn renews_keys(&self) -> bool {
        self.own_key.is_none()
    }

    fn allow(&self, folders: &[String]) -> Result<(), AllowError> {
        let mut state = self.state();
        let lost = || AllowError::Failed("the control socket of the gateway is closed".to_owned());
        let control = state.control.as_mut().ok_or_else(lost)?;
        for folder in folders {
            control.allow(folder).map_err(|error| match error {
                ClientError::Rejected(reason) => AllowError::Rejected(reason),
                error => AllowError::Failed(ErrorChain(&error).to_string()),
            })?;
        }
        Ok(())
    }
}
