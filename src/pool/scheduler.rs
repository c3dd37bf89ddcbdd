//! The pool: runs the steps that the state of an agent decides, and the tasks that start and stop processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::crashes::CrashBackoff;
use super::homes::Homes;
use super::source::AgentSource;
use super::state::{AgentState, Grant, PoolKey, Step, Waiter};
use crate::agent::{AgentFailure, Catalogue, Process};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{AgentName, Limits, PrincipalLimits, Tenant};

#[derive(Debug, Clone)]
pub struct Pool {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) source: Box<dyn AgentSource>,
    pub(super) limits: Arc<Limits>,
    principals: PrincipalLimits,
    pub(super) shutdown: Shutdown,
    pub(super) homes: Arc<Homes>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

pub(super) struct State {
    /// A pool stays until the gateway ends. Other tenants than the default one get a pool with their first request.
    pub(super) pools: HashMap<PoolKey, AgentState>,
    pub(super) catalogue: Catalogue,
    next_id: u64,
}

impl State {
    /// The pool for a new request. `None` if the agent is not configured.
    pub(super) fn configured(&mut self, key: &PoolKey) -> Option<&mut AgentState> {
        let spec = self.catalogue.agent(&key.agent)?;
        let added = || AgentState::new(Arc::clone(spec), key.tenant.clone());
        Some(self.pools.entry(key.clone()).or_insert_with(added))
    }

    /// The pool of an existing lease, process or start.
    pub(super) fn existing(&mut self, key: &PoolKey) -> &mut AgentState {
        self.pools.get_mut(key).expect("a pool stays")
    }

    /// Creates the pools of the default tenant, which start idle processes without a request.
    fn create_default_pools(&mut self) {
        let tenant = Tenant::default();
        for spec in self.catalogue.agents() {
            let added = || AgentState::new(Arc::clone(spec), tenant.clone());
            self.pools
                .entry(PoolKey::new(&spec.name, &tenant))
                .or_insert_with(added);
        }
    }
}

impl Pool {
    /// Creates a pool that starts no process before a request or [`start_maintenance`](Self::start_maintenance).
    pub fn new(
        catalogue: &Catalogue,
        source: impl AgentSource + 'static,
        (limits, principals): (Arc<Limits>, PrincipalLimits),
        shutdown: &Shutdown,
    ) -> Self {
        let mut state = State {
            pools: HashMap::new(),
            catalogue: catalogue.clone(),
            next_id: 0,
        };
        state.create_default_pools();
        let (state, source) = (Mutex::new(state), Box::new(source));
        let (shutdown, homes) = (shutdown.clone(), Arc::default());
        Self {
            inner: Arc::new(Inner {
                source,
                limits,
                principals,
                shutdown,
                homes,
                state,
            }),
        }
    }

    /// Starts the configured idle processes and maintains the pool until shutdown.
    pub fn start_maintenance(&self) {
        let pool = self.clone();
        self.inner
            .shutdown
            .spawn(async move { pool.maintain().await });
    }

    /// Replaces the catalogue. Running turns and processes continue with their entry. Idle processes of a
    /// changed entry stop, and new requests use the new entry.
    pub fn reload(&self, catalogue: &Catalogue) {
        let keys: Vec<PoolKey> = {
            let state = &mut *self.state();
            for (key, pool) in &mut state.pools {
                match catalogue.agent(&key.agent) {
                    Some(spec) if Arc::ptr_eq(spec, &pool.spec) => {}
                    Some(spec) => pool.replace_spec(Arc::clone(spec)),
                    None if state.catalogue.agent(&key.agent).is_some() => pool.remove(),
                    None => {}
                }
            }
            state.catalogue = catalogue.clone();
            state.create_default_pools();
            state.pools.keys().cloned().collect()
        };
        for key in keys {
            self.advance(&key);
        }
    }

    /// The limits of the principals that lease processes.
    pub fn principal_limits(&self) -> &PrincipalLimits {
        &self.inner.principals
    }

