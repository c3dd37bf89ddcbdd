//! The UI message stream of the Vercel AI SDK, at `/ai-sdk/{agent}`: `useChat` and assistant-ui with the stock transport.
//!
//! A turn is one message of the assistant. A permission request ends the response while the turn waits. The next request
//! contains the answer, and its response continues the same message.
//!
//! Read in this order:
//! 1. `routes`: the handlers, the messages of the client, and its answers.
//! 2. `encoder`: steps of a turn to frames. Version 5, 6 and 7 of the AI SDK accept all of them, except approvals.

mod encoder;
mod routes;

pub(super) use routes::router;
