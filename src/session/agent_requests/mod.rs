//! Requests of the agent that clients answer. The first answer wins.
//!
//! Reading order: `open` (the open requests), `policy` (the timeout of a question, and the tools that need no question),
//! `answers` (checks of clients' answers).

pub(super) mod answers;
mod open;
pub(super) mod policy;

#[cfg(test)]
mod tests;

pub(super) use open::{AgentRequests, EndedBy, OfferedRequest, Resolving, Wait};
