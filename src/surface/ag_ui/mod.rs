//! AG-UI, at `/ag-ui/{agent}`: `HttpAgent`, `CopilotKit` and assistant-ui.
//!
//! A turn is one run, or several: requests of the agent end a run with interrupts while the turn waits, and the next run
//! contains the answers.
//!
//! Read in this order:
//! 1. `input`: the body of a run.
//! 2. `frame`: the events of a run. `encoder`: steps of a turn to events of a run.
//! 3. `routes`: the handler.

mod encoder;
mod frame;
mod input;
mod routes;

pub(super) use routes::router;
