//! What an agent does wrong, and what its client sees: a typed outcome, and never another session's business.

mod lines;
mod messages;
mod process;
mod start;
