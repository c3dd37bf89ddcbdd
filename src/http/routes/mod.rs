//! One file for each resource: its handlers, and their lines of the OpenAPI document.

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
