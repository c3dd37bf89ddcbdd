//! The event loop of a session's actor: all sources that can wake it, in order of priority.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::command::Command;
use super::serve::Served;
use crate::agent::{AgentFailure, Batch};
use crate::eventlog::Room;
use crate::pool::{Lease, Place};
use crate::shutdown::Shutdown;
use crate::workspace::TerminalNews;

#[derive(Debug)]
pub(super) enum Wake {
    /// `None`: every handle was dropped.
    Command(Option<Command>),
    Lease(Box<Result<Lease, AgentFailure>>),
    /// `None`: the process closed its stdout.
    Batch(Option<Batch>),
    Committed,
    /// Whether the disk accepts commits has changed.
    Room,
    /// The gateway has served a request of the agent.
    Served(Served),
    /// An event of a terminal that the gateway runs.
    Terminal(TerminalNews),
    Recalled,
    Deadline,
    Draining,
}

#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Whether handles exist that can send commands.
    pub(super) open: bool,
    pub(super) commits: watch::Receiver<u64>,
    pub(super) room: watch::Receiver<Room>,
    /// Never closed, because the actor keeps a sender.
    pub(super) served: mpsc::Receiver<Served>,
    /// Never closed, because the actor keeps a sender.
    pub(super) terminals: mpsc::Receiver<TerminalNews>,
    pub(super) place: Option<Place>,
    pub(super) lease: Option<Lease>,
    pub(super) recall: Option<Arc<Notify>>,
    pub(super) shutdown: Shutdown,
}

/// The sources that the actor polls now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listen {
    /// Whether to read output of the agent and its terminals. False while many bytes wait for a commit.
    pub(super) batches: bool,
    /// Whether to wake on commits. True only while something waits for a commit.
    pub(super) commits: bool,
    pub(super) draining: bool,
    pub(super) until: Option<Instant>,
}

impl Inputs {
    pub(super) async fn wake(&mut self, listen: Listen) -> Wake {
        // A pending lease is polled only after the former process was released.
        let place = self.place.as_mut().filter(|_| self.lease.is_none());
        let batches = self.lease.as_mut().filter(|_| listen.batches);
        tokio::select! {
            biased;
            command = self.commands.recv(), if self.open => Wake::Command(command),
            () = self.shutdown.soft(), if listen.draining => Wake::Draining,
            () = at(listen.until) => Wake::Deadline,
            Ok(()) = self.commits.changed(), if listen.commits => Wake::Committed,
            Ok(()) = self.room.changed() => Wake::Room,
            Some(served) = self.served.recv() => Wake::Served(served),
            lease = given(place) => Wake::Lease(Box::new(lease)),
            () = recalled(self.recall.as_deref()) => Wake::Recalled,
            batch = next(batches) => Wake::Batch(batch),
            // Terminals come after the agent, so that the agent can always stop a command that floods.
            Some(news) = self.terminals.recv(), if listen.batches => Wake::Terminal(news),
        }
    }
}

async fn at(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

async fn given(place: Option<&mut Place>) -> Result<Lease, AgentFailure> {
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

async fn next(lease: Option<&mut Lease>) -> Option<Batch> {
    match lease {
        Some(lease) => lease.process_mut().batches.recv().await,
        None => std::future::pending().await,
    }
}
