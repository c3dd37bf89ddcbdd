//! The pool: runs the steps that the state of an agent decides, and the tasks that start and stop processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use super::crashes::CrashBackoff;
use super::homes::{HomePermit, Homes};
use super::source::AgentSource;
use super::state::{
    AgentState, Grant, IdleProcess, LastFailure, PoolKey, SessionHistory, Start, Started, Step,
};
use crate::agent::{AgentFailure, AgentSpec, Catalogue, FailedStart, Process, ProcessKey};
use crate::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::telemetry::metrics;
use base::types::{AgentName, PrincipalLimits, Tenant};

/// `REUSE_GRACE` is the time that child processes of a closed session have to end. When it expires, the
/// gateway stops the agent's process instead of reusing it. `REUSE_INTERVAL` is the interval between two
/// checks.
const REUSE_GRACE: Duration = Duration::from_secs(1);
const REUSE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct Pool {
    pub(super) inner: Arc<Inner>,
}

#[derive(derive_more::Debug)]
#[debug("Pool")]
pub(super) struct Inner {
    pub(super) source: Box<dyn AgentSource>,
    pub(super) limits: Arc<Limits>,
    principals: PrincipalLimits,
    pub(super) shutdown: Shutdown,
    pub(super) homes: Arc<Homes>,
    state: Mutex<State>,
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
        limits: Arc<Limits>,
        principals: PrincipalLimits,
        shutdown: &Shutdown,
    ) -> Self {
        let mut state = State {
            pools: HashMap::new(),
            catalogue: catalogue.clone(),
            next_id: 0,
        };
        state.create_default_pools();
        Self {
            inner: Arc::new(Inner {
                source: Box::new(source),
                limits,
                principals,
                shutdown: shutdown.clone(),
                homes: Arc::default(),
                state: Mutex::new(state),
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

    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The limits of the users that lease processes.
    pub fn principal_limits(&self) -> &PrincipalLimits {
        &self.inner.principals
    }

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
                    let key_of_request = waiter.key;
                    let process = &mut idle_process.process;
                    let lacks_folders = process.key_without_idle_folder() != key_of_request
                        && process.key != key_of_request;
                    if lacks_folders {
                        process.key = key_of_request;
                    }
                    let grant = agent.grant(state.next_id, idle_process, waiter.principal);
                    if lacks_folders {
                        let pool = self.clone();
                        let key = key.clone();
                        let span = grant.process.connection.span.clone();
                        let deliver = async move {
                            pool.deliver_with_folders(&key, grant, waiter.reply).await;
                        };
                        self.inner.shutdown.spawn(deliver.instrument(span));
                    } else if let Err(Ok(grant)) = waiter.reply.send(Ok(grant)) {
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
                    let started = Started {
                        spec: Arc::clone(&agent.spec),
                        at: Instant::now(),
                        connection: None,
                        pid: None,
                        tree: None,
                    };
                    agent.processes.insert(start.id, started);
                    let pool = self.clone();
                    let key = key.clone();
                    // The process outlives the request that needs it.
                    let span = tracing::error_span!(parent: None, "agent", agent = %key.agent);
                    let launch = async move { pool.launch(key, start).await };
                    self.inner.shutdown.spawn(launch.instrument(span));
                }
                Step::Stop(idle_process) => {
                    state.next_id += 1;
                    agent.stopping.insert(state.next_id, idle_process.history);
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
                tracing::warn!(%failure, "could not grant the folders of a session");
                // The waiter may have cancelled its request.
                let _ = reply.send(Err(failure));
                Some(grant)
            }
        };
        if let Some(grant) = undelivered {
            self.revoke(key, self.state().existing(key), grant);
            self.advance(key);
        }
    }

    /// Ends a lease that was not delivered to its waiter, and stops its process.
    fn revoke(&self, key: &PoolKey, agent: &mut AgentState, grant: Grant) {
        if let Some(leased) = agent.leases.remove(&grant.id)
            && let Some(process) = agent.put_back(grant.id, grant.process, leased, false)
        {
            self.stop(key.clone(), process, grant.id);
        }
    }

    /// `id` identifies the sessions that the process held, until the process has ended.
    pub(super) fn stop(&self, key: PoolKey, mut process: Process, id: u64) {
        let pool = self.clone();
        let span = process.connection.span.clone();
        let stop = async move {
            let process_id = process.id;
            let folder = process.idle_folder.take();
            process.stop().await;
            // Without a folder there is nothing to wait for.
            if let Some(folder) = folder {
                let removal = move || drop(folder);
                let _ = pool.inner.shutdown.spawn_blocking(removal).await;
            }
            {
                let mut state = pool.state();
                let agent = state.existing(&key);
                agent.live -= 1;
                agent.stopping.remove(&id);
                agent.processes.remove(&process_id);
            }
            pool.advance(&key);
        };
        self.inner.shutdown.spawn(stop.instrument(span));
    }

    /// Every second: stops ended and expired idle processes, and retries starts whose back-off is over.
    async fn maintain(&self) {
        let keys = || -> Vec<PoolKey> { self.state().pools.keys().cloned().collect() };
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    for key in keys() {
                        self.advance(&key);
                    }
                }
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

/// The length of the error of a start in lists.
const ERROR_BYTES: usize = 500;

/// A start without a usable process.
struct StartFailure {
    start: FailedStart,
    /// `None` if the start waited for another one and failed with it. The agent has then failed once, not twice.
    permit: Option<HomePermit>,
}

impl Pool {
    pub(super) async fn launch(&self, pool: PoolKey, Start { id, mut key, ahead }: Start) {
        let (spec, wait) = {
            let state = self.state();
            let agent = &state.pools[&pool];
            let wait = agent.learned.crashes.remaining_backoff(Instant::now());
            (Arc::clone(&agent.spec), wait)
        };
        let start = async {
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
            let begun = Instant::now();
            let folder = if ahead {
                self.inner
                    .source
                    .create_idle_folder(&spec, &key.tenant)
                    .await
            } else {
                None
            };
            key.folders
                .extend(folder.as_ref().map(|folder| folder.path().to_owned()));
            let (mut process, generation) = self.start(&spec, &key).await?;
            process.idle_folder = folder;
            metrics().agent_start_duration(&spec.name, begun.elapsed().as_secs_f64());
            Ok((process, generation))
        };
        // Dropping a start stops its process.
        let outcome = tokio::select! {
            biased;
            () = self.inner.shutdown.drain_started() => Err(StartFailure { start: AgentFailure::Draining.into(), permit: None }),
            outcome = start => outcome,
        };
        match outcome {
            Ok((mut process, generation)) => {
                metrics().agent_starts(&spec.name, "ok", 1);
                process.id = id;
                let mut state = self.state();
                let agent = state.existing(&pool);
                agent.starting -= 1;
                if let Some(started) = agent.processes.get_mut(&id) {
                    started.connection = Some(process.connection.clone());
                    started.pid = process.pid();
                    started.tree = process.tree();
                }
                if Arc::ptr_eq(&agent.spec, &spec) {
                    agent.learned.initialized = Some(Arc::clone(&process.initialized));
                    agent.learned.start_error = None;
                    agent.learned.start_is_fixed = false;
                }
                agent.idle.push(IdleProcess {
                    process,
                    used_by: None,
                    generation,
                    idle_since: Instant::now(),
                    history: SessionHistory::default(),
                });
            }
            Err(failed) => {
                self.report_failure(&pool, &spec, &key, &failed);
                self.advance(&pool);
                // The process counts as live, and occupies its HOME, until it has ended.
                let StartFailure { start, permit } = failed;
                start.wait_stopped().await;
                drop(permit);
                let mut state = self.state();
                let agent = state.existing(&pool);
                agent.live -= 1;
                agent.processes.remove(&id);
            }
        }
        self.advance(&pool);
    }

    /// Reports a failed start to the first waiter of the agent. If only one session causes the failure, reports it to a
    /// waiter with the same folders, and does not count a crash. Does not wait for the end of the process.
    fn report_failure(
        &self,
        pool: &PoolKey,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        failed: &StartFailure,
    ) {
        let mut state = self.state();
        let agent = state.existing(pool);
        agent.starting -= 1;
        let failure = &failed.start.failure;
        // A new entry can have other settings, so this failure does not apply to it.
        if matches!(failure, AgentFailure::Draining) || !Arc::ptr_eq(&agent.spec, spec) {
            return;
        }
        agent.queue.retain(|waiter| !waiter.reply.is_closed());
        if failed.permit.is_some() {
            metrics().agent_starts(&spec.name, failure.code().as_str(), 1);
        }
        let of_session = failure.is_of_session();
        let mut is_known = false;
        let waiter = if of_session {
            let at = agent.queue.iter().position(|waiter| waiter.key == *key);
            at.and_then(|at| agent.queue.remove(at))
        } else {
            agent.queue.pop_front()
        };
        if of_session {
            tracing::warn!(%failure, "could not start the agent for a session");
        } else {
            let error: Arc<str> = failure.with_output(ERROR_BYTES).into();
            is_known = agent.learned.start_error.as_ref() == Some(&error);
            agent.learned.start_error = Some(error);
            agent.learned.last_failure = Some(LastFailure::of(failure.clone()));
            agent.learned.start_is_fixed = failure.is_fixed();
        }
        if !of_session && failed.permit.is_some() {
            let failure = failure.with_output(ERROR_BYTES);
            if is_known && waiter.is_none() {
                tracing::debug!(failure, "could not start the agent again");
            } else {
                tracing::warn!(failure, "could not start the agent");
            }
            let crashes = if waiter.is_some() {
                &mut agent.learned.crashes
            } else {
                &mut agent.learned.prestart_crashes
            };
            crashes.record(Instant::now(), &self.inner.limits);
        }
        if let Some(waiter) = waiter {
            // The waiter may have cancelled its request.
            let _ = waiter.reply.send(Err(failure.clone()));
        }
    }

    /// Starts a process when its HOME is available. Agents that set up the same files at the same time break each
    /// other. Therefore a start that fails while another one runs in the same HOME is retried once, exclusively.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<(Process, u64), StartFailure> {
        let home = self.inner.homes.acquire(spec, &key.tenant, false).await;
        let mut home = home.map_err(|failure| StartFailure {
            start: failure.into(),
            permit: None,
        })?;
        let mut outcome = self.connect_signed_in(spec, key).await;
        if let Err(failed) = &outcome
            && let failure @ (AgentFailure::Exited(_) | AgentFailure::Rpc(_)) = &failed.failure
            && home.overlapped()
        {
            tracing::info!(%failure, "retrying a failed start alone: another start ran in the same HOME");
            home.release();
            let alone = self.inner.homes.acquire(spec, &key.tenant, true);
            if let Ok(Ok(alone)) = tokio::time::timeout(spec.settings.start_timeout, alone).await {
                home = alone;
                if let Err(failed) = outcome {
                    failed.wait_stopped().await;
                }
                outcome = self.connect_signed_in(spec, key).await;
            }
        }
        match outcome {
            Ok(started) => {
                home.succeeded();
                Ok(started)
            }
            Err(start) => {
                home.failed(&start.failure);
                Err(StartFailure {
                    start,
                    permit: Some(home),
                })
            }
        }
    }
}

impl Pool {
    /// Checks the process of a closed session, and reuses it if no process that the session started still
    /// runs. During the check the process counts as stopping.
    pub(super) fn check_for_reuse(&self, key: PoolKey, id: u64, process: Process) {
        let pool = self.clone();
        let span = process.connection.span.clone();
        let check = async move {
            let left = tokio::select! {
                left = pool.count_leftover_processes(&process) => left,
                () = pool.inner.shutdown.drain_started() => 0,
            };
            if left > 0 {
                tracing::info!(
                    left,
                    "stopping an agent process: its closed session left child processes running"
                );
            }
            let reusable = left == 0 && !process.has_ended() && !pool.inner.shutdown.is_draining();
            let stopped = {
                let mut state = pool.state();
                let agent = state.existing(&key);
                let Some(leased) = agent.checking.remove(&id) else {
                    return;
                };
                agent.put_back(id, process, leased, reusable)
            };
            match stopped {
                Some(process) => pool.stop(key, process, id),
                None => pool.advance(&key),
            }
        };
        self.inner.shutdown.spawn(check.instrument(span));
    }

    /// The number of processes that started after `initialize` and still run after a grace period.
    async fn count_leftover_processes(&self, process: &Process) -> usize {
        let end = Instant::now() + REUSE_GRACE;
        loop {
            let Some(tree) = process.tree() else { return 0 };
            let left = self
                .inner
                .shutdown
                .spawn_blocking(move || tree.new_processes())
                .await
                .unwrap_or(1);
            if left == 0 || Instant::now() >= end {
                return left;
            }
            tokio::time::sleep(REUSE_INTERVAL).await;
        }
    }
}
