//! The tables of the bridge: calls to the gateway, requests of the agent, and sessions with their setup.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use wire::acp::{RawObject, method, object, to_raw};

/// The number of a call. Its JSON-RPC id is `b-<number>`. No number is used twice, so the gateway recognizes a call that
/// it receives again.
pub(super) type CallNumber = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallKind {
    Create,
    /// The editor's `session/new`, which loads this session instead.
    LoadAsNew(Box<str>),
    /// `session/load`, or a `session/attach` with the history.
    Load,
    /// `session/resume`, or a `session/attach` without the history.
    Resume,
    Detach,
    /// `session/close` and `session/delete`.
    Close,
    Prompt,
    Other,
    /// A method whose second run can have another effect, for example an extension of the agent.
    Once,
    /// A `session/resume` or `session/load` of the bridge itself, after a reconnect.
    Restore,
}

impl CallKind {
    pub(super) fn of(method: &str, params: &RawValue) -> Self {
        match method {
            method::SESSION_NEW | method::SESSION_FORK => Self::Create,
            method::SESSION_LOAD => Self::Load,
            method::SESSION_ATTACH if has_history(params) => Self::Load,
            method::SESSION_RESUME | method::SESSION_ATTACH => Self::Resume,
            method::SESSION_DETACH => Self::Detach,
            method::SESSION_CLOSE | method::SESSION_DELETE => Self::Close,
            method::SESSION_PROMPT => Self::Prompt,
            method::SESSION_LIST | method::SESSION_SET_MODE | method::SESSION_SET_CONFIG_OPTION => {
                Self::Other
            }
            _ => Self::Once,
        }
    }
}

fn has_history(params: &RawValue) -> bool {
    let object = RawObject::parse(params).unwrap_or_else(RawObject::empty);
    let policy = object.text("historyPolicy");
    !matches!(policy.as_deref(), Some("none" | "pending_only"))
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    /// The JSON-RPC id of the editor. `None` for a call of the bridge itself.
    pub(super) editor_id: Option<Box<RawValue>>,
    pub(super) session: Option<Box<str>>,
    pub(super) folders: Vec<String>,
    /// The whole request, to send it again after a reconnect.
    pub(super) body: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    last: CallNumber,
    open: BTreeMap<CallNumber, Call>,
    bytes: usize,
}

pub(super) fn id_of(number: CallNumber) -> String {
    format!("b-{number}")
}

pub(super) fn number_of(id: &RawValue) -> Option<CallNumber> {
    let text: &str = serde_json::from_str(id.get()).ok()?;
    text.strip_prefix("b-")?.parse().ok()
}

impl Calls {
    pub(super) fn open(&mut self, call: impl FnOnce(&str) -> Call) -> CallNumber {
        self.last += 1;
        let call = call(&id_of(self.last));
        self.bytes += call.body.len();
        self.open.insert(self.last, call);
        self.last
    }

    pub(super) fn get(&self, number: CallNumber) -> Option<&Call> {
        self.open.get(&number)
    }

    pub(super) fn end(&mut self, number: CallNumber) -> Option<Call> {
        let call = self.open.remove(&number)?;
        self.bytes -= call.body.len();
        Some(call)
    }

    /// All open calls, in their order.
    pub(super) fn numbers(&self) -> Vec<CallNumber> {
        self.open.keys().copied().collect()
    }

    pub(super) fn of_session(&self, session: &str) -> Vec<CallNumber> {
        let mut numbers = self.numbers();
        numbers.retain(|number| self.open[number].session.as_deref() == Some(session));
        numbers
    }

    pub(super) fn has_prompts(&self, session: &str) -> bool {
        let mut calls = self.of_session(session).into_iter();
        calls.any(|number| self.is(number, &CallKind::Prompt))
    }

    pub(super) fn is(&self, number: CallNumber, kind: &CallKind) -> bool {
        self.get(number).is_some_and(|call| call.kind == *kind)
    }

    pub(super) fn by_editor_id(&self, id: &RawValue) -> Option<CallNumber> {
        let own = |call: &Call| call.editor_id.as_ref().map(|own| own.get()) == Some(id.get());
        let mut latest_first = self.open.iter().rev();
        Some(*latest_first.find(|(_, call)| own(call))?.0)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

const MAX_ENDED: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) session: Option<Box<str>>,
}

