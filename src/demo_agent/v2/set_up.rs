//! Session set-up in v2, and the replay of the history.

use agent_client_protocol_schema::v1::Error;
use agent_client_protocol_schema::v2::{
    AbsolutePath, ForkSessionRequest, ForkSessionResponse, IdleStateUpdate, McpServer, NewSessionRequest,
    NewSessionResponse, ReplayFrom, ResumeSessionRequest, ResumeSessionResponse, SessionInfoUpdate,
    SessionUpdate, StateUpdate,
};
use serde_json::value::RawValue;

use super::super::agent::{Agent, parse};
use super::super::record::Workspace;
use super::settings::{available, options};
use super::updates::{replay, session_id_v1};

impl Agent {
    pub(super) fn new_v2(&mut self, params: &RawValue) -> Result<NewSessionResponse, Error> {
        let request: NewSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, request.mcp_servers)?;
        self.sign_in.check()?;
        let session = self.sessions.create(place)?;
        let record = session.record();
        Ok(NewSessionResponse::new(session.id.to_string())
            .config_options(options(&record))
            .available_commands(available()))
    }

    /// On request, sends the history first, then the current state, then the answer.
    pub(super) async fn resume_v2(&mut self, params: &RawValue) -> Result<ResumeSessionResponse, Error> {
        let request: ResumeSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, request.mcp_servers)?;
        self.sign_in.check()?;
        let replays = match request.replay_from {
            None => false,
            Some(ReplayFrom::Start(_)) => true,
            Some(_) => {
                return Err(Error::invalid_params().data("the demo replays from the start or not at all"));
            }
        };
        let session = self.sessions.reopen(&session_id_v1(&request.session_id), place)?;
        let record = session.record().clone();
        let updates = if replays { replay(&record.history) } else { Vec::new() };
        let mut info = SessionInfoUpdate::new().updated_at(record.updated_at.to_string());
        if let Some(title) = record.title.clone() {
            info = info.title(title);
        }
        let idle = SessionUpdate::StateUpdate(StateUpdate::Idle(IdleStateUpdate::new()));
        for update in updates.into_iter().chain([SessionUpdate::SessionInfoUpdate(info), idle]) {
            self.peer.update_v2(&session.id, update).await;
        }
        Ok(ResumeSessionResponse::new().config_options(options(&record)).available_commands(available()))
    }

    pub(super) fn fork_v2(&mut self, params: &RawValue) -> Result<ForkSessionResponse, Error> {
        let request: ForkSessionRequest = parse(params)?;
        let place = place(request.cwd, request.additional_directories, request.mcp_servers)?;
        self.sign_in.check()?;
        let session = self.sessions.fork(&session_id_v1(&request.session_id), place)?;
        let record = session.record();
        Ok(ForkSessionResponse::new(session.id.to_string())
            .config_options(options(&record))
            .available_commands(available()))
    }
}

fn place(
    cwd: AbsolutePath,
    directories: Vec<AbsolutePath>,
    servers: Vec<McpServer>,
) -> Result<Workspace, Error> {
    let name = |server| match server {
        McpServer::Http(server) => Some(server.name),
        McpServer::Stdio(server) => Some(server.name),
        _ => None,
    };
    let directories = directories.into_iter().map(AbsolutePath::into_inner).collect();
    Workspace::new(cwd.into_inner(), directories, servers.into_iter().filter_map(name).collect())
}
