//! Everything that can wake a session's owner, in the order of its urgency.

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
    /// None: every handle is gone.
    Command(Option<Command>),
    Lease(Box<Result<Lease, AgentFailure>>),
    /// None: the process has closed its stdout.
    Batch(Option<Batch>),
    Committed,
    /// The disk takes commits, or does not.
    Room,
    /// A request of the agent that the gateway served itself.
    Served(Served),
    /// Of a terminal that the gateway runs.
    Terminal(TerminalNews),
    Recalled,
    Deadline,
    Draining,
}

#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) commands: mpsc::Receiver<Command>,
    /// There are handles that could send one.
    pub(super) open: bool,
    pub(super) commits: watch::Receiver<u64>,
    pub(super) room: watch::Receiver<Room>,
    /// Never closed: its owner keeps a sender.
    pub(super) served: mpsc::Receiver<Served>,
    /// Likewise.
    pub(super) terminals: mpsc::Receiver<TerminalNews>,
    pub(super) place: Option<Place>,
    pub(super) lease: Option<Lease>,
    pub(super) recall: Option<Arc<Notify>>,
    pub(super) shutdown: Shutdown,
}

/// What its owner listens to now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listen {
    /// Of the agent and of its terminals: not while too much waits for its commit.
    pub(super) batches: bool,
    /// Only while something waits for a commit.
    pub(super) commits: bool,
    pub(super) draining: bool,
    pub(super) until: Option<Instant>,
}

impl Inputs {
    pub(super) async fn wake(&mut self, listen: Listen) -> Wake {
        // A place is asked for only once the former process is given back.
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
            // Behind the agent, so that it can always stop a command that floods.
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
