//! The link of a session to its process: the lease, or the place in the pool's queue. It sends messages to the agent.
//!
//! The link decides nothing. The state machine is in `attachment`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;

use super::context::{Context, LiveGuard};
use super::error::{ProcessError, RETRY_AFTER};
use super::record::PeerRequest;
use agents::agent::{AgentFailure, AgentSpec, Batch, FormerChannel, Process, without_secrets};
use agents::pool::{
    AcquireError, Holder, Lease, LeaseActivity, PendingLease, Priority, RequestedSession,
};
use base::types::PrincipalLimit::LiveSessions;
use base::types::{AgentName, FolderError, Principal};
use wire::acp::{AcpVersion, ClientCapabilities, InitializeResult, Outcome};
use wire::fleet::ChannelId;
use wire::jsonrpc::{CallId, IncomingId, RpcError};
use workspace::Workspaces;

/// The place of the session in the pool's queue.
struct Pending {
    lease: PendingLease,
    /// The check of the session's folders. `None` after its end.
    check: Option<JoinHandle<Result<(), FolderError>>>,
}

impl Pending {
    /// Waits for the lease. Fails if the session's folders cannot be used. Cancel-safe.
    async fn lease(&mut self) -> Result<Lease, AgentFailure> {
        if let Some(check) = &mut self.check {
            let checked = check.await;
            self.check = None;
            // A panic is in the log. The start checks the folders again.
            checked.unwrap_or(Ok(()))?;
        }
        self.lease.lease().await
    }
}

pub(super) struct ProcessLink {
    /// The agent's configuration: that of the leased process, otherwise the current one in the catalogue.
    spec: Arc<AgentSpec>,
    /// The principal on whose behalf the session leases processes.
    owner: Principal,
    pending: Option<Pending>,
    lease: Option<Lease>,
    recall: Option<Arc<Notify>>,
    live_guard: Option<LiveGuard>,
    reported: LeaseActivity,
    /// Positions in the output of the process to acknowledge, each with the event that must be durable before.
    unacknowledged: VecDeque<(u64, u64)>,
    /// The process of an earlier gateway process that the session waits for.
    pub(super) former: Option<Former>,
}

/// A process of an earlier gateway process that the session waits for.
pub(super) struct Former {
    pub(super) channel: Arc<FormerChannel>,
    /// Answers that the agent may not have received.
    pub(super) answers: Vec<(IncomingId, Outcome)>,
}

pub(super) enum LinkEvent {
    Leased(Box<Result<Lease, AgentFailure>>),
    /// The pool asks for the idle process.
    Recalled,
    /// `None`: the process closed its stdout.
    Batch(Option<Batch>),
}

impl ProcessLink {
    pub(super) fn new(spec: Arc<AgentSpec>, owner: Principal) -> Self {
        Self {
            spec,
            owner,
            pending: None,
            lease: None,
            recall: None,
            live_guard: None,
            reported: LeaseActivity::Busy,
            unacknowledged: VecDeque::new(),
            former: None,
        }
    }

    pub(super) fn spec(&self) -> &Arc<AgentSpec> {
        &self.spec
    }

    pub(super) fn owner(&self) -> &Principal {
        &self.owner
    }

