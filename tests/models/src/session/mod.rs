//! The decisions of a session about requests of its agent: the gateway's source with a minimal actor.

mod actor;
mod agent_requests;
mod owner;
mod record;
mod refusal;

pub use owner::first_answer_wins;
