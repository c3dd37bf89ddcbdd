//! The steps of a turn.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::ToolCall;
use base::types::{RequestId, TerminalId, Timestamp};
use events::api::{CancelCause, Resolution};
use wire::acp::RequestKind;

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

#[derive(Debug)]
pub struct Request<'a> {
    pub id: RequestId,
    pub kind: RequestKind,
    pub params: &'a RawValue,
    /// The tool call of a permission request. The gateway names one if the agent did not.
    pub call: Option<&'a ToolCall>,
    pub deadline: Option<Timestamp>,
}

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

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(rename = "inputTokens")]
    pub input: u64,
    #[serde(rename = "outputTokens")]
    pub output: u64,
    total_tokens: Option<u64>,
    cached_read_tokens: Option<u64>,
    thought_tokens: Option<u64>,
}

impl Usage {
    /// `None` unless the agent reports them.
    pub fn of(usage: Option<&RawValue>) -> Option<Self> {
        serde_json::from_str(usage?.get()).ok()
    }

    pub fn total(&self) -> u64 {
        self.total_tokens.unwrap_or(self.input + self.output)
    }

    pub fn cached(&self) -> u64 {
        self.cached_read_tokens.unwrap_or(0)
    }

    pub fn thought(&self) -> u64 {
        self.thought_tokens.unwrap_or(0)
    }
}

/// A step of a turn. Values of the agent are raw. Text is a string in JSON, with its quotes.
#[derive(Debug)]
pub enum Step<'a> {
    Begun {
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
        /// The end of the output so far, for clients that replace a terminal as a whole.
        output: &'a str,
    },
    Requested(Request<'a>),
    Resolved {
        id: RequestId,
        kind: RequestKind,
        resolution: Resolution,
        /// Whether the answer permits the call.
        allowed: bool,
    },
    Ended(End<'a>),
}
