//! The pool: its wait queue, and the tasks that start and stop processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::crashes::CrashBackoff;
use super::homes::Homes;
use super::lease::{Disposition, Lease, LeaseActivity};
use super::short_lease::Priority;
use super::state::{ActiveLease, AgentState, IdleProcess, RequestedSession, Step, Waiter};
use crate::acp::{ClientCapabilities, InitializeResult};
use crate::agent::{AgentFailure, Catalogue, Launcher, Process};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{AgentName, LimitExceeded, Limits, Principal, PrincipalLimit, PrincipalLimits};

/// The suggested delay before the next attempt to enqueue.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why the pool cannot provide a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    #[error("no agent with this name is configured")]
    NoSuchAgent,
    #[error("the wait queue of this agent is full (limit {max}); retry later")]
    QueueFull { max: usize, retry_after: Duration },
    #[error("all processes of this agent are busy; retry later")]
    Busy { retry_after: Duration },
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("the agent failed to start too often; retry after the back-off")]
    BreakerOpen { retry_after: Duration },
    #[error("another sign-in to this agent is in progress")]
    SignInInProgress { retry_after: Duration },
    #[error("the gateway is shutting down")]
    Draining,
}

/// A place in the wait queue. Dropping it removes the request from the queue.
#[derive(Debug)]
pub struct PendingLease {
    receiver: oneshot::Receiver<Result<Lease, AgentFailure>>,
}

impl PendingLease {
    /// Waits for the lease. Cancel-safe.
    pub async fn lease(&mut self) -> Result<Lease, AgentFailure> {
        match (&mut self.receiver).await {
            Ok(outcome) => outcome,
            Err(_) => Err(AgentFailure::Draining),
        }
    }
}

/// Statistics of one agent's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStats {
    pub max_size: usize,
    pub live: usize,
    pub starting: usize,
    pub leased: usize,
    /// The current target number of unused idle processes.
    pub min_idle: usize,
    pub idle: usize,
    pub queued: usize,
    /// The agent keeps a session locked after `session/close`, so the pool reuses no process.
    pub keeps_sessions_locked: bool,
    pub idle_timeout: Duration,
    /// This timeout and the next one apply to an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    pub no_load_reclaim_timeout: Duration,
}

#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    launcher: Launcher,
    limits: Arc<Limits>,
    principals: PrincipalLimits,
    shutdown: Shutdown,
    homes: Arc<Homes>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

pub(super) struct State {
    pub(super) agents: HashMap<AgentName, AgentState>,
    next_id: u64,
}

impl Pool {
    /// Creates a pool that starts no process before a request or [`start_maintenance`](Self::start_maintenance).
    pub fn new(
        catalogue: &Catalogue,
        launcher: Launcher,
        (limits, principals): (Arc<Limits>, PrincipalLimits),
        shutdown: &Shutdown,
    ) -> Self {
        let agents = catalogue.agents().map(|s| (s.name.clone(), AgentState::new(Arc::clone(s)))).collect();
        let state = Mutex::new(State { agents, next_id: 0 });
        let (shutdown, homes) = (shutdown.clone(), Arc::default());
        Self { inner: Arc::new(Inner { launcher, limits, principals, shutdown, homes, state }) }
    }

    /// Starts the configured idle processes and maintains the pool until shutdown.
    pub fn start_maintenance(&self) {
        let pool = self.clone();
        self.inner.shutdown.spawn(async move { pool.maintain().await });
    }

