//! `session/attach` and `session/detach` (agent-client-protocol, pull request 533), and the limits of observers.
//!
//! The extension is a draft and unstable. The messages follow revision 2026-03-27, and the roles follow revision
//! 2026-02-18. A client enables the extension with `_meta["acp-gateway"].attach` of `initialize`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::{Caller, required_session, session_of};
use super::client::{ClientInfo, META, Participant, Role};
use super::message::{Failure, Result, raw};
use super::methods::{Begin, parse_borrowed, restored};
use base::types::Scope;
use events::api::{Problem, ProblemCode, Session, SessionState};
use wire::acp::{self, error_code, method};

/// The codes of the draft. It defines -32002, which ACP uses for a missing resource, as "not authorised".
const NOT_FOUND: i64 = -32001;
const NOT_AUTHORISED: i64 = -32002;
const UNSUPPORTED: i64 = -32003;
/// The maximum number of clients in `connectedClients`.
const MAX_LISTED_CLIENTS: usize = 256;
/// The methods that an observer can use on its session.
const OBSERVER_METHODS: [&str; 9] = [
    method::INITIALIZE,
    method::AUTHENTICATE,
    method::SESSION_NEW,
    method::SESSION_LOAD,
    method::SESSION_RESUME,
    method::SESSION_FORK,
    method::SESSION_LIST,
    method::SESSION_ATTACH,
    method::SESSION_DETACH,
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachParams<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    history_policy: Option<Cow<'a, str>>,
    #[serde(borrow)]
    client_info: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
enum HistoryPolicy {
    // Messages have no ids that the gateway keeps, so `after_message` falls back to `full`, as the draft says.
    #[strum(to_string = "full", serialize = "after_message")]
    Full,
    PendingOnly,
    None,
}

impl Caller {
    /// Follows a session with a role. Responds itself if it succeeds.
    pub(super) async fn attach(&self, id: &RawValue, params: &RawValue) -> Result<()> {
        self.require_extension()?;
        let params: AttachParams<'_> = parse_borrowed(params)?;
        let role = params.role.as_deref().unwrap_or("controller");
        let role: Role = role
            .parse()
            .map_err(|_| Failure::invalid_params("role: expected controller or observer"))?;
        let policy = params.history_policy.as_deref().unwrap_or("full");
        let policy: HistoryPolicy = policy.parse().map_err(|_| {
            let detail = "historyPolicy: expected full, pending_only, none or after_message";
            Failure::invalid_params(detail)
        })?;
        self.require(Scope::Read)
            .map_err(|failure| failure.with_code(NOT_AUTHORISED))?;
        let session = self.open(&params.session_id).await.map_err(|failure| {
            if failure.code == error_code::RESOURCE_NOT_FOUND {
                not_found(&params.session_id, "Session not found")
            } else {
                failure
            }
        })?;
        let mut snapshot = session.snapshot().await?;
        if snapshot.state == SessionState::Closed {
            return Err(not_found(
                &params.session_id,
                "the session is closed: session/load opens it again",
            ));
        }
        let view = self.connection.view_for_request(&params.session_id)?;
        // Requests up to the snapshot are sent from it, and later ones from the log. Therefore, no stream of the client may
        // pass the snapshot before the role is set.
        let stopped = view.stop_deliveries().await;
        let previous = view.is_attached().then(|| view.participant());
        if previous.is_some() {
            snapshot = session.snapshot().await?;
        }
        let last = snapshot.last_event_id.seq;
        let was_controller = previous
            .as_ref()
            .is_some_and(|previous| previous.role == Role::Controller);
        let controller_after = match &previous {
            Some(previous) if was_controller || role == Role::Observer => previous.controller_after,
            Some(_) => last,
            None => 0,
        };
        let info = ClientInfo::parse(params.client_info);
        view.set_participant(Participant {
            role,
            info,
            controller_after,
        });
        let begin = if policy == HistoryPolicy::Full {
            Begin::History
        } else {
            Begin::Tail
        };
        let requests = match (policy, role) {
            (HistoryPolicy::None, _) | (_, Role::Observer) => Vec::new(),
            // Its stream continues, and has the open requests.
            (HistoryPolicy::PendingOnly, Role::Controller) if was_controller => Vec::new(),
            (_, Role::Controller) => self.open_requests(&snapshot),
        };
        let result = self.attached_result(&snapshot, role, policy);
        self.follow(id, session, &view, last, begin, &result, requests);
        drop(stopped);
        Ok(())
    }

    fn attached_result(
        &self,
        snapshot: &Session,
        role: Role,
        policy: HistoryPolicy,
    ) -> Box<RawValue> {
        let mut result = restored(snapshot);
        result.insert("role", raw(&role));
        result.insert("historyPolicy", raw(policy.into_str()));
        result.insert("clientId", raw(&self.connection.client.name));
        let connections = &self.connections;
        let clients =
            connections.clients_of(snapshot.session_id, &self.connection, MAX_LISTED_CLIENTS);
        result.insert("connectedClients", raw(&clients));
        if policy != HistoryPolicy::None {
            result.insert("history", raw(&pending_permissions(snapshot)));
        }
        raw(&result)
    }

    /// Ends the streams of a session on this connection. The session and its turn continue.
    pub(super) fn detach(&self, params: &RawValue) -> Result<Box<RawValue>> {
        self.require_extension()?;
        let session = required_session(params)?;
        let view = self.connection.attached_view(&session);
        let view =
            view.ok_or_else(|| not_found(&session, "this connection does not follow the session"))?;
        self.connection.remove_view(&session);
        view.end();
        Ok(raw(&json!({ "sessionId": session, "status": "detached" })))
    }

    fn require_extension(&self) -> Result<()> {
        if self.connection.client.uses_attach {
            return Ok(());
        }
        let detail = format!(
            "session/attach and session/detach are unstable: ask for them with _meta[\"{META}\"].attach = true in initialize"
        );
        Err(Failure::new(UNSUPPORTED, detail))
    }

    /// Rejects a method that changes a session, if this connection follows the session as an observer.
    pub(super) fn check_role(&self, method: &str, params: &RawValue) -> Result<()> {
        if !self.connection.client.uses_attach || OBSERVER_METHODS.contains(&method) {
            return Ok(());
        }
        session_of(params).map_or(Ok(()), |session| self.check_controller(&session))
    }

    /// Rejects observers of a session.
    pub(super) fn check_controller(&self, session: &str) -> Result<()> {
        let view = self.connection.view(session);
        if view.is_none_or(|view| view.role() == Role::Controller) {
            return Ok(());
        }
        let detail = "this connection follows the session as an observer: \
                      send session/attach with the role controller first";
        Err(Problem::new(ProblemCode::Forbidden, detail).into())
    }
}

fn not_found(session: &str, message: &str) -> Failure {
    Failure::new(NOT_FOUND, message).with_data(raw(&json!({ "sessionId": session })))
}

/// The open permission requests, as the history of the draft describes them.
fn pending_permissions(snapshot: &Session) -> Vec<serde_json::Value> {
    let open = snapshot.requests.iter();
    let permissions = open.filter(|open| open.method == method::SESSION_REQUEST_PERMISSION);
    permissions
        .map(|open| {
            let view = acp::parse_permission(&open.params).ok();
            let tool_call = view.as_ref().and_then(|view| view.tool_call_id.as_deref());
            let mut item = json!({ "type": "permission_request", "status": "pending" });
            if let Some(tool_call) = tool_call {
                item["toolCallId"] = json!(tool_call);
            }
            item
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_without_message_ids_fall_back_to_full() {
        for (text, expected) in [
            (None, Some("full")),
            (Some("full"), Some("full")),
            (Some("after_message"), Some("full")),
            (Some("pending_only"), Some("pending_only")),
            (Some("none"), Some("none")),
            (Some("all"), None),
        ] {
            assert_eq!(
                text.unwrap_or("full")
                    .parse()
                    .ok()
                    .map(|policy: HistoryPolicy| policy.into_str()),
                expected,
                "{text:?}"
            );
        }
    }
}
