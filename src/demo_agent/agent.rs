//! The methods of ACP: params in, results out. What they do to sessions is done by [`Sessions`].

use std::path::Path;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, AvailableCommandsUpdate, CancelNotification, CancelRequestNotification,
    CloseSessionRequest, CloseSessionResponse, ConfigOptionUpdate, CurrentModeUpdate, DeleteSessionRequest,
    DeleteSessionResponse, Error, Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    PromptCapabilities, PromptRequest, PromptResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionDeleteCapabilities, SessionId, SessionInfo,
    SessionListCapabilities, SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::shutdown::Shutdown;
use crate::types::Ids;

use super::options::{Choice as _, LENGTH, Length, Mode, PACE, Pace, THOUGHTS};
use super::peer::Peer;
use super::session::Record;
use super::sessions::Sessions;
use super::store::Store;
use super::turn::Turn;
use super::{commands, scenes};

#[derive(Debug)]
pub(super) struct Agent {
    peer: Peer,
    ids: Ids,
    shutdown: Shutdown,
    sessions: Sessions,
    /// Whether the client knows on-off options.
    booleans: bool,
}

impl Agent {
    pub(super) fn new(peer: Peer, store: Store, shutdown: Shutdown) -> Self {
        let ids = Ids::system();
        let sessions = Sessions::new(store, ids.clone());
        Self { peer, ids, shutdown, sessions, booleans: false }
    }

    pub(super) async fn request(&mut self, id: &RawValue, method: &str, params: &RawValue) {
        let peer = self.peer.clone();
        match method {
            "initialize" => peer.answer(id, self.initialize(params)).await,
            "session/new" => {
                let made = self.create(params);
                let session = made.as_ref().ok().map(|response| response.session_id.clone());
                peer.answer(id, made).await;
                self.announce(session).await;
            }
            "session/load" => {
                let loaded = self.load(params).await;
                let session = loaded.as_ref().ok().map(|(session, _)| session.clone());
                peer.answer(id, loaded.map(|(_, response)| response)).await;
                self.announce(session).await;
            }
            "session/resume" => {
                let resumed = self.resume(params);
                let session = resumed.as_ref().ok().map(|(session, _)| session.clone());
                peer.answer(id, resumed.map(|(_, response)| response)).await;
                self.announce(session).await;
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
        self.booleans = request
            .client_capabilities
            .session
            .and_then(|session| session.config_options)
            .is_some_and(|options| options.boolean.is_some());
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .delete(SessionDeleteCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .session_capabilities(sessions);
        let info =
            Implementation::new("acp-gateway-demo", env!("CARGO_PKG_VERSION")).title("Demo agent".to_owned());
        Ok(InitializeResponse::new(ProtocolVersion::V1).agent_capabilities(capabilities).agent_info(info))
    }

    fn create(&mut self, params: &RawValue) -> Result<NewSessionResponse, Error> {
        let request: NewSessionRequest = parse(params)?;
        absolute(&request.cwd)?;
        let session = self.sessions.create(request.cwd)?;
        let record = session.record();
        Ok(NewSessionResponse::new(session.id.clone())
            .modes(record.mode.state())
            .config_options(record.options.list(self.booleans)))
    }

    /// Replays the history before it answers.
    async fn load(&mut self, params: &RawValue) -> Result<(SessionId, LoadSessionResponse), Error> {
        let request: LoadSessionRequest = parse(params)?;
        absolute(&request.cwd)?;
        let session = self.sessions.reopen(&request.session_id, &request.cwd)?;
        let history = session.record().history.clone();
        for update in history.updates() {
            self.peer.update(&session.id, update.clone()).await;
        }
        let record = session.record();
        let response = LoadSessionResponse::new()
            .modes(record.mode.state())
            .config_options(record.options.list(self.booleans));
        Ok((session.id.clone(), response))
    }

    fn resume(&mut self, params: &RawValue) -> Result<(SessionId, ResumeSessionResponse), Error> {
        let request: ResumeSessionRequest = parse(params)?;
        absolute(&request.cwd)?;
        let session = self.sessions.reopen(&request.session_id, &request.cwd)?;
        let record = session.record();
        let response = ResumeSessionResponse::new()
            .modes(record.mode.state())
            .config_options(record.options.list(self.booleans));
        Ok((session.id.clone(), response))
    }

    fn list(&self, params: &RawValue) -> Result<ListSessionsResponse, Error> {
        let request: ListSessionsRequest = parse(params)?;
        let page = self.sessions.page(request.cwd.as_deref(), request.cursor.as_deref())?;
        let sessions = page
            .entries
            .into_iter()
            .map(|entry| {
                SessionInfo::new(entry.session_id, entry.cwd)
                    .title(entry.title)
                    .updated_at(entry.updated_at.to_string())
            })
            .collect();
        Ok(ListSessionsResponse::new(sessions).next_cursor(page.next))
    }

    async fn close(&mut self, params: &RawValue) -> Result<CloseSessionResponse, Error> {
        let request: CloseSessionRequest = parse(params)?;
        self.sessions.close(&request.session_id).await?;
        Ok(CloseSessionResponse::new())
    }

    async fn delete(&mut self, params: &RawValue) -> Result<DeleteSessionResponse, Error> {
        let request: DeleteSessionRequest = parse(params)?;
        self.sessions.delete(&request.session_id).await?;
        Ok(DeleteSessionResponse::new())
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
        Ok(SetSessionConfigOptionResponse::new(options.list(self.booleans)))
    }

    /// Starts the turn as a task of its own, which answers when it ends.
    fn prompt(&mut self, id: &RawValue, params: &RawValue) -> Result<(), Error> {
        let request: PromptRequest = parse(params)?;
        let session = self.sessions.get(&request.session_id)?;
        let (running, answered) = session
            .begin(id)
            .ok_or_else(|| Error::invalid_request().data("a turn is already running in this session"))?;
        let (peer, id) = (self.peer.clone(), id.to_owned());
        let turn = Turn::new(running, peer.clone(), self.ids.clone(), self.booleans);
        drop(self.shutdown.spawn(async move {
            // The turn is over before its answer is sent: whoever reads the answer may prompt again.
            let outcome = scenes::play(turn, &request.prompt).await;
            peer.answer(&id, outcome.map(PromptResponse::new)).await;
            drop(answered);
        }));
        Ok(())
    }

    async fn announce(&self, session: Option<SessionId>) {
        if let Some(session) = session {
            let commands = AvailableCommandsUpdate::new(commands::available());
            self.peer.update(&session, SessionUpdate::AvailableCommandsUpdate(commands)).await;
        }
    }
}

/// The client gets its complete list of options after the agent changed one itself.
pub(super) fn options_changed(record: &Record, booleans: bool) -> SessionUpdate {
    SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(record.options.list(booleans)))
}

/// Absent params are an empty object: `session/list` needs none.
fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T, Error> {
    let text = if params.get() == "null" { "{}" } else { params.get() };
    serde_json::from_str(text).map_err(|error| Error::invalid_params().data(error.to_string()))
}

fn absolute(cwd: &Path) -> Result<(), Error> {
    if cwd.is_absolute() { Ok(()) } else { Err(Error::invalid_params().data("cwd must be an absolute path")) }
}
