//! Sessions and all that runs in them.
//!
//! - [`limits`]: the limits of the crate.
//! - [`transcript`]: a pure fold of events into turns, messages, tool calls, plan and usage.
//! - [`projection`]: the events of a turn as the steps that chat protocols have in common.
//! - [`session`]: one actor for each session, its journal and its directory.
//! - [`conversation`]: the sessions of the conversations of chat clients.
//! - [`webhooks`]: a reader of the log that sends requests.
//! - [`task`]: one-shot tasks and their durable queue.
//! - [`broadcast`]: one message to many agents, sessions and members.

pub mod limits;
pub mod transcript;
pub mod projection;
pub mod webhooks;
pub mod session;
pub mod task;
pub mod conversation;
pub mod broadcast;
