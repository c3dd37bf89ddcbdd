//! Sessions: made, found, changed, closed, attached, erased.

mod changes;
mod calls;
mod conditional;
mod create;
mod ends;
mod fork;
mod handover;
mod list;
mod metadata;
mod modes;
mod processes;
mod storm;
mod adopt;
mod traces;
mod waits;