    pub(super) fn refresh_spec(&mut self, current: impl FnOnce() -> Arc<AgentSpec>) {
        if self.lease.is_none() {
            self.spec = current();
        }
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    pub(super) fn process(&self) -> Option<&Process> {
        self.lease.as_ref().map(Lease::process)
    }

    pub(super) fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn initialized(&self) -> Option<&Arc<InitializeResult>> {
        self.process().map(|process| &process.initialized)
    }

    pub(super) fn version(&self) -> AcpVersion {
        self.process().map_or(AcpVersion::V1, Process::version)
    }

    pub(super) fn timeout(&self, method: impl Into<String>) -> ProcessError {
        AgentFailure::Timeout {
            method: method.into(),
            output: self
                .process()
                .map_or_else(String::new, Process::invalid_output),
        }
        .into()
    }

    /// Enters the pool's queue, and counts the session as live. `workspaces` are those of the session. `requirements`: the
    /// client capabilities that the process was started with, and the folders that it may access.
    pub(super) fn enqueue(
        &mut self,
        context: &Context,
        agent: &AgentName,
        (workspaces, requirements): (Workspaces, (ClientCapabilities, Vec<PathBuf>)),
        session: Option<RequestedSession>,
    ) -> Result<(), ProcessError> {
        if self.live_guard.is_none() {
            let limits = context.pool.principal_limits().effective(&self.owner);
            let guard = context
                .bounds
                .live
                .acquire(Arc::clone(&self.owner.id), limits.max(LiveSessions));
            let exceeded = || AcquireError::from(limits.exceeded(LiveSessions, RETRY_AFTER));
            self.live_guard = Some(guard.ok_or_else(exceeded)?);
        }
        let (offer, folders) = requirements;
        match context.pool.enqueue(
            agent,
            &self.owner,
            offer,
            folders.clone(),
            Priority::Reclaim,
            session,
        ) {
            Ok(lease) => {
                let check = context
                    .shutdown
                    .spawn_blocking(move || workspaces.check_directories(&folders));
                self.pending = Some(Pending {
                    lease,
                    check: Some(check),
                });
                Ok(())
            }
            Err(error) => {
                self.release_guard();
                Err(match error {
                    // The agent was configured when the session was created.
                    AcquireError::NoSuchAgent => AgentFailure::removed().into(),
                    error => error.into(),
                })
            }
        }
    }

    pub(super) fn drop_pending(&mut self) {
        self.pending = None;
    }

    /// Stops counting the session as live if it has neither a process nor a pending lease. Returns whether it has neither.
    pub(super) fn release_guard(&mut self) -> bool {
        let released = self.lease.is_none() && self.pending.is_none();
        if released {
            self.live_guard = None;
        }
        released
    }

    /// Uses the configuration of a new lease, before the session decides whether it uses the process.
    pub(super) fn offered(&mut self, lease: &Lease) {
        self.spec = Arc::clone(&lease.process().spec);
    }

    pub(super) fn accept(&mut self, lease: Lease) {
        self.recall = Some(lease.recall_signal());
        self.lease = Some(lease);
        self.reported = LeaseActivity::Busy;
    }

    pub(super) fn take_lease(&mut self) -> Option<Lease> {
        self.recall = None;
        self.unacknowledged.clear();
        self.lease.take()
    }

    pub(super) fn former(&self) -> Option<&Arc<FormerChannel>> {
        self.former.as_ref().map(|former| &former.channel)
    }

    /// Continues with the process of an earlier gateway process. Other requests may use it later.
    pub(super) fn accept_former(&mut self, mut lease: Lease) {
        lease.process_mut().key.channel = None;
        self.accept(lease);
    }

    /// The channel of the process, if the process outlives the gateway.
    pub(super) fn channel(&self) -> Option<ChannelId> {
        self.process().and_then(Process::channel)
    }

    /// Acknowledges the output before `offset` when the event `seq` is durable.
    pub(super) fn acknowledge_after(&mut self, seq: u64, offset: u64) {
        self.unacknowledged.push_back((seq, offset));
    }

    pub(super) fn waits_for_commit(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    pub(super) fn acknowledge(&mut self, committed: u64) {
        let mut durable = None;
        while let Some((_, offset)) = self
            .unacknowledged
            .pop_front_if(|(seq, _)| *seq <= committed)
        {
            durable = Some(offset);
        }
        if let (Some(offset), Some(process)) = (durable, self.process()) {
            process.acknowledge(offset);
        }
    }

    /// A request as its agent knows it, if the agent's process outlives the gateway.
    pub(super) fn peer_request(&self, incoming: IncomingId) -> Option<PeerRequest> {
        let (channel, id) = match self.former() {
            Some(former) => {
                let (_, id) = former
                    .requests
                    .iter()
                    .find(|(known, _)| *known == incoming)?;
                (former.channel, id.clone())
            }
            None => (
                self.channel()?,
                self.process()?.connection.raw_request(incoming)?,
            ),
        };
        Some(PeerRequest {
            channel,
            number: incoming.number(),
            id,
            result: None,
            error: None,
        })
    }

    pub(super) fn report(&mut self, activity: LeaseActivity) {
        if let Some(lease) = self.lease.as_ref().filter(|_| self.reported != activity) {
            self.reported = activity;
            lease.report_activity(activity);
        }
    }

    pub(super) fn report_holder(&self, holder: Holder) {
        if let Some(lease) = &self.lease {
            lease.report_holder(holder);
        }
    }

    // Messages to the agent. If stdin is closed, the batches report the end of the process.

    /// Sends a request. `None` if stdin is closed.
    pub(super) fn call(&self, method: &str, params: &RawValue) -> Option<CallId> {
        self.process()?.connection.call(method, params).ok()
    }

    /// Sends a request with an id that the caller has chosen. The agent receives it at most once.
    pub(super) fn call_once(&self, id: CallId, method: &str, params: &RawValue) -> Option<CallId> {
        self.process()?
            .connection
            .call_once(id, method, params)
            .ok()
            .map(|()| id)
    }

    /// Sends a notification. Returns false if stdin is closed.
    pub(super) fn notify(&self, method: &str, params: &RawValue) -> bool {
        self.process()
            .is_some_and(|process| process.connection.notify(method, params).is_ok())
    }

    /// Sends `$/cancel_request` for a call. A later response is ignored.
    pub(super) fn cancel_call(&self, call: CallId) {
        self.process()
            .into_iter()
            .for_each(|process| process.connection.cancel(call));
    }

    pub(super) fn answer(&mut self, incoming: IncomingId, outcome: &Outcome) {
        self.answer_with_guard(incoming, outcome, None);
    }

    /// Sends a response that may be large, and holds its permit until the agent has read it.
    pub(super) fn answer_with_guard(
        &mut self,
        incoming: IncomingId,
        outcome: &Outcome,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        if let Some(former) = &mut self.former {
            former.answers.push((incoming, outcome.clone()));
        } else if let Some(process) = self.process() {
            process.answer(
                incoming,
                outcome.as_deref().map_err(|error| &**error),
                permit,
            );
        }
    }

    /// The next event. `batches`: whether to read output of the agent. Cancel safe.
    pub(super) async fn next_event(&mut self, batches: bool) -> LinkEvent {
        // A pending lease is polled only after the former process was released.
        let pending = self.pending.as_mut().filter(|_| self.lease.is_none());
        let lease = self.lease.as_mut().filter(|_| batches);
        tokio::select! {
            biased;
            lease = or_never(pending.map(Pending::lease)) => LinkEvent::Leased(Box::new(lease)),
            () = or_never(self.recall.as_deref().map(Notify::notified)) => LinkEvent::Recalled,
            batch = or_never(lease.map(|lease| lease.process_mut().batches.recv())) => LinkEvent::Batch(batch),
        }
    }
}

/// Converts a JSON-RPC error of the agent. Detects that a sign-in is required and reports it to the pool.
pub(super) fn agent_failure(error: RpcError, lease: &Lease) -> AgentFailure {
    let process = lease.process();
    // An ACP v2 error can come from an update, which is stored as the agent sent it.
    let error = without_secrets(error, &process.spec.secrets);
    let failure = AgentFailure::from_rpc_error(error, &process.spec, &process.initialized);
    if matches!(failure, AgentFailure::AuthRequired { .. }) {
        lease.record_auth(true);
    }
    failure
}

/// Converts the error response to a prompt. An agent may require a sign-in only for the first prompt.
pub(super) fn prompt_failure(error: RpcError, lease: &Lease) -> AgentFailure {
    let failure = agent_failure(error, lease);
    if matches!(failure, AgentFailure::AuthRequired { .. }) {
        lease.record_prompt_auth(false);
    }
    failure
}

pub(super) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
