//! The interface of a served protocol.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;

use crate::jsonrpc::{Message, RpcError};

/// The messages that follow from one line of the client, or from one message of the agent.
#[derive(Debug, Default)]
pub struct Served {
    /// Lines for the client, each with its newline.
    pub to_client: Vec<Bytes>,
    /// Messages of ACP for the agent.
    pub to_agent: Vec<Message>,
}

/// The protocol of one client, which keeps the state of the translation.
pub trait ServedDialect: fmt::Debug + Send {
    /// Translates a line of the client.
    fn client_line(&mut self, line: &[u8], served: &mut Served);

    /// Answers a line that could not be read.
    fn invalid_line(&mut self, error: RpcError, served: &mut Served);

    /// Translates a message of the agent.
    fn agent_message(&mut self, message: Message, served: &mut Served);

    /// Whether the protocol finishes its work after the end of the client's output.
    fn is_busy(&self) -> bool {
        false
    }

    /// Whether the client has ended the connection with a message, or must not continue.
    fn ending(&self) -> Option<Ending> {
        None
    }
}

/// The end of a connection without the end of the client's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    #[error("the client has ended the connection")]
    Requested,
    #[error("the client wrote too many lines that are not messages")]
    TooManyInvalidLines,
    /// The client has received the reason.
    #[error("the session could not be started")]
    NoSession,
}

/// The values that a protocol reports, or uses for its sessions.
#[derive(Debug, Clone)]
pub struct ServedContext {
    /// The folder of sessions for which the client names none.
    pub cwd: PathBuf,
    /// The version of this program.
    pub version: &'static str,
}
