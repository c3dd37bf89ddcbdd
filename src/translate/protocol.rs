//! The interfaces of the halves of a translation, between which messages of ACP v1 pass.
//!
//! A protocol has no I/O and no time.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::object::LineError;
use crate::jsonrpc::{self, CallId, EnvelopeError, Message, RpcError};

/// A message of the client for the agent.
#[derive(Debug)]
pub(super) enum Outgoing<'a> {
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

/// One effect of a message or a line.
#[derive(Debug)]
pub(super) enum Output {
    /// A message for the client.
    ToClient(Message),
    /// Lines for the agent, each with its newline.
    ToAgent(Bytes),
    /// Start the command, after the end of the running one.
    Launch(Launch),
}

/// A start of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// The working directory. `None`: that of this program.
    pub(super) cwd: Option<PathBuf>,
    /// The arguments that follow those of the command.
    pub(super) arguments: Vec<String>,
}

/// The reason why a line is not translated.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidLine {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Members(#[from] LineError),
}

impl Outgoing<'_> {
    /// The message as a line of JSON-RPC.
    pub(super) fn line(&self) -> Bytes {
        match *self {
            Self::Request { id, method, params } => jsonrpc::request(id, method, params),
            Self::Notification { method, params } => jsonrpc::notification(method, params),
            Self::Answer {
                id,
                outcome: Ok(result),
            } => jsonrpc::result(id, result),
            Self::Answer {
                id,
                outcome: Err(error),
            } => jsonrpc::error(id, error),
        }
    }
}

/// The protocol of one agent, which keeps the state of the translation.
pub(super) trait AgentProtocol: fmt::Debug + Send {
    /// The first effects. The provided method starts the command.
    fn open(&mut self) -> Vec<Output> {
        vec![Output::Launch(Launch::default())]
    }

    /// The argument with which the command prints its version, if the protocol needs it.
    fn version_argument(&self) -> Option<&'static str> {
        None
    }

    /// Receives the output of the command with [`version_argument`](Self::version_argument).
    fn set_version(&mut self, _output: &str) {}

    /// Translates a message of the client.
    fn message(&mut self, message: &Outgoing<'_>, out: &mut Vec<Output>);

    /// Translates a line of the agent. An error means that the rest of the line is not translated.
    fn line(&mut self, line: &[u8], out: &mut Vec<Output>) -> Result<(), InvalidLine>;

    /// The command runs, as [`Output::Launch`] requested.
    fn launched(&mut self, _out: &mut Vec<Output>) {}

    /// The command has ended or could not be started. Returns false if the translation ends with it.
    fn ended(&mut self, _reason: &str, _out: &mut Vec<Output>) -> bool {
        false
    }

    /// The lines before the end of the command.
    fn farewell(&mut self) -> Bytes {
        Bytes::new()
    }
}

/// The messages that follow from one line of the client, or from one message of the agent.
#[derive(Debug, Default)]
pub struct Served {
    /// Lines for the client, each with its newline.
    pub to_client: Vec<Bytes>,
    /// Messages of ACP for the agent.
    pub to_agent: Vec<Message>,
}

/// The protocol of one client, which keeps the state of the translation. It has no I/O.
pub trait ClientProtocol: fmt::Debug + Send {
    /// Translates a line of the client.
    fn client_line(&mut self, line: &[u8], served: &mut Served);

    /// Answers a line that could not be read.
    fn invalid_line(&mut self, error: RpcError, served: &mut Served) {
        served
            .to_client
            .push(jsonrpc::error(RawValue::NULL, &error));
    }

    /// Translates a message of the agent.
    fn agent_message(&mut self, message: Message, served: &mut Served);

    /// A line of the agent without a meaning in its protocol, as the client receives it.
    fn unknown_agent_line(&self, _line: &[u8]) -> Option<Bytes> {
        None
    }

    /// Whether the client has ended the connection with a message.
    fn has_ended(&self) -> bool {
        false
    }
}