/// After a reconnect, the gateway sends open requests again. The editor receives each request once.
#[derive(Debug, Default)]
pub(super) struct AgentRequests {
    /// Requests without an answer, with their sessions. A key is the JSON text of an id.
    open: HashMap<Box<str>, Option<Box<str>>>,
    ended: HashSet<Box<str>>,
    /// The ended requests, the oldest first.
    order: VecDeque<Box<str>>,
}

impl AgentRequests {
    /// Returns whether the editor has not received this request before.
    pub(super) fn insert(&mut self, id: &RawValue, session: Option<&str>) -> bool {
        let id = id.get();
        if self.open.contains_key(id) || self.ended.contains(id) {
            return false;
        }
        self.open.insert(id.into(), session.map(Into::into));
        true
    }

    /// Ends a request: the editor has answered it, or the gateway has cancelled it. Returns `None` if no request
    /// with this id is open.
    pub(super) fn end(&mut self, id: &RawValue) -> Option<Ended> {
        let (id, session) = self.open.remove_entry(id.get())?;
        if self.order.len() >= MAX_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        self.order.push_back(id.clone());
        self.ended.insert(id);
        Some(Ended { session })
    }
}

const MAX_SETUP_BYTES: usize = 8 << 20;

pub(super) type Sessions = BTreeMap<Box<str>, Followed>;

#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) last: Option<String>,
    /// The load or resume whose response is awaited. Other messages for the session wait for it.
    pub(super) restoring: Option<CallNumber>,
    /// Whether the editor's own load or resume is the first one of the session.
    pub(super) is_new: bool,
    /// The params of `session/attach` for a session that the editor has attached.
    pub(super) attach: Option<Box<RawValue>>,
    pub(super) setup: Setup,
    /// The last event of a history that the gateway sends after the response to its load.
    pub(super) history_end: Option<u64>,
    pub(super) is_open: bool,
    pub(super) is_closed: bool,
}

impl Followed {
    pub(super) fn is_in_history(&self) -> bool {
        self.history_end.is_some_and(|end| {
            let last = self.last.as_deref().and_then(event_of);
            last.is_none_or(|last| last <= end)
        })
    }
}

/// The number of the event in an SSE id of a session's stream: `<epoch>-<seq>.<part>/...`.
fn event_of(id: &str) -> Option<u64> {
    seq_of(id.split_once('.')?.0)
}

/// The number in an event id: `<epoch>-<seq>`.
pub(super) fn seq_of(event_id: &str) -> Option<u64> {
    event_id.rsplit_once('-')?.1.parse().ok()
}

/// The SSE id of the position before the first event.
pub(super) fn first_position(epoch: &str) -> String {
    format!("{epoch}-0.0/-.0")
}

/// Remembers the setup of a request that has opened a session. Without room, the earlier setup stays.
pub(super) fn remember_setup(sessions: &mut Sessions, session: &str, later: Setup) {
    let others = sessions.iter().filter(|(id, _)| ***id != *session);
    let others: usize = others.map(|(_, followed)| followed.setup.size()).sum();
    let Some(followed) = sessions.get_mut(session) else {
        return;
    };
    let setup = followed.setup.clone().then(later);
    if others + setup.size() > MAX_SETUP_BYTES {
        tracing::warn!(
            session,
            "the MCP servers are too large to keep them for a reconnect"
        );
        return;
    }
    followed.setup = setup;
}

/// The setup of one session. The bridge names it again when it restores the session, because the gateway does not store
/// servers of clients. Servers contain secrets, so the setup is only in memory and has no text.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Setup")]
pub(super) struct Setup {
    cwd: Option<Box<RawValue>>,
    servers: Option<Box<RawValue>>,
}

impl Setup {
    pub(super) fn of(params: &RawValue) -> Self {
        let object = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let member = |name| object.get(name).map(ToOwned::to_owned);
        Self {
            cwd: member("cwd"),
            servers: member("mcpServers").filter(|servers| !is_empty(servers)),
        }
    }

    /// The setup after another request. As in the gateway, a request without servers keeps the servers of the earlier request.
    pub(super) fn then(self, later: Self) -> Self {
        Self {
            cwd: later.cwd.or(self.cwd),
            servers: later.servers.or(self.servers),
        }
    }

    pub(super) fn size(&self) -> usize {
        let members = self.cwd.iter().chain(&self.servers);
        members.map(|value| value.get().len()).sum()
    }

