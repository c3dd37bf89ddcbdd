//! Sessions are set up, listed and let go: the methods that do it.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Error,
    ForkSessionRequest, ForkSessionResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionId, SessionInfo,
};
use serde_json::value::RawValue;

use super::agent::{Agent, parse};
use super::session::Place;

impl Agent {
    pub(super) fn create(&mut self, params: &RawValue) -> Result<(SessionId, NewSessionResponse), Error> {
        let request: NewSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, &request.mcp_servers)?;
        self.sign_in.check()?;
        let session = self.sessions.create(place)?;
        let record = session.record();
        let response = NewSessionResponse::new(session.id.clone())
            .modes(record.mode.state())
            .config_options(record.options.list(self.offer.booleans));
        Ok((session.id.clone(), response))
    }

    /// Replays the history before it answers.
    pub(super) async fn load(
        &mut self,
        params: &RawValue,
    ) -> Result<(SessionId, LoadSessionResponse), Error> {
        let request: LoadSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, &request.mcp_servers)?;
        self.sign_in.check()?;
        let session = self.sessions.reopen(&request.session_id, place)?;
        let history = session.record().history.clone();
        for update in history.updates() {
            self.peer.update(&session.id, update.clone()).await;
        }
        let record = session.record();
        let response = LoadSessionResponse::new()
            .modes(record.mode.state())
            .config_options(record.options.list(self.offer.booleans));
        Ok((session.id.clone(), response))
    }

    pub(super) fn resume(&mut self, params: &RawValue) -> Result<(SessionId, ResumeSessionResponse), Error> {
        let request: ResumeSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, &request.mcp_servers)?;
        self.sign_in.check()?;
        let session = self.sessions.reopen(&request.session_id, place)?;
        let record = session.record();
        let response = ResumeSessionResponse::new()
            .modes(record.mode.state())
            .config_options(record.options.list(self.offer.booleans));
        Ok((session.id.clone(), response))
    }

    pub(super) fn fork(&mut self, params: &RawValue) -> Result<(SessionId, ForkSessionResponse), Error> {
        let request: ForkSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, &request.mcp_servers)?;
        self.sign_in.check()?;
        let session = self.sessions.fork(&request.session_id, place)?;
        let record = session.record();
        let response = ForkSessionResponse::new(session.id.clone())
            .modes(record.mode.state())
            .config_options(record.options.list(self.offer.booleans));
        Ok((session.id.clone(), response))
    }

    pub(super) fn list(&self, params: &RawValue) -> Result<ListSessionsResponse, Error> {
        let request: ListSessionsRequest = parse(params)?;
        let page = self.sessions.page(request.cwd.as_deref(), request.cursor.as_deref())?;
        let sessions = page
            .entries
            .into_iter()
            .map(|entry| {
                SessionInfo::new(entry.session_id, entry.place.cwd)
                    .additional_directories(entry.place.additional_directories)
                    .title(entry.title)
                    .updated_at(entry.updated_at.to_string())
            })
            .collect();
        Ok(ListSessionsResponse::new(sessions).next_cursor(page.next))
    }

    pub(super) async fn close(&mut self, params: &RawValue) -> Result<CloseSessionResponse, Error> {
        let request: CloseSessionRequest = parse(params)?;
        self.sessions.close(&request.session_id).await?;
        Ok(CloseSessionResponse::new())
    }

    pub(super) async fn delete(&mut self, params: &RawValue) -> Result<DeleteSessionResponse, Error> {
        let request: DeleteSessionRequest = parse(params)?;
        self.sessions.delete(&request.session_id).await?;
        Ok(DeleteSessionResponse::new())
    }
}

/// Where a session works, as ACP wants it: absolute.
fn place(cwd: PathBuf, directories: Vec<PathBuf>, servers: &[McpServer]) -> Result<Place, Error> {
    if !cwd.is_absolute() {
        return Err(Error::invalid_params().data("cwd must be an absolute path"));
    }
    if !directories.iter().all(|directory| directory.is_absolute()) {
        return Err(Error::invalid_params().data("additionalDirectories must be absolute paths"));
    }
    let name = |server: &McpServer| match server {
        McpServer::Http(server) => Some(server.name.clone()),
        McpServer::Sse(server) => Some(server.name.clone()),
        McpServer::Stdio(server) => Some(server.name.clone()),
        _ => None,
    };
    Ok(Place {
        cwd,
        additional_directories: directories,
        mcp_servers: servers.iter().filter_map(name).collect(),
    })
}
