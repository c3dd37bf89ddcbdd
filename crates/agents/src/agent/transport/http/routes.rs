//! The session of each message of a connection: it selects the stream and the header `Acp-Session-Id`.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;

use wire::acp::{RawObject, method, session_id_of};

/// The maximum number of open calls and of open requests. The oldest one is forgotten.
const MAX_OPEN: usize = 1024;

/// The open calls of the gateway and the open requests of the agent.
#[derive(Debug, Default)]
pub(super) struct Routes {
    calls: Open<Call>,
    requests: Open<Arc<str>>,
    /// Whether the last message of any stream had an id, so that its stream can be resumed.
    gives_ids: bool,
}

#[derive(Debug, Default)]
struct Call {
    session: Option<Arc<str>>,
    /// Whether the response ends the session on the connection.
    ends_session: bool,
}

/// The effect of a message of the agent on the streams.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// The session is new on the connection.
    Open(Arc<str>),
    /// The session has ended.
    Close(Arc<str>),
}

/// Values by JSON-RPC id, the oldest first.
#[derive(Debug, Default)]
struct Open<T>(VecDeque<(Box<str>, T)>);

impl<T> Open<T> {
    fn insert(&mut self, id: &str, value: T) {
        if self.0.len() >= MAX_OPEN {
            self.0.pop_front();
        }
        self.0.push_back((id.into(), value));
    }

    fn remove(&mut self, id: &str) -> Option<T> {
        let index = self.0.iter().position(|(open, _)| **open == *id)?;
        self.0.remove(index).map(|(_, value)| value)
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl Routes {
    /// Registers a message of the gateway. Returns its session, and the JSON-RPC id of a request.
    pub(super) fn sent(&mut self, message: &RawValue) -> (Option<Arc<str>>, Option<Box<str>>) {
        let Some(object) = RawObject::parse(message) else {
            return (None, None);
        };
        let id = object.get("id").map(RawValue::get);
        let Some(name) = object.text("method") else {
            return (id.and_then(|id| self.requests.remove(id)), None);
        };
        let session = object.get("params").and_then(session_of);
        if let Some(id) = id {
            let call = Call {
                session: session.clone(),
                ends_session: matches!(&*name, method::SESSION_CLOSE | method::SESSION_DELETE),
            };
            self.calls.insert(id, call);
        }
        (session, id.map(Into::into))
    }

    /// Registers a message of the agent on the stream of `session`.
    pub(super) fn received(
        &mut self,
        session: Option<&Arc<str>>,
        has_id: bool,
        message: &RawValue,
    ) -> Effect {
        self.gives_ids = has_id;
        let Some(object) = RawObject::parse(message) else {
            return Effect::None;
        };
        let Some(id) = object.get("id").map(RawValue::get) else {
            return Effect::None;
        };
        if object.get("method").is_some() {
            if let Some(session) = session {
                self.requests.insert(id, Arc::clone(session));
            }
            return Effect::None;
        }
        let Some(call) = self.calls.remove(id) else {
            return Effect::None;
        };
        match (call.session, object.get("result").and_then(session_of)) {
            (Some(session), _) if call.ends_session => Effect::Close(session),
            (_, Some(session)) => Effect::Open(session),
            _ => Effect::None,
        }
    }

    pub(super) fn forget(&mut self, call: &str) {
        self.calls.remove(call);
    }

    /// Whether a connection stream that has sent no message yet can be opened again without losing messages: the server
    /// sends event ids, and no open call expects its response on this stream.
    pub(super) fn is_connection_stream_idle(&self) -> bool {
        self.gives_ids && self.calls.values().all(|call| call.session.is_some())
    }

    pub(super) fn is_in_use(&self, session: &str) -> bool {
        self.calls
            .values()
            .any(|call| call.session.as_deref() == Some(session))
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.0.is_empty()
    }
}

fn session_of(params: &RawValue) -> Option<Arc<str>> {
    let id = session_id_of(params).ok().flatten()?;
    Some(id.as_ref().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn session(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn messages_name_the_session_of_their_params_and_answers_that_of_the_stream() {
        let mut routes = Routes::default();
        let sent = |routes: &mut Routes, text| {
            let (session, call) = routes.sent(raw(text));
            (
                session.as_deref().map(str::to_owned),
                call.as_deref().map(str::to_owned),
            )
        };
        let owned = |text: &str| Some(text.to_owned());
        assert_eq!(
            sent(
                &mut routes,
                r#"{"id":1,"method":"session/new","params":{"cwd":"/"}}"#
            ),
            (None, owned("1"))
        );
        assert_eq!(
            sent(
                &mut routes,
                r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#
            ),
            (owned("s"), owned("2"))
        );
        assert_eq!(
            sent(
                &mut routes,
                r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#
            ),
            (owned("s"), None)
        );
        let asked = raw(r#"{"id":"a/1","method":"session/request_permission","params":{}}"#);
        assert_eq!(
            routes.received(Some(&session("s")), true, asked),
            Effect::None
        );
        assert_eq!(
            sent(&mut routes, r#"{"id":"a/1","result":{}}"#),
            (owned("s"), None)
        );
        assert_eq!(
            sent(&mut routes, r#"{"id":"a/1","result":{}}"#),
            (None, None),
            "answered already"
        );
    }

    #[test]
    fn responses_open_and_close_sessions() {
        let mut routes = Routes::default();
        routes.sent(raw(r#"{"id":1,"method":"session/new","params":{}}"#));
        routes.sent(raw(
            r#"{"id":2,"method":"session/close","params":{"sessionId":"s"}}"#,
        ));
        assert!(routes.has_calls() && routes.is_in_use("s") && !routes.is_in_use("t"));
        let created = raw(r#"{"id":1,"result":{"sessionId":"s"}}"#);
        assert_eq!(
            routes.received(None, false, created),
            Effect::Open(session("s"))
        );
        assert_eq!(
            routes.received(None, false, created),
            Effect::None,
            "no open call has this id"
        );
        let closed = raw(r#"{"id":2,"result":{}}"#);
        assert_eq!(
            routes.received(None, false, closed),
            Effect::Close(session("s"))
        );
        assert!(!routes.has_calls());
    }

    #[test]
    fn connection_stream_is_idle_while_only_sessions_wait() {
        let mut routes = Routes::default();
        routes.sent(raw(
            r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#,
        ));
        assert!(
            !routes.is_connection_stream_idle(),
            "the server gives no ids"
        );
        routes.received(
            Some(&session("s")),
            true,
            raw(r#"{"method":"session/update"}"#),
        );
        assert!(routes.is_connection_stream_idle());
        routes.sent(raw(r#"{"id":2,"method":"session/list","params":{}}"#));
        assert!(!routes.is_connection_stream_idle());
        routes.forget("2");
        assert!(routes.is_connection_stream_idle());
    }

    #[test]
    fn open_calls_are_bounded() {
        let mut routes = Routes::default();
        for id in 0..2 * MAX_OPEN {
            routes.sent(raw(&format!(r#"{{"id":{id},"method":"m"}}"#)));
        }
        assert_eq!(routes.calls.0.len(), MAX_OPEN);
    }
}
