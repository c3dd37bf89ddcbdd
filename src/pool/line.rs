//! The pool: its wait queue, and the tasks that start and stop processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::crashes::Crashes;
use super::homes::Homes;
use super::lease::{Fate, Lease, Standing};
use super::state::{AgentState, Leased, Spare, Step, Waiter, Wanted};
use super::visit::Manner;
use crate::acp::{ClientCapabilities, InitializeResult};
use crate::agent::{AgentFailure, Catalogue, Launcher, Process};
use crate::shutdown::{Shutdown, sound};
use crate::types::{AgentName, LimitExceeded, Limits, Principal, PrincipalLimit, PrincipalLimits};

/// The suggested delay before the next attempt to enqueue.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// Why the pool cannot provide a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no agent with this name is configured")]
    NoSuchAgent,
    #[error("the wait queue of this agent is full (limit {max}, `limits.line_places`); retry later")]
    Full { max: usize, retry_after: Duration },
    #[error("all processes of this agent are busy; retry later")]
    Busy { retry_after: Duration },
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("the agent failed to start too often; retry after the back-off")]
    BreakerOpen { retry_after: Duration },
    #[error("another sign-in to this agent is in progress")]
    SignInRuns { retry_after: Duration },
    #[error("the gateway is shutting down")]
    Draining,
}

/// A place in the wait queue. Dropping it removes the request from the queue.
#[derive(Debug)]
pub struct Place {
    given: oneshot::Receiver<Result<Lease, AgentFailure>>,
}

impl Place {
    /// Waits for the lease. Cancel-safe.
    pub async fn lease(&mut self) -> Result<Lease, AgentFailure> {
        match (&mut self.given).await {
            Ok(outcome) => outcome,
            Err(_) => Err(AgentFailure::Draining),
        }
    }
}

