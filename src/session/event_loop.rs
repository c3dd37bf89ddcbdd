//! The event loop of a session's actor: all sources that can wake it, in order of priority.

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::client_methods::Completion;
use super::command::Command;
use super::process_link::{LinkEvent, ProcessLink, or_never};
use crate::eventlog::DiskSpace;
use crate::shutdown::Shutdown;
use crate::workspace::TerminalEvent;

#[derive(Debug)]
pub(super) enum Wakeup {
    /// `None`: every handle was dropped.
    Command(Option<Command>),
    Link(LinkEvent),
    /// Events became durable, or the disk accepts commits again or no longer.
    StorageChanged,
    /// The gateway has served a request of the agent.
    Completion(Completion),
    /// An event of a terminal that the gateway runs.
    Terminal(TerminalEvent),
    Deadline,
    /// A client that must answer a request has disconnected or returned.
    Presence,
    Draining,
}

#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Whether handles exist that can send commands.
    pub(super) has_handles: bool,
    pub(super) commits: watch::Receiver<u64>,
    pub(super) disk_space: watch::Receiver<DiskSpace>,
    /// Never closed, because the actor keeps a sender.
    pub(super) completions: mpsc::Receiver<Completion>,
    /// Never closed, because the actor keeps a sender.
    pub(super) terminal_events: mpsc::Receiver<TerminalEvent>,
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
    pub(super) async fn next_wakeup(
        &mut self,
        link: &mut ProcessLink,
        presence: impl Future<Output = ()>,
        conditions: WakeConditions,
    ) -> Wakeup {
        tokio::select! {
            biased;
            command = self.commands.recv(), if self.has_handles => Wakeup::Command(command),
            () = self.shutdown.drain_started(), if conditions.draining => Wakeup::Draining,
            () = or_never(conditions.deadline.map(sleep_until)) => Wakeup::Deadline,
            () = presence => Wakeup::Presence,
            Ok(()) = self.commits.changed(), if conditions.commits => Wakeup::StorageChanged,
            Ok(()) = self.disk_space.changed() => Wakeup::StorageChanged,
            Some(completion) = self.completions.recv() => Wakeup::Completion(completion),
            event = link.next_event(conditions.batches) => Wakeup::Link(event),
            // Terminals come after the agent, so that the agent can always stop a command that floods.
            Some(event) = self.terminal_events.recv(), if conditions.batches => Wakeup::Terminal(event),
        }
    }
}
