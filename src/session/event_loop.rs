//! Everything that can wake a session's owner, in the order of its urgency.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::command::Command;
use super::client_methods::Completion;
use crate::agent::{AgentFailure, Batch};
use crate::eventlog::DiskSpace;
use crate::pool::{Lease, PendingLease};
use crate::shutdown::Shutdown;
use crate::workspace::TerminalEvent;

#[derive(Debug)]
pub(super) enum Wakeup {
    /// None: every handle is gone.
    Command(Option<Command>),
    Lease(Box<Result<Lease, AgentFailure>>),
    /// None: the process has closed its stdout.
    Batch(Option<Batch>),
    Committed,
    /// The disk takes commits, or does not.
    StorageRoom,
    /// A request of the agent that the gateway served itself.
    Completion(Completion),
    /// Of a terminal that the gateway runs.
    Terminal(TerminalEvent),
    Recalled,
    Deadline,
    Draining,
}

#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) commands: mpsc::Receiver<Command>,
    /// There are handles that could send one.
    pub(super) has_handles: bool,
    pub(super) commits: watch::Receiver<u64>,
    pub(super) room: watch::Receiver<DiskSpace>,
    /// Never closed: its owner keeps a sender.
    pub(super) completions: mpsc::Receiver<Completion>,
    /// Likewise.
    pub(super) terminal_events: mpsc::Receiver<TerminalEvent>,
    pub(super) pending_lease: Option<PendingLease>,
    pub(super) lease: Option<Lease>,
    pub(super) recall: Option<Arc<Notify>>,
    pub(super) shutdown: Shutdown,
}

/// What its owner listens to now.
#[derive(Debug, Clone, Copy)]
pub(super) struct WakeConditions {
    /// Of the agent and of its terminals: not while too much waits for its commit.
    pub(super) batches: bool,
    /// Only while something waits for a commit.
    pub(super) commits: bool,
    pub(super) draining: bool,
    pub(super) deadline: Option<Instant>,
}

impl EventLoop {
    pub(super) async fn next_wakeup(&mut self, listen: WakeConditions) -> Wakeup {
        // A place is asked for only once the former process is given back.
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
            // Behind the agent, so that it can always stop a command that floods.
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
