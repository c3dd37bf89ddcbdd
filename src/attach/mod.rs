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
