//! The methods of ACP: params in, results out. What sets sessions up stands in [`super::set_up`]; what is done to
//! them is done by [`Sessions`].

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthenticateRequest, AuthenticateResponse,
    AvailableCommandsUpdate, CancelNotification, CancelRequestNotification, ConfigOptionUpdate,
    CurrentModeUpdate, Error, Implementation, InitializeRequest, InitializeResponse, LogoutCapabilities,
    LogoutResponse, PromptCapabilities, PromptRequest, PromptResponse,
    SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionForkCapabilities, SessionId, SessionListCapabilities,
    SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::shutdown::Shutdown;
use crate::types::Ids;

use super::offer::Offer;
use super::options::{Choice as _, LENGTH, Length, Mode, PACE, Pace, THOUGHTS};
use super::peer::Peer;
use super::session::Record;
use super::sessions::Sessions;
use super::sign_in::SignIn;
use super::store::Store;
use super::turn::Turn;
use super::{commands, scenes};

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) peer: Peer,
    ids: Ids,
    shutdown: Shutdown,
    pub(super) sessions: Sessions,
    pub(super) sign_in: SignIn,
    pub(super) offer: Offer,
}

impl Agent {
    pub(super) fn new(peer: Peer, store: Store, sign_in: SignIn, shutdown: Shutdown) -> Self {
        let ids = Ids::system();
        let sessions = Sessions::new(store, ids.clone());
        Self { peer, ids, shutdown, sessions, sign_in, offer: Offer::default() }
    }

    pub(super) async fn request(&mut self, id: &RawValue, method: &str, params: &RawValue) {
        let peer = self.peer.clone();
        match method {
            "initialize" => peer.answer(id, self.initialize(params)).await,
            "authenticate" => peer.answer(id, self.authenticate(params)).await,
            "logout" => peer.answer(id, self.sign_in.logout().map(|()| LogoutResponse::new())).await,
            "session/new" => {
                let made = self.create(params);
                self.opened(id, made).await;
            }
            "session/load" => {
                let loaded = self.load(params).await;
                self.opened(id, loaded).await;
            }
            "session/resume" => {
                let resumed = self.resume(params);
                self.opened(id, resumed).await;
            }
            "session/fork" => {
                let forked = self.fork(params);
                self.opened(id, forked).await;
            }
            "session/list" => peer.answer(id, self.list(params)).await,
            "session/close" => peer.answer(id, self.close(params).await).await,
            "session/delete" => peer.answer(id, self.delete(params).await).await,
            "session/set_mode" => peer.answer(id, self.set_mode(params).await).await,
            "session/set_config_option" => peer.answer(id, self.set_option(params)).await,
            "session/prompt" => {
                if let Err(error) = self.prompt(id, params) {
                    peer.answer::<()>(id, Err(error)).await;
                }
            }
            other => {
                let unknown = Error::method_not_found().data(serde_json::json!({ "method": other }));
                peer.answer::<()>(id, Err(unknown)).await;
            }
        }
    }

    /// Notifications have no answer: what is unknown or malformed is ignored.
    pub(super) fn notification(&mut self, method: &str, params: &RawValue) {
        match method {
            "session/cancel" => {
                if let Ok(cancel) = parse::<CancelNotification>(params)
                    && let Ok(session) = self.sessions.get(&cancel.session_id)
                {
                    session.cancel();
                }
            }
            "$/cancel_request" => {
                if let Ok(cancel) = parse::<CancelRequestNotification>(params)
                    && let Ok(id) = serde_json::to_string(&cancel.request_id)
                    && let Some(session) = self.sessions.playing(&id)
                {
                    session.cancel();
                }
            }
            _ => {}
        }
    }

    pub(super) fn answered(&self, id: &RawValue, outcome: Result<&RawValue, Error>) {
        self.peer.answered(id, outcome);
    }

    /// The client is gone: running turns end as if cancelled.
    pub(super) fn end(self) {
        self.sessions.cancel_all();
    }

