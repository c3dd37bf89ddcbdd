//! The public API: types of requests and responses, and the table of problem codes.
//!
//! The module owns the REST contract and its OpenAPI schemas. It must not know routes or how the gateway
//! performs an operation. The only HTTP status that it knows is the status of a problem code.
//!
//! Read `session`, `prompt` and `request` first, then `problem`. `schema` contains only OpenAPI schemas.

use serde::{Deserialize, Deserializer};

mod admin;
mod agent;
mod auth;
mod broadcast;
mod file;
mod fleet;
mod gateway;
mod problem;
mod prompt;
mod public_url;
mod request;
pub mod schema;
mod session;
mod states;
mod task;
mod terminal;
mod transcript;
mod webhook;

pub use admin::*;
pub use agent::*;
pub use auth::*;
pub use broadcast::*;
pub use file::*;
pub use fleet::*;
pub use gateway::*;
pub use problem::*;
pub use prompt::*;
pub use public_url::*;
pub use request::*;
pub use session::*;
pub use states::*;
pub use task::*;
pub use terminal::*;
pub use transcript::*;
pub use webhook::*;

/// For a member that can be absent, null or a value: serde calls this function only for a member that is present.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
