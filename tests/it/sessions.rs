//! Sessions: made, found, changed, closed, attached, erased.

mod changes;
mod create;
mod ends;
mod list;
mod processes;
mod storm;
