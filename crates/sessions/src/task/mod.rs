//! Tasks: one prompt each, in a session of its own, that the gateway runs when a process is free.
//!
//! The queue is in the store, so it survives a restart. A task that has begun creates its session and its prompt with an
//! idempotency key that belongs to the task. After a restart it continues with the same key: the session's log has the
//! prompt or does not have it, so no task runs twice. The end of a task is the end of its turn.
//!
//! The module must not know HTTP or processes. It uses sessions as a client does.
//!
//! Reading order: [`record`] (a task in the store, and its end), [`queue`] (the order), [`handle`] (the operations), and
//! [`runner`] (one task; starts tasks and deletes old ones).
//!
//! Rejected designs:
//!
//! - A state machine for tasks in the actor of a session: the actor would run a second kind of turn.
//! - Priorities that change with the age of a task: a fixed place yields the same order, and the queue stays a sorted
//!   map.
//! - A failure for every running task after a crash: it discards the results of turns that ended before the crash. It
//!   also discards the results of fleet members, whose turns continue during a restart.
//!
//! A budget limits runaway work and is not an invoice. The reported `used` value is the size of the context, so a
//! compaction can reduce it.

mod handle;
mod queue;
mod record;
mod runner;

pub use handle::{ChangeError, CreateError, Filter, OpenError, Tasks};
pub use runner::start;
