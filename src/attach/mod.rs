//! `acp-gateway attach`: an ACP agent on stdio for editors, and a client of a gateway's `/acp`.
//!
//! The module owns the bridge between both: JSON-RPC ids, the reconnects, and the position in each stream. It is only a
//! client. It must not know sessions, the store or processes of a gateway.
//!
//! Read in this order:
//! 1. `bridge`: all decisions, without I/O. `calls`, `agent_requests` and `sessions` are its tables.
//! 2. `path_map`, `message`: folders of the editor, and JSON-RPC messages.
//! 3. `editor`: the protocol of the editor.
//! 4. `client`, `tasks`, `backoff`, `driver`: HTTP, and the loop that carries out the decisions.
//! 5. `sign_in`, `raw_terminal`: the sign-in to an agent in a terminal.
//!
//! Constraints and rejected alternatives:
//!
//! - The gateway has no special case for the bridge, so other clients of `/acp` can reconnect in the same way.
//! - HTTP with Server-Sent Events, not WebSocket: WebSocket messages have no positions, so a client cannot resume. A
//!   bridge to the REST API would need a translation for each new feature of ACP.
//! - A reconnect always restores every session. There is no second procedure for partial failures.
//! - Besides the end of stdin and signals, only a rejected key ends the bridge. Editors do not restart it.
//! - An error with the same id replaces an answer that the gateway rejects. Otherwise the agent waits for its timeout.
//! - The bridge reads the streams no faster than the editor reads stdout.
//! - `--map` translates only the folders of sessions and the paths in `fs/*` and `terminal/create`. Texts of an agent
//!   contain paths at any place, so a translation of updates would be incomplete.
//! - With `--session`, the response to `session/new` precedes the history. Editors drop updates of an unknown session.
//! - The bridge restarts a gateway only if that gateway ended when idle. A gateway that an operator stopped stays
//!   stopped.

mod agent_requests;
mod bridge;
mod calls;
mod client;
mod driver;
mod editor;
mod message;
mod path_map;
mod raw_terminal;
mod sessions;
mod setup;
mod sign_in;
mod tasks;

pub use client::Target;
pub use driver::{AttachError, Options, run};
pub use path_map::{Mapping, MappingError, PathMap};
pub use sign_in::{SignIn, SignInError};
pub use tasks::{AllowError, Locator};
