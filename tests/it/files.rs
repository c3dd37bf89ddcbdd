//! A session's files: what paths can reach, what agents and clients do to them, and what prompts carry of them.

mod agent;
mod attacks;