    pub(super) fn params(&self, session: &str) -> Box<RawValue> {
        let cwd = self.cwd.clone().unwrap_or_else(|| to_raw("/"));
        let servers = self.servers.clone().unwrap_or_else(|| to_raw(&json!([])));
        let id = to_raw(session);
        object(&[("sessionId", id), ("cwd", cwd), ("mcpServers", servers)])
    }
}

fn is_empty(servers: &RawValue) -> bool {
    serde_json::from_str::<Vec<&RawValue>>(servers.get()).is_ok_and(|servers| servers.is_empty())
        || servers.get() == "null"
}

#[cfg(test)]
mod agent_requests_tests {
    use super::*;

    fn id(number: usize) -> Box<RawValue> {
        RawValue::from_string(format!("\"s:{number}\"")).unwrap()
    }

    #[test]
    fn a_request_is_new_once_and_ends_once() {
        let mut requests = AgentRequests::default();
        assert!(requests.insert(&id(1), Some("s")));
        assert!(!requests.insert(&id(1), Some("s")));
        assert_eq!(
            requests.end(&id(1)),
            Some(Ended {
                session: Some("s".into())
            })
        );
        assert_eq!(requests.end(&id(1)), None);
        assert!(!requests.insert(&id(1), Some("s")));
    }

    #[test]
    fn ended_requests_are_bounded() {
        let mut requests = AgentRequests::default();
        for number in 0..=MAX_ENDED {
            assert!(requests.insert(&id(number), None));
            requests.end(&id(number));
        }
        assert_eq!(
            (requests.ended.len(), requests.order.len()),
            (MAX_ENDED, MAX_ENDED)
        );
        assert!(requests.insert(&id(0), None) && !requests.insert(&id(1), None));
    }
}

#[cfg(test)]
mod sessions_tests {
    use super::*;

    #[test]
    fn setups_are_bounded_together_and_absent_servers_change_nothing() {
        let setup = |bytes: usize| {
            let params = format!(r#"{{"cwd":"/w","mcpServers":["{}"]}}"#, "x".repeat(bytes));
            Setup::of(serde_json::from_str(&params).unwrap())
        };
        let mut sessions = Sessions::default();
        for session in ["a", "b", "c"] {
            sessions.insert(session.into(), Followed::default());
            remember_setup(&mut sessions, session, setup(MAX_SETUP_BYTES / 2 - 64));
        }
        let size = |sessions: &Sessions, session: &str| sessions.get(session).unwrap().setup.size();
        assert!(
            size(&sessions, "a") > MAX_SETUP_BYTES / 3
                && size(&sessions, "b") > MAX_SETUP_BYTES / 3
        );
        assert_eq!(size(&sessions, "c"), 0);
        remember_setup(&mut sessions, "b", setup(8));
        for params in [
            r#"{"cwd":"/v","mcpServers":[]}"#,
            r#"{"cwd":"/v","mcpServers":null}"#,
            r#"{"cwd":"/v"}"#,
        ] {
            let later = Setup::of(serde_json::from_str(params).unwrap());
            remember_setup(&mut sessions, "b", later);
            let params = sessions.get("b").unwrap().setup.params("b");
            assert_eq!(
                params.get(),
                r#"{"sessionId":"b","cwd":"/v","mcpServers":["xxxxxxxx"]}"#
            );
        }
        let params = sessions.get("c").unwrap().setup.params("c");
        assert_eq!(
            params.get(),
            r#"{"sessionId":"c","cwd":"/","mcpServers":[]}"#
        );
    }

    #[test]
    fn history_lasts_until_its_last_event() {
        let followed = |last: Option<&str>, history_end| Followed {
            last: last.map(str::to_owned),
            history_end,
            ..Followed::default()
        };
        for (last, end, expected) in [
            (None, None, false),
            (None, Some(3), true),
            (Some("k-3-3.1/c.0"), Some(3), true),
            (Some("k-3-4.0/c.0"), Some(3), false),
            (Some("k-3-4.0/c.0"), None, false),
        ] {
            assert_eq!(
                followed(last, end).is_in_history(),
                expected,
                "{last:?} {end:?}"
            );
        }
        assert_eq!(first_position("k3"), "k3-0.0/-.0");
        assert_eq!(event_of(&first_position("k3")), Some(0));
    }
}
