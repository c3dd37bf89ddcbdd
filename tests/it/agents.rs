//! Agents themselves: their own sessions, their methods by name, signing in to them.

mod auth;
pub(crate) mod credentials;
mod early_acp;
mod listing;
mod reasons;
pub(crate) mod remote;
mod rpc;
mod sign_in_at_load;
pub(crate) mod socket;
mod starts;
mod status;
mod stream_json;
mod terminal;
mod warm;
