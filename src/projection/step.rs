//! The steps of a turn.

use serde_json::value::RawValue;

use super::call::ToolCall;
use crate::api::Resolution;
use crate::types::{CancelCause, RequestId, TerminalId, Timestamp};

/// The kind of text in a block: a message of the agent, or its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Message,
    Thought,
}

/// Consecutive chunks of one role. A block ends when a chunk of another role or message arrives, or any other step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    pub role: Role,
    /// The number of the block in the turn, from 1.
    pub number: usize,
    /// The child session that sent the text. `None` for the session itself.
    pub subagent: Option<&'a str>,
}

/// The kind of a request of the agent to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// `session/request_permission`.
    Permission,
    /// `elicitation/create`.
    Elicitation,
    /// Another method.
    Other,
}

/// A request of the agent that waits for an answer.
#[derive(Debug)]
pub struct Request<'a> {
    pub id: RequestId,
    pub asked: Asked,
    pub params: &'a RawValue,
    /// The tool call of a permission request. The gateway names one if the agent did not.
    pub call: Option<&'a ToolCall>,
    pub deadline: Option<Timestamp>,
}

/// How a turn ended.
#[derive(Debug)]
pub enum End<'a> {
    Completed {
        stop_reason: &'a str,
        /// Why the gateway cancelled the turn.
        cancel_cause: Option<CancelCause>,
        usage: Option<&'a RawValue>,
    },
    /// The code and the detail of the problem.
    Failed { code: &'a str, detail: &'a str },
}

/// A step of a turn. Values of the agent are raw. Text is a string in JSON, with its quotes.
#[derive(Debug)]
pub enum Step<'a> {
    /// The first step of each turn.
    Begun {
        /// The time of its first event.
        at: Timestamp,
    },
    BlockBegun(Block<'a>),
    Text(Block<'a>, &'a RawValue),
    BlockEnded(Block<'a>),
    /// A content block of ACP that is not text: an image, audio, a resource. It is between blocks.
    Content {
        role: Role,
        content: &'a RawValue,
    },
    CallBegun(&'a ToolCall),
    /// The title, the kind or the input has changed.
    CallDescribed(&'a ToolCall),
    /// The content or the output has changed. The call runs.
    CallProgressed(&'a ToolCall),
    CallEnded(&'a ToolCall),
    Plan(&'a RawValue),
    Usage(&'a RawValue),
    /// The mode, an option, the title or the commands have changed.
    State {
        kind: &'a str,
        update: &'a RawValue,
    },
    Subagent(&'a RawValue),
    TerminalOutput {
        terminal: TerminalId,
        /// A string in Rust, because the gateway wrote it.
        data: &'a str,
    },
    Requested(Request<'a>),
    Resolved {
        id: RequestId,
        asked: Asked,
        call: Option<&'a ToolCall>,
        resolution: Resolution,
        /// Whether the answer permits the call.
        allowed: bool,
    },
    /// The last step.
    Ended(End<'a>),
}
