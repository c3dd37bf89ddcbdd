//! Lists, closes and deletes sessions. Both versions of ACP use the same messages.

use agent_client_protocol_schema::v1::{
    CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Error,
    ListSessionsRequest, ListSessionsResponse, SessionInfo,
};
use serde_json::value::RawValue;

use super::agent::{Agent, parse};

impl Agent {
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
