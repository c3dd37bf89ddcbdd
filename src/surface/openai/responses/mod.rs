//! `/openai/v1/responses`.
//!
//! A turn is one response, or several: a permission request completes a response, and the next one begins with the answer.
//! The number of a response in its turn is the number of permission requests before it. Therefore the id of a response names
//! its frames, and a client can read them again from any position.
//!
//! Read in this order:
//! 1. `id`: the id of a response. `request`: the body.
//! 2. `object`: the response and its items. `encoder`: steps of a turn to frames.
//! 3. `routes`: the handlers.

mod encoder;
mod id;
mod object;
mod request;
mod routes;

pub(super) use routes::{cancel, create, get};
