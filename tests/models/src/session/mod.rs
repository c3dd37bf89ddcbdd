//! The decisions of a session about requests of its agent: the gateway's source with a minimal actor.

mod actor;
mod owner;
mod record;
mod refusal;
#[expect(dead_code, reason = "other parts of a session use the remaining items")]
#[path = "../../../../src/session/requests.rs"]
mod requests;

pub use owner::first_answer_wins;
