//! The event loop of a session's actor: all sources that can wake it, in order of priority.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::client_methods::Completion;
use super::command::Command;
use crate::agent::{AgentFailure, Batch};
use crate::eventlog::DiskSpace;
use crate::pool::{Lease, PendingLease};
use crate::shutdown::Shutdown;
use crate::workspace::TerminalEvent;

#[derive(Debug)]
pub(super) enum Wakeup {
    /// `None`: every handle was dropped.
    Command(Option<Command>),
    Lease(Box<Result<Lease, AgentFailure>>),
    /// `None`: the process closed its stdout.
    Batch(Option<Batch>),
    Committed,
    /// Whether the disk accepts commits has changed.
    StorageRoom,
    /// The gateway has served a request of the agent.
    Completion(Completion),
    /// An event of a terminal that the gateway runs.
    Terminal(TerminalEvent),
    Recalled,
    Deadline,
    Draining,
}

#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Whether handles exist that can send commands.
    pub(super) has_handles: bool,
    pub(super) commits: watch::Receiver<u64>,
    pub(super) room: watch::Receiver<DiskSpace>,
    /// Never closed, because the actor keeps a sender.
    pub(super) completions: mpsc::Receiver<Completion>,
    /// Never closed, because the actor keeps a sender.
    pub(super) terminal_events: mpsc::Receiver<TerminalEvent>,
    pub(super) pending_lease: Option<PendingLease>,
    pub(super) lease: Option<Lease>,
    pub(super) recall: Option<Arc<Notify>>,
    pub(super) shutdown: Shutdown,
}

/// The sources that the actor polls now.
#[derive(Debug, Clone, Copy)]
pub(super) struct WakeConditions {
    /// Whether to read output of the agent and its terminals. False while many bytes wait for a commit.
    pub(super) batches: bool,
    /// Whether to wake on commits. True only while something waits for a commit.
    pub(super) commits: bool,
    pub(super) draining: bool,
    pub(super) deadline: Option<Instant>,
}

impl EventLoop {
    pub(super) async fn next_wakeup(&mut self, listen: WakeConditions) -> Wakeup {
        // A pending lease is polled only after the former process was released.
        let place = self.pending_lease.as_mut().filter(|_| self.lease.is_none());
        let batches = self.lease.as_mut().filter(|_| listen.batches);
        tokio::select! {
            biased;
            command = self.commands.recv(), if self.has_handles => Wakeup::Command(command),
            () = self.shutdown.drain_started(), if listen.draining => Wakeup::Draining,
            () = deadline_reached(listen.deadline) => Wakeup::Deadline,
            Ok(()) = self.commits.changed(), if listen.commits => Wakeup::Committed,
            Ok(()) = self.room.changed() => Wakeup::StorageRoom,
            Some(served) = self.completions.recv() => Wakeup::Completion(served),
            lease = leased(place) => Wakeup::Lease(Box::new(lease)),
            () = recalled(self.recall.as_deref()) => Wakeup::Recalled,
            batch = next_batch(batches) => Wakeup::Batch(batch),
            // Terminals come after the agent, so that the agent can always stop a command that floods.
            Some(news) = self.terminal_events.recv(), if listen.batches => Wakeup::Terminal(news),
        }
    }
}

async fn deadline_reached(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

async fn leased(place: Option<&mut PendingLease>) -> Result<Lease, AgentFailure> {
    match place {
        Some(place) => place.lease().await,
        None => std::future::pending().await,
    }
}

async fn recalled(recall: Option<&Notify>) {
    match recall {
        Some(recall) => recall.notified().await,
        None => std::future::pending().await,
    }
}

async fn next_batch(lease: Option<&mut Lease>) -> Option<Batch> {
    match lease {
        Some(lease) => lease.process_mut().batches.recv().await,
        None => std::future::pending().await,
    }
}
