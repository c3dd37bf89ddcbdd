//! The decisions of a session about requests of its agent: the gateway's source with a minimal actor.

mod actor;
mod agent_requests;
mod error;
mod owner;
mod record;

pub use owner::first_answer_wins;
