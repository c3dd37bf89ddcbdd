//! `/openai/v1/responses` and `/openai/v1/conversations`.
//!
//! A turn is one response, or several: a permission request completes a response, and the next one begins with the answer.
//! The number of a response in its turn is the number of permission requests before it. Therefore the id of a response names
//! its frames, and a client can read them again from any position.
//!
//! Read in this order:
//! 1. `id`: the id of a response. `request`: the body.
//! 2. `object`: the response and its items. `encoder`: steps of a turn to frames.
//! 3. `items`: the items of a turn, for lists.
//! 4. `routes`: the handlers of responses. `conversations`: those of conversations.

pub(super) mod conversations;
mod encoder;
mod id;
mod items;
mod object;
mod request;
mod routes;

pub(super) use routes::{cancel, create, get, input_items};
