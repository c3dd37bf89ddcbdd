//! The methods of ACP v1. The methods for session set-up are in [`set_up`].

mod set_up;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthenticateRequest, AuthenticateResponse,
    AvailableCommandsUpdate, Error, Implementation, InitializeRequest, InitializeResponse,
    LogoutCapabilities, LogoutResponse, PromptCapabilities, PromptRequest, PromptResponse,
    SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionForkCapabilities, SessionId, SessionListCapabilities,
    SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::agent::{Agent, parse};
use super::client_support::ClientSupport;
use super::options::{Choice as _, Mode};
use super::turn::Turn;
use super::{commands, scenes};

impl Agent {
    pub(super) async fn request_v1(&mut self, id: &RawValue, method: &str, params: &RawValue) {
        let peer = self.peer.clone();
        match method {
            "initialize" => peer.answer(id, self.initialize(params)).await,
            "authenticate" => peer.answer(id, self.authenticate(params)).await,
            "logout" => peer.answer(id, self.sign_in.logout().map(|()| LogoutResponse::new())).await,
            "session/new" => {
                let made = self.create(params);
                self.answer_set_up(id, made).await;
            }
            "session/load" => {
                let loaded = self.load(params).await;
                self.answer_set_up(id, loaded).await;
            }
            "session/resume" => {
                let resumed = self.resume(params);
                self.answer_set_up(id, resumed).await;
            }
            "session/fork" => {
                let forked = self.fork(params);
                self.answer_set_up(id, forked).await;
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
            other => self.method_not_found(id, other).await,
        }
    }

    fn initialize(&mut self, params: &RawValue) -> Result<InitializeResponse, Error> {
        let request: InitializeRequest = parse(params)?;
        self.offer = ClientSupport::of(request.client_capabilities);
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
        if self.sign_in.is_configured() {
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

    /// Answers a session set-up and sends the available commands.
    async fn answer_set_up<T: Serialize>(&self, id: &RawValue, opened: Result<(SessionId, T), Error>) {
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
            .ok_or_else(|| Error::invalid_params().data("modeId is not a mode of the session"))?;
        session.change(|record| record.mode = mode)?;
        self.peer.update(&session.id, mode.update()).await;
        Ok(SetSessionModeResponse::new())
    }

    fn set_option(&self, params: &RawValue) -> Result<SetSessionConfigOptionResponse, Error> {
        let request: SetSessionConfigOptionRequest = parse(params)?;
        let session = self.sessions.get(&request.session_id)?;
        let (id, on) = (request.value.as_value_id().map(|id| &*id.0), request.value.as_bool());
        let mut options = session.record().options;
        options.set(&request.config_id.0, id, on)?;
        session.change(|record| record.options = options)?;
        Ok(SetSessionConfigOptionResponse::new(options.list(self.offer.booleans)))
    }

    /// Starts the turn as a separate task, which answers at the end.
    fn prompt(&mut self, id: &RawValue, params: &RawValue) -> Result<(), Error> {
        let request: PromptRequest = parse(params)?;
        self.sign_in.check()?;
        let session = self.sessions.get(&request.session_id)?;
        let (running, answered) = session.begin(Some(id)).ok_or_else(Turn::already_running)?;
        let (peer, id) = (self.peer.clone(), id.to_owned());
        let mut turn = Turn::new(running, peer.clone(), self.ids.clone(), self.offer);
        drop(self.shutdown.spawn(async move {
            let outcome = match turn.begin(&request.prompt) {
                Ok((number, _)) => {
                    scenes::play(&mut turn, &request.prompt, number, request.meta.as_ref()).await
                }
                Err(error) => Err(error),
            };
            let response = outcome.map(|(reason, usage)| PromptResponse::new(reason).usage(usage));
            // The turn ends before its answer is sent, so the client may prompt again as soon as it has read the
            // answer.
            let afterword = turn.finish();
            peer.answer(&id, response).await;
            drop(answered);
            for update in afterword.updates {
                peer.update(&request.session_id, update).await;
            }
        }));
        Ok(())
    }
}
