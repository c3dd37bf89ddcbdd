//! The handlers of the API, one file for each resource.
//!
//! A handler extracts and checks its input, calls the session registry, the pool or the event log, and
//! encodes the response. The `utoipa` attributes and doc comments of the handlers are the OpenAPI document.
//! Routes must not know connections, streams' back-pressure or the store. Begin with `sessions`, then
//! `prompts` and `events`.

pub(super) mod agents;
pub(super) mod auth;
pub(super) mod auth_terminal;
pub(super) mod bulk;
pub(super) mod docs;
pub(super) mod events;
pub(super) mod files;
pub(super) mod gateway;
pub(super) mod health;
pub(super) mod cancellations;
pub(super) mod prompts;
pub(super) mod requests;
pub(super) mod rpc;
pub(super) mod sessions;
pub(super) mod settings;
pub(super) mod terminals;
pub(super) mod tickets;
pub(super) mod transcript;
