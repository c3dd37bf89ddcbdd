//! The handles of an actor.

use std::sync::atomic::AtomicBool;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::command::Command;
use crate::eventlog::SessionLog;

/// The handles of an actor: its command channel, its log and its state.
#[derive(Debug)]
pub(super) struct ActorEntry {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) log: SessionLog,
    /// The sequence number of the last end of a turn.
    pub(super) turn_ends: watch::Receiver<u64>,
    /// Cancelled when the actor has stopped and all of its events are durable.
    pub(super) stopped: CancellationToken,
    /// Whether clients can find the session.
    pub(super) visible: AtomicBool,
}
