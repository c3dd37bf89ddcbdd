//! The isolation of agents, against an agent that tries to leave it (`tests/isolation/hostile.py`).

mod attacks;
mod folders;
mod ground;
mod lifecycle;
mod reports;
mod run_as;
mod start_time;
mod table;
