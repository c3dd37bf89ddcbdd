//! The remote transport of ACP at `/acp`.

mod attach;
mod brought_servers;
mod clients;
mod limits_of_the_reference;
mod matrix;
mod messages;
pub(crate) mod raw;
mod rules;
mod client_tools;
mod client_tools_remote;
mod shared;
mod socket;
mod streams;
