//! The sessions that the bridge follows, and the position in their streams.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::calls::CallNumber;
use super::setup::Setup;

/// The maximum size of the setups of all sessions.
const MAX_SETUP_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<Box<str>, Followed>);

/// A session that the editor created, loaded or resumed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// The SSE id of the last message that was written to the editor.
    pub(super) last: Option<String>,
    /// The load or resume whose response is awaited. Other messages for the session wait for it.
    pub(super) restoring: Option<CallNumber>,
    /// Whether the editor's own load or resume is the first one of the session.
    pub(super) is_new: bool,
    /// The params of `session/attach` for a session that the editor has attached.
    pub(super) attach: Option<Box<RawValue>>,
    /// The folder and the MCP servers that the editor has named.
    pub(super) setup: Setup,
    /// The last event of a history that the gateway sends after the response to its load.
    pub(super) history_end: Option<u64>,
    /// Whether the stream is open.
    pub(super) is_open: bool,
    /// Whether the editor has closed or deleted the session.
    pub(super) is_closed: bool,
}

impl Followed {
    /// Whether the editor has received only a part of the history.
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

impl Sessions {
    pub(super) fn get(&self, session: &str) -> Option<&Followed> {
        self.0.get(session)
    }

    pub(super) fn get_mut(&mut self, session: &str) -> Option<&mut Followed> {
        self.0.get_mut(session)
    }

    pub(super) fn insert(&mut self, session: &str, followed: Followed) {
        self.0.insert(session.into(), followed);
    }

    /// Remembers the setup of a request that has opened a session. Without room, the former setup stays.
    pub(super) fn remember_setup(&mut self, session: &str, later: Setup) {
        let others = self.0.iter().filter(|(id, _)| ***id != *session);
        let others: usize = others.map(|(_, followed)| followed.setup.size()).sum();
        let Some(followed) = self.0.get_mut(session) else {
            return;
        };
        let setup = followed.setup.clone().then(later);
        if others + setup.size() <= MAX_SETUP_BYTES {
            followed.setup = setup;
        } else {
            tracing::warn!(
                session,
                "the MCP servers of the session are too large to bring them again after a reconnect"
            );
        }
    }

    pub(super) fn remove(&mut self, session: &str) -> bool {
        self.0.remove(session).is_some()
    }

    pub(super) fn ids(&self) -> Vec<Box<str>> {
        self.0.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setups_are_bounded_together_and_absent_servers_change_nothing() {
        let setup = |bytes: usize| {
            let params = format!(r#"{{"cwd":"/w","mcpServers":["{}"]}}"#, "x".repeat(bytes));
            Setup::of(serde_json::from_str(&params).unwrap())
        };
        let mut sessions = Sessions::default();
        for session in ["a", "b", "c"] {
            sessions.insert(session, Followed::default());
            sessions.remember_setup(session, setup(MAX_SETUP_BYTES / 2 - 64));
        }
        let size = |sessions: &Sessions, session| sessions.get(session).unwrap().setup.size();
        assert!(
            size(&sessions, "a") > MAX_SETUP_BYTES / 3
                && size(&sessions, "b") > MAX_SETUP_BYTES / 3
        );
        assert_eq!(size(&sessions, "c"), 0);
        sessions.remember_setup("b", setup(8));
        for params in [
            r#"{"cwd":"/v","mcpServers":[]}"#,
            r#"{"cwd":"/v","mcpServers":null}"#,
            r#"{"cwd":"/v"}"#,
        ] {
            sessions.remember_setup("b", Setup::of(serde_json::from_str(params).unwrap()));
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
