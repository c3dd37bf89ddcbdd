//! The gateway's source under shuttle, which runs tasks and threads in many orders and fails on deadlocks.
//!
//! The crate compiles the race for a request (`crates/sessions/src/session/requests/open.rs`) unchanged, over the event log in `log/`, and replaces their
//! environment. Locks of the standard library and tasks of tokio come from shuttle. The session's actor
//! contains only the code that the race needs. Code without concurrency (the types, ACP) is that of the gateway.

extern crate model_std as std;
// The source of the gateway names `workspace::AgentTerminals`.
extern crate self as workspace;

use std::marker::PhantomData;

pub mod follow;
pub mod session;

/// Terminals are not part of the models.
pub struct AgentTerminals<R>(PhantomData<R>);

impl<R> Default for AgentTerminals<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}
