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
//! 2. `call`: a tool call while its updates arrive. `halves`: characters that an agent splits into two texts.
//! 3. `projector`: events to steps.
//! 4. `output`: the input and the result of a tool call as text, and the reason why it has none. `terminal`: the output of terminals.

mod call;
mod halves;
mod output;
mod projector;
mod step;
mod terminal;

pub use call::{CallStatus, ToolCall};
pub use halves::replace_halves;
pub use output::{failure_text, input_text, output_text};
pub use projector::TurnProjector;
pub use step::{Asked, Block, End, Request, Role, Step};
pub use terminal::TerminalTails;
