//! The projection of a turn: its events as the steps that chat protocols have in common.
//!
//! Clients of other protocols do not know ACP. They know messages, reasoning, tool calls and approvals. [`TurnProjector`]
//! turns the events of one turn into such steps, and the encoder of a protocol writes a frame for each step. The projector
//! is a function of the events alone. It has no clock and does no I/O. Therefore a replay yields the same steps as the live
//! stream, also after a restart.
//!
//! The module must not know protocols, streams, the store or sessions.
//!
//! Read in this order:
//! 1. `step`: the steps.
//! 2. `call`: a tool call, on the fold of the transcript.
//! 3. `projector`: events to steps.

mod call;
mod projector;
mod step;

pub use call::{CallStatus, ToolCall};
pub use projector::TurnProjector;
pub use step::{Block, End, Request, Role, Step, Usage};
