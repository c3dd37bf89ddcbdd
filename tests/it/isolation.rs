//! The isolation of agents, against an agent that tries to leave it (`tests/isolation/hostile.py`).

mod attacks;
mod container;
mod control_group;
mod folders;
pub(crate) mod ground;
mod groups;
mod lifecycle;
mod links;
mod nested;
mod programs;
mod reports;
mod run_as;
mod services;
mod table;
mod walk;