/// Statistics of one agent's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    pub max: usize,
    pub live: usize,
    pub starting: usize,
    pub leased: usize,
    /// The current target number of unused idle processes.
    pub warm: usize,
    pub spare: usize,
    pub waiting: usize,
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
    next: u64,
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
        let state = Mutex::new(State { agents, next: 0 });
        let (shutdown, homes) = (shutdown.clone(), Arc::default());
        Self { inner: Arc::new(Inner { launcher, limits, principals, shutdown, homes, state }) }
    }

    /// Starts the configured idle processes and maintains the pool until shutdown.
    pub fn keep_warm(&self) {
        let pool = self.clone();
        self.inner.shutdown.spawn(async move { pool.look_after().await });
    }

    /// Replaces the catalogue. Running turns and processes continue with their entry. Idle processes of a
    /// changed entry stop, and new requests use the new entry.
    pub fn reload(&self, catalogue: &Catalogue) {
        let names: Vec<AgentName> = {
            let mut state = self.state();
            for (name, agent) in &mut state.agents {
                match catalogue.agent(name) {
                    Some(spec) if Arc::ptr_eq(spec, &agent.spec) => {}
                    Some(spec) => agent.renew(Arc::clone(spec)),
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
        sound(self.inner.state.lock())
    }

    /// Enqueues a request for a process. Never waits. `requested` is the session that the agent must restore.
    pub fn reserve(
        &self,
        agent: &AgentName,
        principal: &Principal,
        offer: ClientCapabilities,
        wanted: Option<Wanted>,
    ) -> Result<Place, Refused> {
        self.reserve_as(agent, principal, offer, (Manner::Pressing, wanted))
    }

    pub(super) fn reserve_as(
        &self,
        agent: &AgentName,
        principal: &Principal,
        offer: ClientCapabilities,
        (manner, wanted): (Manner, Option<Wanted>),
    ) -> Result<Place, Refused> {
        if self.inner.shutdown.draining() {
            return Err(Refused::Draining);
        }
        let (give, given) = oneshot::channel();
        {
            let mut state = self.state();
            let line = state.agents.get_mut(agent).filter(|agent| agent.configured);
            let line = line.ok_or(Refused::NoSuchAgent)?;
            if let Some(retry_after) = line.crashes.open(Instant::now(), &self.inner.limits) {
                return Err(Refused::BreakerOpen { retry_after });
            }
            line.wanted_at = Instant::now();
            line.line.retain(|waiter| !waiter.give.is_closed());
            let max = self.inner.limits.line_places;
            if line.line.len() >= max {
                return Err(Refused::Full { max, retry_after: RETRY });
            }
            let limits = self.inner.principals.of(principal);
            if !limits.allows(PrincipalLimit::QueuedPrompts, line.waiting_for(principal)) {
                return Err(limits.exceeded(PrincipalLimit::QueuedPrompts, RETRY).into());
            }
            let pressing = manner == Manner::Pressing;
            line.line.push_back(Waiter { principal: principal.clone(), offer, pressing, wanted, give });
        }
        self.advance(agent);
        Ok(Place { given })
    }

    /// Pool statistics, and the last `initialize` result of the agent.
    pub fn agent(&self, agent: &AgentName) -> Option<(Figures, Option<Arc<InitializeResult>>)> {
        let state = self.state();
        let agent = state.agents.get(agent).filter(|agent| agent.configured)?;
        let figures = Figures {
            max: agent.spec.pool.max,
            live: agent.live,
            starting: agent.starting,
            warm: agent.warm(Instant::now()),
            leased: agent.leases.len(),
            spare: agent.spares.len(),
            waiting: agent.line.len(),
            keeps_sessions_locked: agent.keeps_sessions_locked,
            idle_timeout: agent.spec.pool.idle,
            no_load_idle_timeout: agent.spec.pool.no_load_idle_timeout,
            no_load_reclaim_timeout: agent.spec.pool.no_load_reclaim_timeout,
        };
        Some((figures, agent.initialized.clone()))
    }

    /// Runs grants, starts, stops and recalls until no further step is possible for this agent.
    pub(super) fn advance(&self, name: &AgentName) {
        loop {
            let mut state = self.state();
            let state = &mut *state;
            let Some(agent) = state.agents.get_mut(name) else { return };
            if self.inner.shutdown.draining() {
                agent.line.clear();
            }
            match agent.step(Instant::now(), &self.inner.limits) {
                Step::Nothing => return,
                Step::Give(mut spare, waiter) => {
                    if spare.used_by.is_none() {
                        agent.spare_crashes = Crashes::default();
                    }
                    state.next += 1;
                    let (id, recall) = (state.next, Arc::new(Notify::new()));
                    let leased = Leased {
                        idle_since: None,
                        recall: Arc::clone(&recall),
                        leaving: false,
                        tenant: spare.tenant.clone(),
                        generation: spare.generation,
                        spec: Arc::clone(&spare.process.spec),
                        held: std::mem::take(&mut spare.held),
                        can_load: spare.process.initialized.capabilities.can_restore(),
                    };
                    agent.leases.insert(id, leased);
                    let lease = Lease::new(spare, id, waiter.principal, recall, self.clone());
                    // A drop of the lease needs the lock. Therefore another task drops a lease whose waiter is gone.
                    if let Err(unwanted) = waiter.give.send(Ok(lease)) {
                        self.drop_later(unwanted);
                    }
                }
                Step::Start { tenant, offer } => {
                    if self.inner.shutdown.draining() {
                        return;
                    }
                    agent.live += 1;
                    agent.starting += 1;
                    let pool = self.clone();
                    let name = name.clone();
                    self.inner.shutdown.spawn(async move { pool.launch(name, tenant, offer).await });
                }
                Step::Stop(spare) => {
                    state.next += 1;
                    agent.ending.insert(state.next, spare.held);
                    self.stop(name.clone(), spare.process, state.next);
                }
            }
        }
    }

    fn drop_later(&self, unwanted: Result<Lease, AgentFailure>) {
        self.inner.shutdown.spawn(async move { drop(unwanted) });
    }

    /// `id` identifies the sessions that the process held, until the process has ended.
    pub(super) fn stop(&self, name: AgentName, process: Process, id: u64) {
        let pool = self.clone();
        self.inner.shutdown.spawn(async move {
            process.stop().await;
            if let Some(agent) = pool.state().agents.get_mut(&name) {
                agent.live -= 1;
                agent.ending.remove(&id);
            }
            pool.advance(&name);
        });
    }

    pub(super) fn holds(&self, lease: &Lease, session: &str) {
        if let Some(agent) = self.state().agents.get_mut(&lease.agent)
            && let Some(leased) = agent.leases.get_mut(&lease.id)
        {
            leased.held.note(session);
        }
    }

    /// Detects an agent that does not unlock on close: a process that released the session still exists and is in use.
    pub(super) fn session_in_use(&self, lease: &Lease, session: &str) {
        let mut state = self.state();
        let Some(agent) = state.agents.get_mut(&lease.agent) else { return };
        let mut leased =
            agent.leases.iter().filter(|(id, _)| **id != lease.id).map(|(_, leased)| &leased.held);
        let kept = leased.any(|held| held.contains(session))
            || agent.spares.iter().any(|spare| spare.held.contains(session));
        if kept && !agent.keeps_sessions_locked {
            agent.keeps_sessions_locked = true;
            tracing::warn!(
                agent = %lease.agent,
                "the agent keeps a session locked after session/close: its processes are stopped and not reused"
            );
        }
    }

    pub(super) fn told(&self, lease: &Lease, standing: Standing) {
        if let Some(agent) = self.state().agents.get_mut(&lease.agent)
            && let Some(leased) = agent.leases.get_mut(&lease.id)
        {
            leased.idle_since = (standing == Standing::Idle).then(Instant::now);
            // A holder that was busy at the last recall gets another one.
            leased.leaving = standing == Standing::Leaving;
            agent.recall_outdated();
        }
        if standing == Standing::Idle {
            self.advance(&lease.agent);
        }
    }

    pub(super) fn released(&self, lease: &Lease, process: Process, fate: Fate) {
        let used_by = match fate {
            Fate::Untouched => Some(lease.used_by.clone()),
            Fate::Reuse => Some(Some(Arc::clone(&lease.principal.id))),
            Fate::Stop => None,
        };
        let used_by = used_by.filter(|_| !process.is_over() && !self.inner.shutdown.draining());
        let stop = {
            let mut state = self.state();
            let agent = state.agents.get_mut(&lease.agent).expect("agents stay in the pool");
            let held = agent.leases.remove(&lease.id).map(|leased| leased.held).unwrap_or_default();
            // The sessions that this process held would be locked for other processes.
            let used_by = used_by.filter(|_| !agent.keeps_sessions_locked || held.is_empty());
            if used_by.is_some() && fate == Fate::Reuse && !held.is_empty() {
                agent.returning.insert(lease.id, held);
                drop(state);
                return self.take_back(lease, process);
            }
            if let Some(used_by) = used_by {
                agent.spares.push(Spare {
                    process,
                    tenant: lease.principal.tenant.clone(),
                    used_by,
                    generation: lease.generation,
                    since: Instant::now(),
                    held,
                });
                None
            } else {
                agent.ending.insert(lease.id, held);
                Some(process)
            }
        };
        if let Some(process) = stop {
            self.stop(lease.agent.clone(), process, lease.id);
        }
        self.advance(&lease.agent);
    }

    /// Every second: stops ended and expired idle processes, and retries starts whose back-off is over.
    async fn look_after(&self) {
        let names = || -> Vec<AgentName> { self.state().agents.keys().cloned().collect() };
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = tick.tick() => names().iter().for_each(|name| self.advance(name)),
                () = self.inner.shutdown.soft() => break,
            }
        }
        for name in names() {
            let spares = {
                let mut state = self.state();
                let agent = state.agents.get_mut(&name).expect("agents stay in the pool");
                agent.line.clear();
                std::mem::take(&mut agent.spares)
            };
            for spare in spares {
                // No lease follows, so the session history of this process is irrelevant.
                self.stop(name.clone(), spare.process, 0);
            }
        }
    }
}
