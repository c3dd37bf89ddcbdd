//! The dialect of agents that were written before version 1 of ACP.

pub mod names;
