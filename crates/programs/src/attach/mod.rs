//! `acp-gateway attach`: an ACP agent on stdio for editors, and a client of a gateway's `/acp`.
//!
//! The module owns the bridge between both: JSON-RPC ids, the reconnects, and the position in each stream. It is only a
//! client. It must not know sessions, the store or processes of a gateway.
//!
//! Reading order: `bridge` (all decisions, without I/O) with `tables`, `path_map` (folders of the editor) and `message`,
//! `client` and `driver` (HTTP, and the loop that carries out the decisions), `sign_in` (in a terminal).
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

mod tables;
mod bridge;
mod client;
mod driver;
mod message;
mod path_map;
mod sign_in;

pub use self::client::Target;
pub use self::driver::{AllowError, AttachError, Locator, Options, run};
pub use self::path_map::{Mapping, MappingError, PathMap};
pub use self::sign_in::{SignIn, SignInError};