    fn initialize(&mut self, params: &RawValue) -> Result<InitializeResponse, Error> {
        let request: InitializeRequest = parse(params)?;
        self.offer = Offer::of(request.client_capabilities);
        let sessions = SessionCapabilities::new()
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .fork(SessionForkCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .delete(SessionDeleteCapabilities::new());
        let mut capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).audio(true).embedded_context(true))
            .session_capabilities(sessions);
        if self.sign_in.exists() {
            capabilities = capabilities.auth(AgentAuthCapabilities::new().logout(LogoutCapabilities::new()));
        }
        let info =
            Implementation::new("acp-gateway-demo", env!("CARGO_PKG_VERSION")).title("Demo agent".to_owned());
        Ok(InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .auth_methods(self.sign_in.methods(self.offer))
            .agent_info(info))
    }

    fn authenticate(&self, params: &RawValue) -> Result<AuthenticateResponse, Error> {
        let request: AuthenticateRequest = parse(params)?;
        self.sign_in.authenticate(&request.method_id.0)?;
        Ok(AuthenticateResponse::new())
    }

    /// Answers what set a session up, and tells what commands it has.
    async fn opened<T: Serialize>(&self, id: &RawValue, opened: Result<(SessionId, T), Error>) {
        match opened {
            Ok((session, response)) => {
                self.peer.answer(id, Ok(response)).await;
                let commands = AvailableCommandsUpdate::new(commands::available());
                self.peer.update(&session, SessionUpdate::AvailableCommandsUpdate(commands)).await;
            }
            Err(error) => self.peer.answer::<T>(id, Err(error)).await,
        }
    }

    async fn set_mode(&self, params: &RawValue) -> Result<SetSessionModeResponse, Error> {
        let request: SetSessionModeRequest = parse(params)?;
        let session = self.sessions.get(&request.session_id)?;
        let mode = Mode::from_id(&request.mode_id.0)
            .ok_or_else(|| Error::invalid_params().data("modeId is none of the session's modes"))?;
        session.change(|record| record.mode = mode)?;
        let update = SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.id()));
        self.peer.update(&session.id, update).await;
        Ok(SetSessionModeResponse::new())
    }

    fn set_option(&self, params: &RawValue) -> Result<SetSessionConfigOptionResponse, Error> {
        let request: SetSessionConfigOptionRequest = parse(params)?;
        let session = self.sessions.get(&request.session_id)?;
        let wrong = || Error::invalid_params().data("the option has no such value");
        let id = request.value.as_value_id().map(|id| &*id.0);
        let mut options = session.record().options;
        match &*request.config_id.0 {
            PACE => options.pace = id.and_then(Pace::from_id).ok_or_else(wrong)?,
            LENGTH => options.length = id.and_then(Length::from_id).ok_or_else(wrong)?,
            THOUGHTS => options.thoughts = request.value.as_bool().ok_or_else(wrong)?,
            _ => return Err(Error::invalid_params().data("configId is none of the session's options")),
        }
        session.change(|record| record.options = options)?;
        Ok(SetSessionConfigOptionResponse::new(options.list(self.offer.booleans)))
    }

    /// Starts the turn as a task of its own, which answers when it ends.
    fn prompt(&mut self, id: &RawValue, params: &RawValue) -> Result<(), Error> {
        let request: PromptRequest = parse(params)?;
        self.sign_in.check()?;
        let session = self.sessions.get(&request.session_id)?;
        let (running, answered) = session
            .begin(id)
            .ok_or_else(|| Error::invalid_request().data("a turn is already running in this session"))?;
        let (peer, id) = (self.peer.clone(), id.to_owned());
        let turn = Turn::new(running, peer.clone(), self.ids.clone(), self.offer);
        drop(self.shutdown.spawn(async move {
            // The turn is over before its answer is sent: whoever reads the answer may prompt again.
            let (outcome, afterword) = scenes::play(turn, &request.prompt, request.meta.as_ref()).await;
            let response = outcome.map(|(reason, usage)| PromptResponse::new(reason).usage(usage));
            peer.answer(&id, response).await;
            drop(answered);
            for update in afterword {
                peer.update(&request.session_id, update).await;
            }
        }));
        Ok(())
    }
}

/// The client gets its complete list of options after the agent changed one itself.
pub(super) fn options_changed(record: &Record, offer: Offer) -> SessionUpdate {
    SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(record.options.list(offer.booleans)))
}

/// Absent params are an empty object: `session/list` needs none.
pub(super) fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T, Error> {
    let text = if params.get() == "null" { "{}" } else { params.get() };
    serde_json::from_str(text).map_err(|error| Error::invalid_params().data(error.to_string()))
}
