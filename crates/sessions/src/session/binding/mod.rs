//! The binding of a session to a process of its agent: from the request for a process to its release, and the clients that
//! wait for it.
//!
//! `Binding` owns the lease or the place in the pool's queue, sends messages to the agent, and appends the events of the
//! attachment. Operations that also concern turns or requests receive them as arguments, or are part of the actor.
//!
//! - this file: the process, and messages to it
//! - `state`, `transitions`: the states, without effects
//! - `setup`: acquires a process, and creates or restores the session on it
//! - `client_calls`: the clients that need the agent outside a turn

pub(super) mod state;
pub(super) mod client_calls;
pub(super) mod setup;
mod transitions;

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant};

use self::client_calls::ClientCalls;
use self::state::{DiscardCounter, LoadSignIn, Replay, Restoring, State};
use super::context::LiveGuard;
use super::error::ProcessError;
use super::record::{PeerRequest, SessionRecord};
use agents::agent::{AgentFailure, AgentSpec, Batch, EarlierChannel, Process, without_secrets};
use agents::pool::{Holder, Lease, LeaseActivity, PendingLease};
use base::types::{FolderError, Principal, ToolProvider};
use wire::acp::{AcpVersion, ClientCapabilities, InitializeResult, McpServer, Outcome};
use wire::fleet::ChannelId;
use wire::jsonrpc::{CallId, IncomingId, RpcError};

/// The maximum number of idle processes that die before the session reports the failure.
const MAX_REPLACED_PROCESSES: u32 = 2;

pub(super) struct Binding {
    /// The agent's configuration: that of the leased process, otherwise the current one in the catalogue.
    spec: Arc<AgentSpec>,
    /// The user of the session, for whom it leases processes.
    owner: Principal,
    pending: Option<Pending>,
    lease: Option<Lease>,
    recall: Option<Arc<Notify>>,
    live_guard: Option<LiveGuard>,
    reported: LeaseActivity,
    /// Positions in the output of the process to acknowledge, each with the event that must be durable before.
    unacknowledged: VecDeque<(u64, u64)>,
    previous: Option<PreviousProcess>,
    state: State,
    /// When the process was last needed.
    idle_since: Instant,
    /// The number of replaced processes since the session last used a process. Each was dead when it was needed.
    replaced_processes: u32,
    /// Failed attempts, while the agent has not restored the session yet.
    restoring: Option<Restoring>,
    /// The agent reported a successful restore, and has not accepted a prompt after it.
    unproven: bool,
    /// A replay after `session/load` that may still deliver history.
    replay: Option<Replay>,
    load_sign_in: LoadSignIn,
    /// The agent's ids of its child sessions, as announced by `subagent_update` on this process.
    subagents: HashSet<Box<str>>,
    /// The MCP servers that clients bring for the session. They contain secrets.
    client_servers: Vec<McpServer>,
    discarded: DiscardCounter,
    pub(super) calls: ClientCalls,
}

/// A place in the pool's queue.
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

/// A process of an earlier gateway process that the session waits for.
struct PreviousProcess {
    channel: Arc<EarlierChannel>,
    /// Answers that the agent may not have received.
    answers: Vec<(IncomingId, Outcome)>,
}

pub(super) enum BindingEvent {
    Leased(Box<Result<Lease, AgentFailure>>),
    /// The pool asks for the idle process.
    Recalled,
    /// `None`: the process closed its stdout.
    Batch(Option<Batch>),
}

