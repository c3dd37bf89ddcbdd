//! Agents themselves: their own sessions, their methods by name, signing in to them.

mod auth;
mod credentials;
mod keys;
mod listing;
mod reasons;
mod rpc;
mod socket;
mod starts;
mod terminal;
mod warm;
