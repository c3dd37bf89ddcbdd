//! The decisions of a session about requests of its agent: the gateway's source with a minimal actor.

mod actor;
mod error;
mod journal;
mod owner;
mod record;
mod requests;

pub use owner::first_answer_wins;
