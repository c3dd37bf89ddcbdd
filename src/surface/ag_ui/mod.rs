//! AG-UI, at `/ag-ui/{agent}`: `HttpAgent`, `CopilotKit` and assistant-ui.
//!
//! A turn is one run, or several: requests of the agent end a run with interrupts while the turn waits, and the next run
//! contains the answers.
//!
//! Read in this order:
//! 1. `routes`: a run and its body, the earlier messages of a thread, and the capabilities of an agent.
//! 2. `encoder`: steps of a turn to events of a run.

mod encoder;
mod routes;

pub(super) use routes::router;