impl Binding {
    pub(super) fn new(spec: Arc<AgentSpec>, owner: Principal, now: Instant) -> Self {
        Self {
            spec,
            owner,
            pending: None,
            lease: None,
            recall: None,
            live_guard: None,
            reported: LeaseActivity::Busy,
            unacknowledged: VecDeque::new(),
            previous: None,
            state: State::Detached,
            idle_since: now,
            replaced_processes: 0,
            restoring: None,
            unproven: false,
            replay: None,
            load_sign_in: LoadSignIn::default(),
            subagents: HashSet::new(),
            client_servers: Vec::new(),
            discarded: DiscardCounter::default(),
            calls: ClientCalls::default(),
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

    pub(super) fn initialized(&self) -> Option<&Arc<InitializeResult>> {
        self.process().map(|process| &process.initialized)
    }

    pub(super) fn version(&self) -> AcpVersion {
        self.process().map_or(AcpVersion::V1, Process::version)
    }

    /// The channel of the process, if the process outlives the gateway.
    pub(super) fn channel(&self) -> Option<ChannelId> {
        self.process().and_then(Process::channel)
    }

    pub(super) fn can_restore(&self) -> Option<bool> {
        self.initialized()
            .map(|known| known.capabilities.can_restore())
    }

    /// How long the session keeps an idle process. The time depends on whether the agent can restore the session.
    pub(super) fn idle_timeout(&self) -> Duration {
        let pool = &self.spec.settings.pool;
        if self.can_restore().unwrap_or(true) {
            pool.idle_timeout
        } else {
            pool.no_load_idle_timeout
        }
    }

    /// The servers of the agent's files and terminals: the settings of the agent, restricted by the policy of the client.
    pub(super) fn tool_providers(&self, record: &SessionRecord) -> (ToolProvider, ToolProvider) {
        self.spec.settings.tool_providers(&record.policy)
    }

    /// The capabilities that the gateway sends in `initialize`.
    fn offered_capabilities(&self, record: &SessionRecord) -> ClientCapabilities {
        let (files, terminals) = self.tool_providers(record);
        ClientCapabilities::new(files, terminals)
    }

    pub(super) fn has_client_servers(&self) -> bool {
        !self.client_servers.is_empty()
    }

    /// Replaces the MCP servers that clients bring. Returns whether they have changed.
    pub(super) fn set_client_servers(&mut self, servers: Vec<McpServer>) -> bool {
        let changed = self.client_servers != servers;
        self.client_servers = servers;
        changed
    }

    pub(super) fn drop_pending(&mut self) {
        self.pending = None;
    }

    /// Stops counting the session as live, and waiting for a process, if it has neither a process nor a pending lease.
    pub(super) fn release_guard(&mut self) {
        if self.lease.is_some() || self.pending.is_some() {
            return;
        }
        self.live_guard = None;
        if matches!(self.state, State::Queued { .. } | State::Retrying { .. }) {
            self.abandon();
        }
    }

    fn hold(&mut self, lease: Lease) {
        self.recall = Some(Arc::clone(&lease.recall));
        self.lease = Some(lease);
        self.reported = LeaseActivity::Busy;
    }

    /// Removes and returns the lease, and clears all state of its process.
    pub(super) fn take_lease(&mut self) -> Option<Lease> {
        self.process_released();
        self.recall = None;
        self.unacknowledged.clear();
        self.lease.take()
    }

    pub(super) fn has_previous(&self) -> bool {
        self.previous.is_some()
    }

    /// Waits for the process of an earlier gateway process. `answers`: those that the agent may not have received.
    pub(super) fn expect_previous(
        &mut self,
        channel: EarlierChannel,
        answers: Vec<(IncomingId, Outcome)>,
    ) {
        self.previous = Some(PreviousProcess {
            channel: Arc::new(channel),
            answers,
        });
    }

    /// Stops waiting for the process of an earlier gateway process. Returns whether the session waited for one.
    pub(super) fn forget_previous(&mut self) -> bool {
        self.previous.take().is_some()
    }

    /// Continues with the process of an earlier gateway process, if the session waits for one. Otherwise returns the lease.
    pub(super) fn continue_previous(
        &mut self,
        mut lease: Lease,
        record: &SessionRecord,
    ) -> Option<Lease> {
        let Some(previous) = self.previous.take() else {
            return Some(lease);
        };
        if let Some(id) = &record.agent_session_id {
            lease.record_session(id);
        }
        // Other requests may use the process later.
        lease.process_mut().key.channel = None;
        self.hold(lease);
        self.state = State::Attached;
        self.idle_since = Instant::now();
        for (incoming, outcome) in previous.answers {
            self.answer(incoming, &outcome);
        }
        None
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
        let (channel, id) = match &self.previous {
            Some(PreviousProcess { channel, .. }) => {
                let mut requests = channel.requests.iter();
                let (_, id) = requests.find(|(known, _)| *known == incoming)?;
                (channel.channel, id.clone())
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

    /// Reports to the pool whether it may reclaim the process. `busy`: the session has work for it.
    pub(super) fn report_activity(&mut self, busy: bool) {
        let activity = if self.is_releasing() {
            LeaseActivity::Releasing
        } else if self.is_attached() && !busy {
            LeaseActivity::Idle
        } else {
            LeaseActivity::Busy
        };
        if let Some(lease) = &self.lease
            && self.reported != activity
        {
            self.reported = activity;
            lease.report_activity(activity);
        }
    }

    pub(super) fn report_holder(&self, holder: Holder) {
        if let Some(lease) = &self.lease {
            lease.report_holder(holder);
        }
    }

    /// Logs that input of the agent is discarded, at a limited rate.
    pub(super) fn note_discarded(&mut self, reason: &str) {
        if let Some(discarded) = self.discarded.increment() {
            tracing::warn!(discarded, "{reason}");
        }
    }

    // Messages to the agent. If stdin is closed, the batches report the end of the process.

    /// Sends a request. `None` if stdin is closed.
    pub(super) fn call(&self, method: &str, params: &RawValue) -> Option<CallId> {
        self.process()?.connection.call(method, params).ok()
    }

    /// Sends a request with an id that the caller has chosen. The agent receives it at most once.
    pub(super) fn call_once(&self, id: CallId, method: &str, params: &RawValue) -> Option<CallId> {
        let connection = &self.process()?.connection;
        connection.call_once(id, method, params).ok().map(|()| id)
    }

    /// Sends a notification. Returns false if stdin is closed.
    pub(super) fn notify(&self, method: &str, params: &RawValue) -> bool {
        self.process()
            .is_some_and(|process| process.connection.notify(method, params).is_ok())
    }

    /// Sends `$/cancel_request` for a call. A later response is ignored.
    pub(super) fn cancel_call(&self, call: CallId) {
        if let Some(process) = self.process() {
            process.connection.cancel(call);
        }
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
        if let Some(previous) = &mut self.previous {
            previous.answers.push((incoming, outcome.clone()));
        } else if let Some(process) = self.process() {
            process.answer(
                incoming,
                outcome.as_deref().map_err(|error| &**error),
                permit,
            );
        }
    }

    /// The next event. `batches`: whether to read output of the agent. Cancel safe.
    pub(super) async fn next_event(&mut self, batches: bool) -> BindingEvent {
        // A pending lease is polled only after the previous process was released.
        let pending = match self.lease {
            None => self.pending.as_mut(),
            Some(_) => None,
        };
        let lease = if batches { self.lease.as_mut() } else { None };
        tokio::select! {
            biased;
            lease = or_never(pending.map(Pending::lease)) => BindingEvent::Leased(Box::new(lease)),
            () = or_never(self.recall.as_deref().map(Notify::notified)) => BindingEvent::Recalled,
            batch = or_never(lease.map(|lease| lease.process_mut().batches.recv())) => BindingEvent::Batch(batch),
        }
    }

    // Failures.

    pub(super) fn timeout(&self, method: impl Into<String>) -> ProcessError {
        AgentFailure::Timeout {
            method: method.into(),
            output: self
                .process()
                .map_or_else(String::new, Process::invalid_output),
        }
        .into()
    }

    /// Converts a JSON-RPC error of the agent. Detects that a sign-in is required and reports it to the pool.
    pub(super) fn agent_failure(&self, error: RpcError) -> AgentFailure {
        let Some(lease) = &self.lease else {
            return AgentFailure::Rpc(error);
        };
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
    pub(super) fn prompt_failure(&self, error: RpcError) -> AgentFailure {
        let failure = self.agent_failure(error);
        if let Some(lease) = &self.lease
            && matches!(failure, AgentFailure::AuthRequired { .. })
        {
            lease.record_prompt_auth(false);
        }
        failure
    }
}

pub(super) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
