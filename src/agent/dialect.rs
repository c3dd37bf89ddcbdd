//! Dialects: the translation between the lines of an agent and ACP, and the rules of the agent's protocol.
//!
//! One value serves one connection, from `initialize` to its end, so a dialect can keep state. The layers above see
//! ACP messages and ask the dialect about differences. The views of single fields are in `acp`.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::acp::{AcpVersion, UpdateLine, method};
use crate::jsonrpc::{self, CallId, Message};

/// A message of the gateway to the agent.
#[derive(Debug)]
pub enum Outgoing<'a> {
    Request {
        id: CallId,
        method: &'a str,
        params: &'a RawValue,
    },
    Notification {
        method: &'a str,
        params: &'a RawValue,
    },
    /// The answer to a request of the agent: a result, or an error object.
    Answer {
        id: &'a RawValue,
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
}

/// One line of the agent.
#[derive(Debug)]
pub struct Line<'a> {
    /// The lines of one read.
    pub block: &'a [u8],
    /// The position of the line in the block, without its end.
    pub range: Range<usize>,
    /// Whether the whole block is UTF-8.
    pub is_utf8: bool,
    pub max_json_depth: usize,
}

/// A message of the agent.
#[derive(Debug)]
pub enum Decoded {
    /// A common `session/update`, as parts of the block.
    Update(UpdateLine),
    Message(Message),
    /// A line for the agent, in response to its line.
    Send(Bytes),
    /// The line has no meaning in this dialect.
    Invalid,
}

/// The effect of a message of the gateway.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Lines for the agent, each with its newline. May be empty.
    pub lines: Bytes,
    /// Messages that the reader delivers as messages of the agent, without a line of the agent.
    pub replies: Vec<Decoded>,
}

impl From<Bytes> for Encoded {
    fn from(lines: Bytes) -> Self {
        Self {
            lines,
            replies: Vec::new(),
        }
    }
}

/// The translation for one connection. The provided methods encode and decode JSON-RPC messages of ACP.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// The version of ACP of the messages above the dialect.
    fn version(&self) -> AcpVersion;

    /// Whether [`encode`](Self::encode) returns replies.
    fn has_replies(&self) -> bool {
        false
    }

    /// Encodes a message. The provided method encodes it as one line.
    fn encode(&self, message: Outgoing<'_>) -> Encoded {
        let line = match message {
            Outgoing::Request { id, method, params } => jsonrpc::request(id, method, params),
            Outgoing::Notification { method, params } => jsonrpc::notification(method, params),
            Outgoing::Answer {
                id,
                outcome: Ok(result),
            } => jsonrpc::result(id, result),
            Outgoing::Answer {
                id,
                outcome: Err(error),
            } => jsonrpc::error(id, error),
        };
        line.into()
    }

    /// The lines before the end of the connection. Called at the start of a graceful stop, possibly several times.
    fn farewell(&self) -> Bytes {
        Bytes::new()
    }

    /// Decodes a line and appends its messages.
    fn decode(&self, line: Line<'_>, messages: &mut Vec<Decoded>) {
        let Line {
            block,
            range,
            is_utf8,
            max_json_depth,
        } = line;
        let update = if is_utf8 {
            UpdateLine::scan(block, range.clone(), max_json_depth)
        } else {
            None
        };
        messages.push(match update {
            Some(update) => Decoded::Update(update),
            None => match jsonrpc::parse(&block[range.clone()], max_json_depth) {
                Ok(message) => Decoded::Message(message),
                Err(error) => {
                    tracing::debug!(%error, bytes = range.len(), "invalid JSON-RPC line from the agent");
                    Decoded::Invalid
                }
            },
        });
    }

    /// The method that signs in with one of `authMethods`. The params are `{methodId}`.
    fn login_method(&self) -> &'static str {
        if self.is_v1() {
            method::AUTHENTICATE
        } else {
            method::AUTH_LOGIN
        }
    }

    /// The method that signs out.
    fn logout_method(&self) -> &'static str {
        if self.is_v1() {
            method::LOGOUT
        } else {
            method::AUTH_LOGOUT
        }
    }

    /// The method that restores a session and replays its history.
    fn replay_method(&self) -> &'static str {
        if self.is_v1() {
            method::SESSION_LOAD
        } else {
            method::SESSION_RESUME
        }
    }

    /// Returns true if sessions have modes. Otherwise, the mode is the option with the category `mode`.
    fn has_modes(&self) -> bool {
        self.is_v1()
    }

    /// Returns true if the agent may request files and terminals from its client.
    fn has_client_methods(&self) -> bool {
        self.is_v1()
    }

    /// Returns true if the answer to `session/prompt` ends the turn. Otherwise the answer only confirms that
    /// the message was inserted, and a `state_update` reports the end of the work.
    fn answer_ends_turn(&self) -> bool {
        self.is_v1()
    }

    /// Returns true if a single tool call or terminal of the agent can be cancelled.
    fn has_cancel_targets(&self) -> bool {
        !self.is_v1()
    }

    fn is_v1(&self) -> bool {
        self.version() == AcpVersion::V1
    }
}

