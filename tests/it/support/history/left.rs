//! Remaining processes after an end, and resources in use during a run.

use std::time::Duration;

use super::{Found, History, OUTLIVE, Rule};

/// A process that was alive after the end of its owner.
#[derive(Debug, Clone)]
pub(crate) struct Alive {
    pub(crate) pid: u32,
    pub(crate) what: String,
    /// The owner that had ended: a session, or a life of the gateway.
    pub(crate) owner: String,
    /// How long before it was seen.
    pub(crate) after: Duration,
}

/// Memory that a gateway held at some moment, in KiB.
#[derive(Debug, Clone)]
pub(crate) struct MemoryUse {
    pub(crate) by: String,
    pub(crate) kib: u64,
}

pub(super) fn check(history: &History, found: &mut Found) {
    for Alive {
        pid,
        what,
        owner,
        after,
    } in &history.alive
    {
        if *after >= OUTLIVE {
            found.add(
                Rule::Survivor,
                format!("{pid} ({what}) is alive {after:?} after the end of {owner}"),
            );
        }
    }
    let Some(budget) = history.memory_budget else {
        return;
    };
    for MemoryUse { by, kib } in &history.memory {
        if *kib > budget {
            found.add(
                Rule::Memory,
                format!("{by} held {kib} KiB, and has {budget} KiB"),
            );
        }
    }
}
