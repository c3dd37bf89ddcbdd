//! The agent's side of the connection: version negotiation, and the parts common to both versions of ACP. The
//! methods are in [`super::v1`] and [`super::v2`], and [`Sessions`] manages the sessions.

use agent_client_protocol_schema::v1::{CancelNotification, CancelRequestNotification, Error};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::shutdown::Shutdown;
use crate::types::Ids;

use super::client_support::ClientSupport;
use super::peer::Peer;
use super::sessions::Sessions;
use super::sign_in::SignIn;
use super::store::Store;
use super::version::{RequestedVersion, Version};

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) peer: Peer,
    pub(super) ids: Ids,
    pub(super) shutdown: Shutdown,
    pub(super) sessions: Sessions,
    pub(super) sign_in: SignIn,
    pub(super) offer: ClientSupport,
}

impl Agent {
    pub(super) fn new(peer: Peer, store: Store, sign_in: SignIn, shutdown: Shutdown) -> Self {
        let ids = Ids::system();
        let sessions = Sessions::new(store, ids.clone());
        Self { peer, ids, shutdown, sessions, sign_in, offer: ClientSupport::default() }
    }

    pub(super) async fn request(&mut self, id: &RawValue, method: &str, params: &RawValue) {
        if method == "initialize" {
            match parse::<RequestedVersion>(params) {
                Ok(wanted) => self.peer.set_version(wanted.version()),
                Err(error) => return self.peer.answer::<()>(id, Err(error)).await,
            }
        }
        match self.peer.version() {
            Version::V1 => self.request_v1(id, method, params).await,
            Version::V2 => self.request_v2(id, method, params).await,
        }
    }

    pub(super) async fn method_not_found(&self, id: &RawValue, method: &str) {
        let unknown = Error::method_not_found().data(serde_json::json!({ "method": method }));
        self.peer.answer::<()>(id, Err(unknown)).await;
    }

    /// Handles a notification. Unknown and malformed ones are ignored. Both versions use the same notifications.
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
                    && let Some(session) = self.sessions.with_turn_for(&id)
                {
                    session.cancel();
                }
            }
            _ => {}
        }
    }

    pub(super) fn handle_response(&self, id: &RawValue, outcome: Result<&RawValue, Error>) {
        self.peer.resolve(id, outcome);
    }

    /// The client has disconnected: cancels the running turns.
    pub(super) fn end(self) {
        self.sessions.end_all();
    }
}

/// Parses params. Absent params are an empty object, because `session/list` needs none.
pub(super) fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T, Error> {
    let text = if params.get() == "null" { "{}" } else { params.get() };
    serde_json::from_str(text).map_err(|error| Error::invalid_params().data(error.to_string()))
}