/// The dialect of a version of ACP.
#[derive(Debug, Clone, Copy)]
pub struct Acp(pub AcpVersion);

impl Dialect for Acp {
    fn version(&self) -> AcpVersion {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::jsonrpc::PendingTables;

    #[test]
    fn method_names_match_the_schema() {
        let (first, second) = (Acp(AcpVersion::V1), Acp(AcpVersion::V2));
        assert_eq!(first.login_method(), v1::AGENT_METHOD_NAMES.authenticate);
        assert_eq!(first.logout_method(), v1::AGENT_METHOD_NAMES.logout);
        assert_eq!(first.replay_method(), v1::AGENT_METHOD_NAMES.session_load);
        assert_eq!(second.login_method(), v2::AGENT_METHOD_NAMES.auth_login);
        assert_eq!(second.logout_method(), v2::AGENT_METHOD_NAMES.auth_logout);
        assert_eq!(
            second.replay_method(),
            v2::AGENT_METHOD_NAMES.session_resume
        );
        assert_eq!(
            (first.version(), second.version()),
            (AcpVersion::V1, AcpVersion::V2)
        );
    }

    #[test]
    fn acp_messages_are_json_rpc_lines() {
        let raw = |text: &'static str| serde_json::from_str::<&RawValue>(text).unwrap();
        let id = PendingTables::default().register_call();
        let params = raw(r#"{"a":1.10}"#);
        for (message, line) in [
            (
                Outgoing::Request {
                    id,
                    method: "m",
                    params,
                },
                r#""id":1,"method":"m","params":{"a":1.10}"#,
            ),
            (
                Outgoing::Notification {
                    method: "m",
                    params,
                },
                r#""method":"m","params":{"a":1.10}"#,
            ),
            (
                Outgoing::Answer {
                    id: raw("\"x\""),
                    outcome: Ok(params),
                },
                r#""id":"x","result":{"a":1.10}"#,
            ),
            (
                Outgoing::Answer {
                    id: raw("0"),
                    outcome: Err(params),
                },
                r#""id":0,"error":{"a":1.10}"#,
            ),
        ] {
            let line = format!("{{\"jsonrpc\":\"2.0\",{line}}}\n");
            let encoded = Acp(AcpVersion::V1).encode(message);
            assert_eq!(encoded.lines, line.as_bytes());
            assert!(encoded.replies.is_empty());
        }
    }

    #[test]
    fn every_line_of_a_block_is_decoded() {
        let block = concat!(
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"k"}}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{}}"#,
            "\nnoise\n"
        );
        let mut messages = Vec::new();
        let mut start = 0;
        for line in block.lines() {
            let range = start..start + line.len();
            start = range.end + 1;
            let line = Line {
                block: block.as_bytes(),
                range,
                is_utf8: true,
                max_json_depth: 9,
            };
            Acp(AcpVersion::V2).decode(line, &mut messages);
        }
        let [
            Decoded::Update(update),
            Decoded::Message(Message::Request { .. }),
            Decoded::Invalid,
        ] = &messages[..]
        else {
            panic!("{messages:?}");
        };
        assert_eq!(&block[update.session_id.clone()], "s");
    }
}
