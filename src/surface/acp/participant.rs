//! The part that a client takes in a session: its role, and its description of itself.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::acp::RawObject;
use crate::types::text::one_line;

/// The maximum size of a name or a version in bytes. A longer text is cut.
const MAX_TEXT_BYTES: usize = 128;

/// The role of a client in a session. Without `session/attach`, a client is a controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    #[default]
    Controller,
    /// Receives messages. Its prompts, cancels, changes and answers are rejected.
    Observer,
}

impl Role {
    pub(super) const ALL: [&'static str; 2] = ["controller", "observer"];

    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "controller" => Some(Self::Controller),
            "observer" => Some(Self::Observer),
            _ => None,
        }
    }
}

/// `clientInfo` (ACP, Initialization).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ClientInfo {
    name: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Box<str>>,
}

impl ClientInfo {
    /// Parses a `clientInfo`. One without a name is none.
    pub(super) fn parse(raw: Option<&RawValue>) -> Option<Self> {
        let object = RawObject::parse(raw?)?;
        let text = |name| {
            object
                .text(name)
                .map(|text| one_line(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)]).into())
        };
        Some(Self {
            name: text("name")?,
            version: text("version"),
        })
    }
}

/// A client in a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Participant {
    pub(super) role: Role,
    /// The description in `session/attach`, which replaces that in `initialize`.
    pub(super) info: Option<ClientInfo>,
    /// Of the events up to this one, a controller gets the messages of an observer. It was an observer then, and has the
    /// requests that were open at this event.
    pub(super) controller_after: u64,
}

impl Participant {
    /// The role in which the client gets the messages of an event.
    pub(super) fn role_at(&self, event: u64) -> Role {
        if event > self.controller_after {
            self.role
        } else {
            Role::Observer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_leniently_and_cut() {
        let parse = |text: &str| {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            ClientInfo::parse(Some(raw)).map(|info| serde_json::to_string(&info).unwrap())
        };
        for (text, expected) in [
            (
                r#"{"name":"a","version":"1"}"#,
                Some(r#"{"name":"a","version":"1"}"#),
            ),
            (
                r#"{"name":"a","version":1,"title":"x"}"#,
                Some(r#"{"name":"a"}"#),
            ),
            (
                r#"{"name":"a\u202e\n","version":"\u200b1"}"#,
                Some(r#"{"name":"a ","version":"1"}"#),
            ),
            (r#"{"version":"1"}"#, None),
            ("[]", None),
        ] {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
        let long = parse(&format!(r#"{{"name":"{}"}}"#, "é".repeat(100))).unwrap();
        assert_eq!(long, format!(r#"{{"name":"{}"}}"#, "é".repeat(64)));
    }
}
