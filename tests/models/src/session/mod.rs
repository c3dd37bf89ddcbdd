//! What a session's owner decides about requests of its agent, from the gateway's source, with an owner that does
//! nothing else.

mod actor;
mod owner;
mod record;
mod refusal;
#[expect(dead_code, reason = "other parts of a session use the rest")]
#[path = "../../../../src/session/requests.rs"]
mod requests;
#[path = "../../../../src/session/encode.rs"]
mod encode;

pub use owner::first_answer_wins;
