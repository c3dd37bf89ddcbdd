//! AG-UI, at `/ag-ui/{agent}`: `HttpAgent`, `CopilotKit` and assistant-ui.
//!
//! A turn is one run, or several: requests of the agent end a run with interrupts while the turn waits, and the next run
//! contains the answers.
//!
//! Read in this order:
//! 1. `input`: the body of a run.
//! 2. `frame`: the events of a run. `encoder`: steps of a turn to events of a run.
//! 3. `history`: the earlier messages of a thread. `capabilities`: those of an agent.
//! 4. `routes`: the handler of a run.

mod capabilities;
mod encoder;
mod frame;
mod history;
mod input;
mod routes;

pub(super) use routes::router;
