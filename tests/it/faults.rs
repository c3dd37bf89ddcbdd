//! What an agent does wrong, and what its client sees: a typed outcome, and never another session's business.

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