    /// Replaces the catalogue. Running turns and processes continue with their entry. Idle processes of a
    /// changed entry stop, and new requests use the new entry.
    pub fn reload(&self, catalogue: &Catalogue) {
        let names: Vec<AgentName> = {
            let mut state = self.state();
            for (name, agent) in &mut state.agents {
                match catalogue.agent(name) {
                    Some(spec) if Arc::ptr_eq(spec, &agent.spec) => {}
                    Some(spec) => agent.replace_spec(Arc::clone(spec)),
                    None if agent.configured => agent.remove(),
                    None => {}
                }
            }
            for spec in catalogue.agents() {
                let added = || AgentState::new(Arc::clone(spec));
                state.agents.entry(spec.name.clone()).or_insert_with(added);
            }
            state.agents.keys().cloned().collect()
        };
        for name in names {
            self.advance(&name);
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The limits of the principals that lease processes.
    pub fn principal_limits(&self) -> &PrincipalLimits {
        &self.inner.principals
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.inner.shutdown
    }

    pub(super) fn launcher(&self) -> &Launcher {
        &self.inner.launcher
    }

    pub(super) fn homes(&self) -> &Arc<Homes> {
        &self.inner.homes
    }

    /// Whether a process of the agent is starting.
    pub fn is_starting(&self, agent: &AgentName) -> bool {
        self.state().agents.get(agent).is_some_and(|agent| agent.starting > 0)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.inner.state.lock())
    }

    /// Enqueues a request for a process. Never waits. `requested` is the session that the agent must restore.
    pub fn enqueue(
        &self,
        agent: &AgentName,
        principal: &Principal,
        offer: ClientCapabilities,
        wanted: Option<RequestedSession>,
    ) -> Result<PendingLease, AcquireError> {
        self.enqueue_with(agent, principal, offer, (Priority::Reclaim, wanted))
    }

    pub(super) fn enqueue_with(
        &self,
        agent: &AgentName,
        principal: &Principal,
        offer: ClientCapabilities,
        (manner, wanted): (Priority, Option<RequestedSession>),
    ) -> Result<PendingLease, AcquireError> {
        if self.inner.shutdown.is_draining() {
            return Err(AcquireError::Draining);
        }
        let (give, given) = oneshot::channel();
        {
            let mut state = self.state();
            let line = state.agents.get_mut(agent).filter(|agent| agent.configured);
            let line = line.ok_or(AcquireError::NoSuchAgent)?;
            if let Some(retry_after) = line.crashes.breaker_open_for(Instant::now(), &self.inner.limits) {
                return Err(AcquireError::BreakerOpen { retry_after });
            }
            line.last_requested_at = Instant::now();
            line.queue.retain(|waiter| !waiter.reply.is_closed());
            let max = self.inner.limits.max_queue_places;
            if line.queue.len() >= max {
                return Err(AcquireError::QueueFull { max, retry_after: RETRY_AFTER });
            }
            let limits = self.inner.principals.effective(principal);
            if !limits.allows(PrincipalLimit::QueuedPrompts, line.queued_for(principal)) {
                return Err(limits.exceeded(PrincipalLimit::QueuedPrompts, RETRY_AFTER).into());
            }
            let pressing = manner == Priority::Reclaim;
            line.queue.push_back(Waiter {
                principal: principal.clone(),
                client_capabilities: offer,
                may_reclaim: pressing,
                requested: wanted,
                reply: give,
            });
        }
        self.advance(agent);
        Ok(PendingLease { receiver: given })
    }

    /// Pool statistics, and the last `initialize` result of the agent.
    pub fn agent_stats(&self, agent: &AgentName) -> Option<(PoolStats, Option<Arc<InitializeResult>>)> {
        let state = self.state();
        let agent = state.agents.get(agent).filter(|agent| agent.configured)?;
        let figures = PoolStats {
            max_size: agent.spec.settings.pool.max_size,
            live: agent.live,
            starting: agent.starting,
            min_idle: agent.min_idle(Instant::now()),
            leased: agent.leases.len(),
            idle: agent.idle.len(),
            queued: agent.queue.len(),
            keeps_sessions_locked: agent.keeps_sessions_locked,
            idle_timeout: agent.spec.settings.pool.idle_timeout,
            no_load_idle_timeout: agent.spec.settings.pool.no_load_idle_timeout,
            no_load_reclaim_timeout: agent.spec.settings.pool.no_load_reclaim_timeout,
        };
        Some((figures, agent.initialized.clone()))
    }

    /// Runs grants, starts, stops and recalls until no further step is possible for this agent.
    pub(super) fn advance(&self, name: &AgentName) {
        loop {
            let mut state = self.state();
            let state = &mut *state;
            let Some(agent) = state.agents.get_mut(name) else { return };
            if self.inner.shutdown.is_draining() {
                agent.queue.clear();
            }
            match agent.next_step(Instant::now(), &self.inner.limits) {
                Step::Wait => return,
                Step::Grant(mut idle_process, waiter) => {
                    if idle_process.used_by.is_none() {
                        agent.prestart_crashes = CrashBackoff::default();
                    }
                    state.next_id += 1;
                    let (id, recall) = (state.next_id, Arc::new(Notify::new()));
                    let leased = ActiveLease {
                        idle_since: None,
                        recall: Arc::clone(&recall),
                        releasing: false,
                        tenant: idle_process.tenant.clone(),
                        generation: idle_process.generation,
                        spec: Arc::clone(&idle_process.process.spec),
                        history: std::mem::take(&mut idle_process.history),
                        can_load: idle_process.process.initialized.capabilities.can_restore(),
                    };
                    agent.leases.insert(id, leased);
                    let lease = Lease::new(idle_process, id, waiter.principal, recall, self.clone());
                    // A drop of the lease needs the lock. Therefore another task drops a lease whose waiter is gone.
                    if let Err(unwanted) = waiter.reply.send(Ok(lease)) {
                        self.drop_in_background(unwanted);
                    }
                }
                Step::Start { tenant, offer } => {
                    if self.inner.shutdown.is_draining() {
                        return;
                    }
                    agent.live += 1;
                    agent.starting += 1;
                    let pool = self.clone();
                    let name = name.clone();
                    self.inner.shutdown.spawn(async move { pool.launch(name, tenant, offer).await });
                }
                Step::Stop(idle_process) => {
                    state.next_id += 1;
                    agent.stopping.insert(state.next_id, idle_process.history);
                    self.stop(name.clone(), idle_process.process, state.next_id);
                }
            }
        }
    }

    fn drop_in_background(&self, unwanted: Result<Lease, AgentFailure>) {
        self.inner.shutdown.spawn(async move { drop(unwanted) });
    }

    /// `id` identifies the sessions that the process held, until the process has ended.
    pub(super) fn stop(&self, name: AgentName, process: Process, id: u64) {
        let pool = self.clone();
        self.inner.shutdown.spawn(async move {
            process.stop().await;
            if let Some(agent) = pool.state().agents.get_mut(&name) {
                agent.live -= 1;
                agent.stopping.remove(&id);
            }
            pool.advance(&name);
        });
    }

    pub(super) fn record_session(&self, lease: &Lease, session: &str) {
        if let Some(agent) = self.state().agents.get_mut(&lease.agent)
            && let Some(leased) = agent.leases.get_mut(&lease.id)
        {
            leased.history.record(session);
        }
    }

    /// Detects an agent that does not unlock on close: a process that released the session still exists and is in use.
    pub(super) fn session_in_use(&self, lease: &Lease, session: &str) {
        let mut state = self.state();
        let Some(agent) = state.agents.get_mut(&lease.agent) else { return };
        let mut leased =
            agent.leases.iter().filter(|(id, _)| **id != lease.id).map(|(_, leased)| &leased.history);
        let kept = leased.any(|held| held.contains(session))
            || agent.idle.iter().any(|idle_process| idle_process.history.contains(session));
        if kept && !agent.keeps_sessions_locked {
            agent.keeps_sessions_locked = true;
            tracing::warn!(
                agent = %lease.agent,
                "the agent keeps a session locked after session/close: its processes are stopped and not reused"
            );
        }
    }

    pub(super) fn record_activity(&self, lease: &Lease, standing: LeaseActivity) {
        if let Some(agent) = self.state().agents.get_mut(&lease.agent)
            && let Some(leased) = agent.leases.get_mut(&lease.id)
        {
            leased.idle_since = (standing == LeaseActivity::Idle).then(Instant::now);
            // A holder that was busy at the last recall gets another one.
            leased.releasing = standing == LeaseActivity::Releasing;
            agent.recall_outdated();
        }
        if standing == LeaseActivity::Idle {
            self.advance(&lease.agent);
        }
    }

    pub(super) fn on_released(&self, lease: &Lease, process: Process, fate: Disposition) {
        let used_by = match fate {
            Disposition::Untouched => Some(lease.used_by.clone()),
            Disposition::Reuse => Some(Some(Arc::clone(&lease.principal.id))),
            Disposition::Stop => None,
        };
        let used_by = used_by.filter(|_| !process.has_ended() && !self.inner.shutdown.is_draining());
        let stop = {
            let mut state = self.state();
            let agent = state.agents.get_mut(&lease.agent).expect("agents stay in the pool");
            let held = agent.leases.remove(&lease.id).map(|leased| leased.history).unwrap_or_default();
            // The sessions that this process held would be locked for other processes.
            let used_by = used_by.filter(|_| !agent.keeps_sessions_locked || held.is_empty());
            if used_by.is_some() && fate == Disposition::Reuse && !held.is_empty() {
                agent.checking.insert(lease.id, held);
                drop(state);
                return self.check_for_reuse(lease, process);
            }
            if let Some(used_by) = used_by {
                agent.idle.push(IdleProcess {
                    process,
                    tenant: lease.principal.tenant.clone(),
                    used_by,
                    generation: lease.generation,
                    idle_since: Instant::now(),
                    history: held,
                });
                None
            } else {
                agent.stopping.insert(lease.id, held);
                Some(process)
            }
        };
        if let Some(process) = stop {
            self.stop(lease.agent.clone(), process, lease.id);
        }
        self.advance(&lease.agent);
    }

    /// Every second: stops ended and expired idle processes, and retries starts whose back-off is over.
    async fn maintain(&self) {
        let names = || -> Vec<AgentName> { self.state().agents.keys().cloned().collect() };
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = tick.tick() => names().iter().for_each(|name| self.advance(name)),
                () = self.inner.shutdown.drain_started() => break,
            }
        }
        for name in names() {
            let idle_processes = {
                let mut state = self.state();
                let agent = state.agents.get_mut(&name).expect("agents stay in the pool");
                agent.queue.clear();
                std::mem::take(&mut agent.idle)
            };
            for idle_process in idle_processes {
                // No lease follows, so the session history of this process is irrelevant.
                self.stop(name.clone(), idle_process.process, 0);
            }
        }
    }
}
