//! Faults of an agent, and their effect on a client: a typed outcome, and never data of another session.

mod case;
mod ends;
mod ids;
mod isolation;
mod lines;
mod messages;
mod order;
mod pieces;
mod pressure;
mod process;
mod races;
mod start;
mod stdin;

use case::Case;
