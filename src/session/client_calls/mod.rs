//! The clients that need the agent outside a turn: those that wait for a process, and their calls to the agent.
//!
//! This part owns the waiting clients, the queued calls and the calls that wait for the agent's response. It does not send
//! anything: each method returns the clients to answer.

mod encode;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

pub(super) use self::encode::{CallRules, CallTarget, permit_mode};
use super::command::{ClientCall, CreateWaiter, Reply};
use super::error::{AttachError, CallError};
use super::origin::Origin;
use crate::acp::TraceContext;
use crate::jsonrpc::CallId;
use crate::types::{Limits, Principal};

#[derive(Debug, Default)]
pub(super) struct ClientCalls {
    waiters: Waiters,
    /// Calls that wait for the agent's response.
    sent: HashMap<CallId, PendingCall>,
}

/// A client that waits for a process without a turn.
#[derive(Debug)]
pub(super) struct AttachWaiter {
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<u64, AttachError>,
    pub(super) deadline: Instant,
}

/// A client-initiated call that waits for a process or for the agent's response.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) by: Principal,
    pub(super) call: ClientCall,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Box<RawValue>, u64), CallError>,
    pub(super) deadline: Instant,
}

/// The clients that wait for a process.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The client that waits for a new session.
    pub(super) creating: Option<CreateWaiter>,
    pub(super) attaching: Vec<AttachWaiter>,
    pub(super) queued: Vec<PendingCall>,
}

impl ClientCalls {
    /// Whether a client waits for a process.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiters.creating.is_some() || self.wants_attached()
    }

    /// Whether a client of an existing session waits for a process.
    pub(super) fn wants_attached(&self) -> bool {
        self.is_attaching() || !self.waiters.queued.is_empty()
    }

    pub(super) fn is_attaching(&self) -> bool {
        !self.waiters.attaching.is_empty()
    }

    /// Whether a call needs the process now.
    pub(super) fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.waiters.queued.is_empty()
    }

    pub(super) fn wait_for_creation(&mut self, creating: CreateWaiter) {
        self.waiters.creating = Some(creating);
    }

    /// The origin of the session that is being created.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.waiters
            .creating
            .as_ref()
            .map(|creating| creating.origin)
    }

    /// Whether the history that the agent sends is new to the log.
    pub(super) fn imports_history(&self) -> bool {
        self.origin().is_some_and(|origin| origin != Origin::New)
    }

    /// The client that waits for a new session.
    pub(super) fn take_creating(&mut self) -> Option<CreateWaiter> {
        self.waiters.creating.take()
    }

    pub(super) fn wait_for_attach(&mut self, attaching: AttachWaiter) {
        self.waiters.attaching.push(attaching);
    }

    /// The clients that waited for the attached process.
    pub(super) fn take_attaching(&mut self) -> Vec<AttachWaiter> {
        std::mem::take(&mut self.waiters.attaching)
    }

    pub(super) fn enqueue(&mut self, call: PendingCall) {
        self.waiters.queued.push(call);
    }

    /// The calls that waited for the attached process.
    pub(super) fn take_queued(&mut self) -> Vec<PendingCall> {
        std::mem::take(&mut self.waiters.queued)
    }

    /// All clients that wait for a process.
    pub(super) fn take_waiters(&mut self) -> Waiters {
        std::mem::take(&mut self.waiters)
    }

    /// The trace context of the first client that waits for a process.
    pub(super) fn trace(&self) -> Option<&TraceContext> {
        let creating = self
            .waiters
            .creating
            .iter()
            .map(|creating| creating.trace.as_ref());
        let attaching = self
            .waiters
            .attaching
            .iter()
            .map(|attaching| attaching.trace.as_ref());
        let queued = self.waiters.queued.iter().map(|call| call.trace.as_ref());
        creating.chain(attaching).chain(queued).flatten().next()
    }

    /// Registers a call that was sent to the agent.
    pub(super) fn sent(
        &mut self,
        id: CallId,
        mut call: PendingCall,
        limits: &Limits,
        now: Instant,
    ) {
        let limit = match call.call {
            ClientCall::Forked(_) => limits.stop_stdin_timeout,
            _ => limits.session_new_timeout,
        };
        call.deadline = now + limit;
        self.sent.insert(id, call);
    }

    /// Removes and returns the call that the agent's response answers.
    pub(super) fn answered(&mut self, id: CallId) -> Option<PendingCall> {
        self.sent.remove(&id)
    }

    /// Removes and returns all calls that wait for the agent's response.
    pub(super) fn take_sent(&mut self) -> HashMap<CallId, PendingCall> {
        std::mem::take(&mut self.sent)
    }

    /// Removes and returns a call whose response is overdue. Call it until it returns `None`.
    pub(super) fn expire_sent(&mut self, now: Instant) -> Option<(CallId, PendingCall)> {
        let id = self
            .sent
            .iter()
            .find(|(_, call)| now >= call.deadline)
            .map(|(id, _)| *id)?;
        self.sent.remove_entry(&id)
    }

    /// When the next client has waited for too long. `waits_for_process`: the session has no process, so the clients that
    /// wait for one count too. During the setup these clients wait for the agent instead.
    pub(super) fn deadline(&self, waits_for_process: bool) -> Option<Instant> {
        let sent = self.sent.values().map(|call| call.deadline);
        sent.chain(self.wait_deadlines().filter(|_| waits_for_process))
            .min()
    }

    fn wait_deadlines(&self) -> impl Iterator<Item = Instant> {
        let queued = self.waiters.queued.iter().map(|call| call.deadline);
        let attaching = self
            .waiters
            .attaching
            .iter()
            .map(|attaching| attaching.deadline);
        queued.chain(attaching).chain(
            self.waiters
                .creating
                .iter()
                .map(|creating| creating.deadline),
        )
    }

    /// Whether a client has waited for a process for too long.
    pub(super) fn is_wait_overdue(&self, now: Instant) -> bool {
        self.wait_deadlines().any(|deadline| now >= deadline)
    }

    /// Extends the wait of all clients, because a process is starting. The start has its own limit.
    pub(super) fn extend_waits(&mut self, now: Instant, by: Duration) {
        let queued = self
            .waiters
            .queued
            .iter_mut()
            .map(|call| &mut call.deadline);
        let attaching = self
            .waiters
            .attaching
            .iter_mut()
            .map(|attaching| &mut attaching.deadline);
        let creating = self
            .waiters
            .creating
            .iter_mut()
            .map(|creating| &mut creating.deadline);
        for deadline in queued.chain(attaching).chain(creating) {
            *deadline = (*deadline).max(now + by);
        }
    }

    /// Removes and returns the clients that have waited for a process for too long. Clients that only need a process are
    /// rejected sooner than turns, which may wait in the pool's queue for longer.
    pub(super) fn expire_waits(&mut self, now: Instant) -> Waiters {
        Waiters {
            creating: self
                .waiters
                .creating
                .take_if(|creating| now >= creating.deadline),
            attaching: self
                .waiters
                .attaching
                .extract_if(.., |attaching| now >= attaching.deadline)
                .collect(),
            queued: self
                .waiters
                .queued
                .extract_if(.., |call| now >= call.deadline)
                .collect(),
        }
    }
}
