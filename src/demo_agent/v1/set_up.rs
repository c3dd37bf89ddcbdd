//! The methods for session set-up.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    Error, ForkSessionRequest, ForkSessionResponse, LoadSessionRequest, LoadSessionResponse, McpServer,
    NewSessionRequest, NewSessionResponse, ResumeSessionRequest, ResumeSessionResponse, SessionId,
};
use serde_json::value::RawValue;

use super::super::agent::{Agent, parse};
use super::super::record::Workspace;

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

    /// Replays the history before the answer.
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
}

fn place(cwd: PathBuf, directories: Vec<PathBuf>, servers: &[McpServer]) -> Result<Workspace, Error> {
    let name = |server: &McpServer| match server {
        McpServer::Http(server) => Some(server.name.clone()),
        McpServer::Sse(server) => Some(server.name.clone()),
        McpServer::Stdio(server) => Some(server.name.clone()),
        _ => None,
    };
    Workspace::new(cwd, directories, servers.iter().filter_map(name).collect())
}
