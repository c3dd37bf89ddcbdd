//! The demo agent as a client sees it: the real binary over stdio.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod asks;
mod behind;
mod client;
mod sessions;
mod sign_in;
mod turns;
mod updates;
mod v2;
mod v2_asks;
mod v2_sessions;
