//! `/openai/v1/responses` and `/openai/v1/conversations`.
//!
//! A turn is one response, or several: a permission request completes a response, and the next one begins with the answer.
//! The number of a response in its turn is the number of permission requests before it. Therefore the id of a response names
//! its frames, and a client can read them again from any position.
//!
//! Read in this order:
//! 1. `encoder`: the response, its id and its items, and steps of a turn to frames.
//! 2. `items`: the items of a turn, for lists.
//! 3. `routes`: the handlers of responses, and their body. `conversations`: the handlers of conversations.

pub(super) mod conversations;
mod encoder;
mod items;
mod routes;

pub(super) use routes::{cancel, create, get, input_items};