    /// Whether a process of the agent is starting for the tenant.
    pub fn is_starting(&self, agent: &AgentName, tenant: &Tenant) -> bool {
        self.state()
            .pools
            .get(&PoolKey::new(agent, tenant))
            .is_some_and(|pool| pool.starting > 0)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.inner.state.lock())
    }

    /// Runs grants, starts, stops and recalls until no further step is possible for this agent.
    pub(super) fn advance(&self, key: &PoolKey) {
        loop {
            let mut state = self.state();
            let state = &mut *state;
            let Some(agent) = state.pools.get_mut(key) else {
                return;
            };
            if self.inner.shutdown.is_draining() {
                agent.queue.clear();
            }
            match agent.next_step(Instant::now(), &self.inner.limits) {
                Step::Wait => return,
                Step::Grant(mut idle_process, waiter) => {
                    if idle_process.used_by.is_none() {
                        agent.learned.prestart_crashes = CrashBackoff::default();
                    }
                    state.next_id += 1;
                    let Waiter {
                        principal,
                        key: process_key,
                        reply,
                        ..
                    } = waiter;
                    let lacks_folders = idle_process.process.key_without_idle_folder()
                        != process_key
                        && idle_process.process.key != process_key;
                    if lacks_folders {
                        idle_process.process.key = process_key;
                    }
                    let grant = agent.grant(state.next_id, idle_process, principal);
                    if lacks_folders {
                        let pool = self.clone();
                        let key = key.clone();
                        self.inner.shutdown.spawn(async move {
                            pool.deliver_with_folders(&key, grant, reply).await;
                        });
                    } else if let Err(Ok(grant)) = reply.send(Ok(grant)) {
                        // The holder of the place has dropped it.
                        self.revoke(key, agent, grant);
                    }
                }
                Step::Start(start) => {
                    if self.inner.shutdown.is_draining() {
                        return;
                    }
                    agent.live += 1;
                    agent.starting += 1;
                    agent.processes.start(start.id, Arc::clone(&agent.spec));
                    let pool = self.clone();
                    let key = key.clone();
                    self.inner
                        .shutdown
                        .spawn(async move { pool.launch(key, start).await });
                }
                Step::Stop(idle_process) => {
                    state.next_id += 1;
                    agent
                        .ending
                        .stopping
                        .insert(state.next_id, idle_process.history);
                    self.stop(key.clone(), idle_process.process, state.next_id);
                }
            }
        }
    }

    /// Grants the folders of the session to the process, and then the process to the waiter.
    async fn deliver_with_folders(
        &self,
        key: &PoolKey,
        grant: Grant,
        reply: oneshot::Sender<Result<Grant, AgentFailure>>,
    ) {
        let granted = grant
            .process
            .grant_folders(grant.process.key.folders.clone())
            .await;
        let undelivered = match granted {
            Ok(()) => reply.send(Ok(grant)).err().and_then(Result::ok),
            Err(failure) => {
                tracing::warn!(agent = %key.agent, %failure, "could not grant the folders of a session");
                // The waiter may have cancelled its request.
                drop(reply.send(Err(failure)));
                Some(grant)
            }
        };
        if let Some(grant) = undelivered {
            self.revoke(key, self.state().existing(key), grant);
            self.advance(key);
        }
    }

    /// Ends a lease that nobody received, and stops its process.
    fn revoke(&self, key: &PoolKey, agent: &mut AgentState, Grant { process, id, .. }: Grant) {
        if let Some(leased) = agent.leases.remove(&id)
            && let Some(process) = agent.put_back(id, process, leased, false)
        {
            self.stop(key.clone(), process, id);
        }
    }

    /// `id` identifies the sessions that the process held, until the process has ended.
    pub(super) fn stop(&self, key: PoolKey, mut process: Process, id: u64) {
        let pool = self.clone();
        self.inner.shutdown.spawn(async move {
            let (folder, process_id) = (process.idle_folder.take(), process.id);
            process.stop().await;
            // Without a folder there is nothing to wait for.
            if let Some(folder) = folder {
                drop(
                    pool.inner
                        .shutdown
                        .spawn_blocking(move || drop(folder))
                        .await,
                );
            }
            {
                let mut state = pool.state();
                let agent = state.existing(&key);
                agent.live -= 1;
                agent.ending.stopping.remove(&id);
                agent.processes.end(process_id);
            }
            pool.advance(&key);
        });
    }

    /// Every second: stops ended and expired idle processes, and retries starts whose back-off is over.
    async fn maintain(&self) {
        let keys = || -> Vec<PoolKey> { self.state().pools.keys().cloned().collect() };
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = tick.tick() => keys().iter().for_each(|key| self.advance(key)),
                () = self.inner.shutdown.drain_started() => break,
            }
        }
        for key in keys() {
            let idle_processes = {
                let mut state = self.state();
                let agent = state.existing(&key);
                agent.queue.clear();
                std::mem::take(&mut agent.idle)
            };
            for idle_process in idle_processes {
                // No lease follows, so the session history of this process is irrelevant.
                self.stop(key.clone(), idle_process.process, 0);
            }
        }
    }
}
