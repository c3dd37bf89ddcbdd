//! Workarounds for defects of known agents, by the name in `agentInfo`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::raw_object::RawObject;
use crate::types::Timestamp;

fn name(agent_info: Option<&RawValue>) -> Option<Cow<'_, str>> {
    RawObject::parse(agent_info?)?.text("name")
}

/// Returns true if the agent can resume or load a session without a turn.
///
/// Codex ACP 2.6 stores a session with its first turn. If the process that created a session closes and
/// resumes it before the first turn, that turn never ends.
pub fn restores_empty_sessions(agent_info: Option<&RawValue>) -> bool {
    !name(agent_info)
        .is_some_and(|name| matches!(&*name, "@agentclientprotocol/codex-acp" | "claude-code"))
}

/// Returns the time before which the agent must not load a session that was created at `began`.
///
/// Gemini CLI 0.61 names the file of a session after the minute in which a process creates or loads the
/// session. A load in the same minute overwrites the conversation with an empty one, and then fails.
pub fn earliest_load(agent_info: Option<&RawValue>, began: Timestamp) -> Option<Timestamp> {
    const MINUTE: i64 = 60_000;
    let next_minute = (began.as_millis().div_euclid(MINUTE) + 1) * MINUTE;
    (name(agent_info)? == "gemini-cli").then(|| Timestamp::from_millis(next_minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gemini_load_waits_for_the_next_minute() {
        let began = Timestamp::from_millis(59_999);
        let earliest = |info: &str| {
            earliest_load(
                Some(&RawValue::from_string(info.to_owned()).unwrap()),
                began,
            )
        };
        assert_eq!(
            earliest(r#"{"name":"gemini-cli","version":"0.61.0"}"#),
            Some(Timestamp::from_millis(60_000))
        );
        assert_eq!(earliest(r#"{"name":"another"}"#), None);
        assert_eq!(earliest(r#"{"version":"1"}"#), None);
        assert_eq!(earliest_load(None, began), None);
    }

    #[test]
    fn codex_does_not_restore_empty_sessions() {
        let restores = |info: &str| {
            restores_empty_sessions(Some(&RawValue::from_string(info.to_owned()).unwrap()))
        };
        assert!(!restores(
            r#"{"name":"@agentclientprotocol/codex-acp","version":"2.6.0"}"#
        ));
        assert!(restores(r#"{"name":"another"}"#) && restores_empty_sessions(None));
    }
}
