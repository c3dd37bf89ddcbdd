//! The client of a connection: its name, its role, and the requests of an agent that the client can answer.

use serde::Serialize;
use serde_json::value::RawValue;

use base::types::text::one_line;
use base::types::{Scope, Scopes};
use sessions::session::ClientTools;
use wire::acp::{RawObject, RequestKind};

/// The maximum size of a name or a version in bytes. A longer text is cut.
const MAX_TEXT_BYTES: usize = 128;

/// The longest name that a client can choose for itself.
const MAX_NAME_BYTES: usize = 64;
/// The member of `_meta` that belongs to the gateway.
pub(super) const META: &str = "acp-gateway";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) serves: ClientTools,
    pub(super) elicitation: bool,
    pub(super) subagents: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    /// Identifies the client in the log: the user, and the id of the connection or the name that the client has
    /// chosen. A client of another user cannot have the same name.
    pub(super) name: Box<str>,
    /// Whether the client has chosen its name. Such a client has the same name after a reconnect.
    pub(super) keeps_name: bool,
    pub(super) capabilities: Capabilities,
    pub(super) scopes: Scopes,
    pub(super) info: Option<ClientInfo>,
    /// The client has asked for the draft of `session/attach`.
    pub(super) uses_attach: bool,
}

impl Capabilities {
    /// Parses the `clientCapabilities` of `initialize`. A missing member or one of another type is no capability.
    pub(super) fn parse(raw: Option<&RawValue>) -> Self {
        let Some(object) = raw.and_then(RawObject::parse) else {
            return Self::default();
        };
        let files = object.object("fs").unwrap_or_else(RawObject::empty);
        Self {
            serves: ClientTools {
                read: is_true(&files, "readTextFile"),
                write: is_true(&files, "writeTextFile"),
                terminals: is_true(&object, "terminal"),
            },
            elicitation: object.object("elicitation").is_some(),
            subagents: object.object("subagents").is_some(),
        }
    }
}

impl Client {
    /// The requests of the agent that the client serves for its own turns. Its key needs the scope `files`.
    pub(super) fn serves(&self) -> ClientTools {
        if self.scopes.contains(Scope::Files) {
            self.capabilities.serves
        } else {
            ClientTools::default()
        }
    }

    /// Whether the client gets requests of this kind: it supports them, and its key may answer them.
    pub(super) fn answers(&self, kind: RequestKind) -> bool {
        let serves = self.capabilities.serves;
        let offered = match kind {
            RequestKind::Permission | RequestKind::Extension => true,
            RequestKind::Elicitation => self.capabilities.elicitation,
            RequestKind::ReadFile => serves.read,
            RequestKind::WriteFile => serves.write,
            RequestKind::CreateTerminal
            | RequestKind::TerminalOutput
            | RequestKind::WaitForExit
            | RequestKind::EndTerminal => serves.terminals,
        };
        offered && self.scopes.contains(required_scope(kind))
    }
}

pub(super) const fn required_scope(kind: RequestKind) -> Scope {
    match kind {
        RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => {
            Scope::Approve
        }
        _ => Scope::Files,
    }
}

/// `_meta["acp-gateway"]` of `initialize`.
#[derive(Debug, Default)]
pub(super) struct OwnMeta {
    /// The name that the client chooses: 16 to 64 characters of `[A-Za-z0-9_-]`, for example a UUID.
    pub(super) client: Option<Box<str>>,
    /// The client asks for the draft of `session/attach`.
    pub(super) attach: bool,
    /// The client runs terminal methods with the gateway's socket for sign-ins.
    pub(super) terminal_sign_in: bool,
}

impl OwnMeta {
    pub(super) fn parse(meta: Option<&RawValue>) -> Self {
        let meta = meta.and_then(RawObject::parse);
        let Some(own) = meta.and_then(|meta| meta.object(META)) else {
            return Self::default();
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let name = own
            .text("client")
            .filter(|name| (16..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain));
        Self {
            client: name.map(Into::into),
            attach: is_true(&own, "attach"),
            terminal_sign_in: is_true(&own, "terminalSignIn"),
        }
    }
}

fn is_true(object: &RawObject<'_>, name: &str) -> bool {
    object.get(name).is_some_and(|value| value.get() == "true")
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(super) enum Role {
    #[default]
    Controller,
    /// Receives messages. Its prompts, cancels, changes and answers are rejected.
    Observer,
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
            let text = object.text(name)?;
            Some(one_line(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)]).into())
        };
        Some(Self {
            name: text("name")?,
            version: text("version"),
        })
    }
}

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

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn capabilities_are_read_leniently() {
        let caps = raw(
            r#"{"fs":{"readTextFile":true,"writeTextFile":"yes"},"terminal":true,"elicitation":{"form":{}}}"#,
        );
        let serves = ClientTools {
            read: true,
            write: false,
            terminals: true,
        };
        let expected = Capabilities {
            serves,
            elicitation: true,
            ..Capabilities::default()
        };
        assert_eq!(Capabilities::parse(Some(caps)), expected);
        for none in [
            "null",
            "[]",
            "{}",
            r#"{"fs":true,"terminal":1,"terminal":2}"#,
        ] {
            assert_eq!(
                Capabilities::parse(Some(raw(none))),
                Capabilities::default(),
                "{none}"
            );
        }
    }

    #[test]
    fn requests_need_a_capability_and_a_scope() {
        let client = |scopes: &[Scope]| Client {
            name: "c".into(),
            keeps_name: false,
            capabilities: Capabilities {
                serves: ClientTools {
                    read: true,
                    ..ClientTools::default()
                },
                ..Capabilities::default()
            },
            scopes: scopes.iter().copied().collect(),
            info: None,
            uses_attach: false,
        };
        assert!(client(&[Scope::Files]).answers(RequestKind::ReadFile));
        assert!(!client(&[Scope::Files]).answers(RequestKind::WriteFile));
        assert!(!client(&[Scope::Approve]).answers(RequestKind::ReadFile));
        assert!(client(&[Scope::Approve]).answers(RequestKind::Permission));
        assert!(!client(&[Scope::Read]).answers(RequestKind::Permission));
        assert!(!client(&[Scope::Approve]).answers(RequestKind::Elicitation));
    }

    #[test]
    fn names_are_long_and_plain() {
        let name = |name: &str| {
            let meta = format!(r#"{{"acp-gateway":{{"client":"{name}"}}}}"#);
            OwnMeta::parse(Some(raw(&meta))).client
        };
        assert_eq!(
            name("0193-abcdef-client").as_deref(),
            Some("0193-abcdef-client")
        );
        for wrong in ["short", "with a space in it", &"x".repeat(65)] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
        assert_eq!(OwnMeta::parse(Some(raw("[]"))).client, None);
    }

    #[test]
    fn only_a_true_member_asks_for_the_extension() {
        for (meta, expected) in [
            (r#"{"acp-gateway":{"attach":true}}"#, true),
            (r#"{"acp-gateway":{"attach":"true"}}"#, false),
            (r#"{"attach":true}"#, false),
            ("[]", false),
        ] {
            let own = OwnMeta::parse(Some(raw(meta)));
            assert_eq!(own.attach, expected, "{meta}");
        }
        assert!(!OwnMeta::parse(None).attach);
    }

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
