//! Turns: how they begin, wait, queue, are cancelled, are read, and are never run twice.

mod cancel;
pub(crate) mod changes;
mod echoes;
mod idempotency;
mod one_key;
mod queue;
mod snapshots;
mod streams;
mod waits;
