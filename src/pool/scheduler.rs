//! The pool: runs the steps that the state of an agent decides, and the tasks that start and stop processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::crashes::CrashBackoff;
use super::grant::Grant;
use super::homes::Homes;
use super::state::{AgentState, Step};
use crate::agent::{Catalogue, Launcher, Process};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{AgentName, Limits, PrincipalLimits};

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
                Step::Grant(idle_process, waiter) => {
                    if idle_process.used_by.is_none() {
                        agent.prestart_crashes = CrashBackoff::default();
                    }
                    state.next_id += 1;
                    let (grant, waiter) =
                        (agent.grant(state.next_id, idle_process, waiter.principal), waiter.reply);
                    // The holder of the place may have dropped it.
                    if let Err(Ok(Grant { process, lease })) = waiter.send(Ok(grant)) {
                        let history = agent.leases.remove(&lease.id).map(|leased| leased.history);
                        agent.stopping.insert(lease.id, history.unwrap_or_default());
                        self.stop(name.clone(), process, lease.id);
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
