//! The sessions that an agent itself lists (ACP, `session/list`).

use std::borrow::Cow;
use std::path::PathBuf;

use agent_client_protocol_schema::v1;
use serde_json::value::RawValue;

use super::raw_object::RawObject;
use super::trace::{TraceContext, traced};

/// Params of `session/list`.
pub fn list_sessions(
    cwd: Option<&str>,
    cursor: Option<&str>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    let cwd = cwd.map(PathBuf::from);
    traced(
        &v1::ListSessionsRequest::new()
            .cwd(cwd)
            .cursor(cursor.map(str::to_owned)),
        trace,
    )
}

/// The result of `session/list`.
#[derive(Debug)]
pub struct SessionListing<'a> {
    pub sessions: Vec<ListedSession<'a>>,
    pub next_cursor: Option<Cow<'a, str>>,
}

/// A session in the list of an agent, with the raw entry.
#[derive(Debug)]
pub struct ListedSession<'a> {
    pub session_id: Cow<'a, str>,
    pub cwd: Cow<'a, str>,
    pub entry: &'a RawValue,
}

impl<'a> SessionListing<'a> {
    /// Parses the list and skips entries without an id or a directory. `None` if the result is not a list.
    pub fn parse(result: &'a RawValue) -> Option<Self> {
        let result = RawObject::parse(result)?;
        let entries: Vec<&RawValue> = serde_json::from_str(result.get("sessions")?.get()).ok()?;
        let listed = |entry| {
            let object = RawObject::parse(entry)?;
            Some(ListedSession {
                session_id: object.text("sessionId")?,
                cwd: object.text("cwd")?,
                entry,
            })
        };
        let sessions = entries.into_iter().filter_map(listed).collect();
        Some(Self {
            sessions,
            next_cursor: result.text("nextCursor"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_match_the_schema() {
        assert_eq!(list_sessions(None, None, None).get(), "{}");
        let params = list_sessions(Some("/w"), Some("c\"1"), None);
        assert_eq!(params.get(), r#"{"cwd":"/w","cursor":"c\"1"}"#);
        let _: v1::ListSessionsRequest = serde_json::from_str(params.get()).unwrap();
    }

    #[test]
    fn malformed_entries_are_skipped() {
        let text = r#"{"sessions":[{"sessionId":"a","cwd":"/w","x":1.10},{"sessionId":"b"},7,
            {"sessionId":"c","cwd":"/w","cwd":"/x"}],"nextCursor":"n"}"#;
        let listing = SessionListing::parse(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(listing.next_cursor.unwrap(), "n");
        let [only] = &listing.sessions[..] else {
            panic!("{:?}", listing.sessions)
        };
        assert_eq!((&*only.session_id, &*only.cwd), ("a", "/w"));
        assert_eq!(only.entry.get(), r#"{"sessionId":"a","cwd":"/w","x":1.10}"#);
        for odd in ["null", "[]", "{}", r#"{"sessions":{}}"#] {
            assert!(
                SessionListing::parse(serde_json::from_str(odd).unwrap()).is_none(),
                "{odd}"
            );
        }
    }
}
