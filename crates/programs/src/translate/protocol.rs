//! The interfaces of the halves of a translation, between which messages of ACP v1 pass.
//!
//! A protocol has no I/O and no time.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::stdio::{Line, MAX_DEPTH, parse};
use wire::jsonrpc::{self, EnvelopeError, Message, RpcError};

#[derive(Debug)]
pub(super) enum Output {
    ToClient(Message),
    /// Lines for the agent, each with its newline.
    ToAgent(Bytes),
    Launch(Launch),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// The working directory. `None`: that of this program.
    pub(super) cwd: Option<PathBuf>,
    pub(super) arguments: Vec<String>,
}

/// The protocol of one agent, which keeps the state of the translation.
pub(super) trait AgentProtocol: fmt::Debug + Send {
    fn outputs(&mut self) -> Vec<Output>;

    /// The translation begins. The provided method starts the command.
    fn open(&mut self) -> Vec<Output> {
        vec![Output::Launch(Launch::default())]
    }

    /// The argument with which the command prints its version, if the protocol needs it.
    fn version_argument(&self) -> Option<&'static str> {
        None
    }

    /// Receives the output of the command with [`version_argument`](Self::version_argument).
    fn set_version(&mut self, _output: &str) {}

    /// Handles a message of the client. The ids of its requests are numbers of the translation.
    fn message(&mut self, message: Message);

    /// Translates a line of the agent. An error means that the rest of the line is not translated.
    fn line(&mut self, line: &[u8]) -> Result<(), LineError>;

    /// The command runs, as [`Output::Launch`] requested.
    fn launched(&mut self) {}

    /// The command has ended or could not be started. Returns false if the translation ends with it.
    fn ended(&mut self, _reason: &str) -> bool {
        false
    }

    fn farewell(&mut self) -> Bytes {
        Bytes::new()
    }
}

/// The messages that follow from one line of the client, or from one message of the agent.
#[derive(Debug, Default)]
pub struct Translated {
    pub(crate) to_client: Vec<Bytes>,
    pub(crate) to_agent: Vec<Message>,
}

impl Translated {
    /// The answer to a line that is no message.
    pub(super) fn invalid_line(error: &RpcError) -> Self {
        Self {
            to_client: vec![jsonrpc::error(RawValue::NULL, error)],
            to_agent: Vec::new(),
        }
    }
}

/// The protocol of one client, which keeps the state of the translation. It has no I/O.
pub trait ClientProtocol: fmt::Debug + Send {
    fn client_line(&mut self, line: &[u8]) -> Translated;

    fn agent_message(&mut self, message: Message) -> Translated;

    fn agent_line(&mut self, line: Bytes) -> Translated {
        parse(&line).map_or_else(
            |_| Translated::default(),
            |message| self.agent_message(message),
        )
    }

    /// A line of the agent without a meaning in its protocol, as the client receives it.
    fn unknown_agent_line(&self, _line: &[u8]) -> Option<Bytes> {
        None
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// Handles a line of the client. An error answers a line above the limit.
pub(crate) fn receive(client: &mut dyn ClientProtocol, line: Line) -> Translated {
    match line.or_else(|too_long| too_long.as_answer()) {
        Ok(line) => client.client_line(&line),
        Err(error) => Translated::invalid_line(&error),
    }
}

/// A client with ACP: messages pass unchanged.
#[derive(Debug)]
pub(super) struct AcpClient;

impl ClientProtocol for AcpClient {
    fn client_line(&mut self, line: &[u8]) -> Translated {
        match parse(line) {
            Ok(message) => Translated {
                to_client: Vec::new(),
                to_agent: vec![message],
            },
            Err(error) => Translated::invalid_line(&error),
        }
    }

    fn agent_message(&mut self, message: Message) -> Translated {
        Translated {
            to_client: vec![message.line()],
            to_agent: Vec::new(),
        }
    }

    fn agent_line(&mut self, line: Bytes) -> Translated {
        Translated {
            to_client: vec![line],
            to_agent: Vec::new(),
        }
    }

    /// The line itself, so that the client can count and show it. A line that would be a message of ACP has a prefix.
    fn unknown_agent_line(&self, line: &[u8]) -> Option<Bytes> {
        // A client may read deeper messages than the translation.
        let is_message = matches!(
            jsonrpc::parse(line, MAX_DEPTH),
            Ok(_) | Err(EnvelopeError::Depth { .. })
        );
        let prefix: &[u8] = if is_message { b"not translated: " } else { b"" };
        Some([prefix, line, b"\n"].concat().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_line_of_the_agent_is_no_message_for_the_client() {
        let shown = |line: &str| AcpClient.unknown_agent_line(line.as_bytes()).unwrap();
        assert_eq!(shown("Log in first"), "Log in first\n");
        assert_eq!(shown(r#"{"type":"x"}"#), "{\"type\":\"x\"}\n");
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(shown(answer), format!("not translated: {answer}\n"));
        let deep = answer.replace("{}", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
        assert_eq!(shown(&deep), format!("not translated: {deep}\n"));
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("the line is not a JSON object")]
    NotAnObject,
    #[error("the line is nested deeper than {max}")]
    Depth { max: usize },
    #[error("`{object}` has no valid member `{member}`")]
    Member {
        object: &'static str,
        member: &'static str,
    },
    #[error("the line answers an unknown request")]
    UnknownRequest,
    #[error("{0}")]
    Envelope(String),
}
