//! The state of one tenant's pool for one agent: pure decisions, no waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::crashes::CrashBackoff;
use crate::agent::{
    AgentExit, AgentFailure, AgentSpec, Connection, EarlierChannel, Process, ProcessKey,
};
use crate::limits::Limits;
use base::telemetry::metrics;
use base::types::{
    AgentName, Principal, PromptId, SessionId, Tenant, Timestamp, UserId, random_uuid,
};
use children::ProcessTree;
use wire::acp::auth::{AuthState, TerminalAuth};
use wire::acp::{ClientCapabilities, InitializeResult};

/// The number of the agent's sessions that the pool remembers for one process. Beyond it, the pool forgets
/// the session that was leased longest ago.
const REMEMBERED_SESSIONS: usize = 256;

/// The key of a pool: every tenant has its own pool for each agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    pub(super) agent: AgentName,
    pub(super) tenant: Tenant,
}

impl PoolKey {
    pub(super) fn new(agent: &AgentName, tenant: &Tenant) -> Self {
        Self {
            agent: agent.clone(),
            tenant: tenant.clone(),
        }
    }
}

/// The agent's session that a lease is for.
#[derive(Debug, Clone)]
pub struct RequestedSession {
    /// The agent's id of the session.
    pub session: Arc<str>,
    /// Whether the session has a conversation to restore.
    pub has_history: bool,
    /// The agent has just reported that another process uses the session. A process that held the session
    /// must end first.
    pub in_use: bool,
    /// The process of an earlier gateway process that has the session.
    pub earlier: Option<Arc<EarlierChannel>>,
}

pub(super) struct Waiter {
    pub(super) principal: Principal,
    pub(super) key: ProcessKey,
    pub(super) priority: Priority,
    /// `None` for a new session or a call without a session.
    pub(super) requested: Option<RequestedSession>,
    pub(super) reply: oneshot::Sender<Result<Grant, AgentFailure>>,
}

/// Whether a request may reclaim the process of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Uses only a process that no session holds.
    NoReclaim,
    /// Recalls the lease of the session that has been idle the longest, as for another session.
    Reclaim,
}

/// A process that the pool grants to a waiter.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) process: Process,
    pub(super) id: u64,
    pub(super) recall: Arc<Notify>,
}

pub(super) struct IdleProcess {
    pub(super) process: Process,
    /// The only user whose sessions may use the process. `None` if no session has used it.
    pub(super) used_by: Option<UserId>,
    /// The generation of the sign-in that the process has.
    pub(super) generation: u64,
    pub(super) idle_since: Instant,
    pub(super) history: SessionHistory,
}

impl IdleProcess {
    fn matches(&self, waiter: &Waiter) -> bool {
        let has_folders = self.process.key == waiter.key;
        let can_get_folders = || {
            self.process.accepts_folders() && {
                let without_folders = ProcessKey {
                    folders: Vec::new(),
                    ..waiter.key.clone()
                };
                self.process.key == without_folders
            }
        };
        let needs_no_folder = || {
            waiter.key.folders.is_empty() && self.process.key_without_idle_folder() == waiter.key
        };
        (has_folders || can_get_folders() || needs_no_folder())
            && self
                .used_by
                .as_ref()
                .is_none_or(|user| *user == waiter.principal.user)
    }

    fn has_requested_session(&self, waiter: &Waiter) -> bool {
        waiter
            .requested
            .as_ref()
            .is_some_and(|requested| self.history.contains(&requested.session))
    }
}

pub(super) struct ActiveLease {
    pub(super) process: Uuid,
    /// The session that holds the lease. `None` for a call without a session.
    pub(super) holder: Option<Holder>,
    pub(super) user: UserId,
    /// The only user whose sessions may use the process after the lease. `None`: every user.
    pub(super) used_by: Option<UserId>,
    /// The time since which the holder could release the process.
    pub(super) idle_since: Option<Instant>,
    pub(super) recall: Arc<Notify>,
    /// The pool recalled the lease, or its holder is releasing it.
    pub(super) releasing: bool,
    pub(super) generation: u64,
    /// The configuration entry with which the process started.
    pub(super) spec: Arc<AgentSpec>,
    pub(super) history: SessionHistory,
    /// The agent can load or resume the session on another process.
    pub(super) can_load: bool,
}

impl ActiveLease {
    /// Whether a full pool may reclaim the process. A session that cannot be loaded keeps it for a longer time.
    fn can_be_reclaimed(&self, now: Instant) -> bool {
        let keep = if self.can_load {
            Duration::ZERO
        } else {
            self.spec.settings.pool.no_load_reclaim_timeout
        };
        !self.releasing && self.idle_since.is_some_and(|since| now >= since + keep)
    }

    fn recall_if_idle(&mut self) {
        if !self.releasing && self.idle_since.is_some() {
            self.releasing = true;
            self.recall.notify_one();
        }
    }
}

/// The observations of the agent with its current configuration entry.
#[derive(Default)]
pub(super) struct Learned {
    pub(super) initialized: Option<Arc<InitializeResult>>,
    /// The agent keeps a session locked after `session/close` until the process ends: no process is reused.
    pub(super) keeps_sessions_locked: bool,
    /// The error of the last start, if it failed for a reason that applies to every session.
    pub(super) start_error: Option<Arc<str>>,
    /// Whether every start fails with this error until the entry, its program or the machine changes. No process then starts ahead
    /// of a request; a request tries again.
    pub(super) start_is_fixed: bool,
    pub(super) last_failure: Option<LastFailure>,
    /// Failed starts while a session or a call waited for a process.
    pub(super) crashes: CrashBackoff,
    /// Failed starts and crashes of processes that no session had requested. They are no reason to refuse a request.
    pub(super) prestart_crashes: CrashBackoff,
}

pub(super) struct AgentState {
    /// The current configuration entry. Processes of another entry stop when they are idle.
    pub(super) spec: Arc<AgentSpec>,
    pub(super) tenant: Tenant,
    /// Existing processes: starting, idle, leased and stopping.
    pub(super) live: usize,
    pub(super) starting: usize,
    pub(super) processes: HashMap<Uuid, Started>,
    pub(super) queue: VecDeque<Waiter>,
    pub(super) idle: Vec<IdleProcess>,
    pub(super) leases: HashMap<u64, ActiveLease>,
    /// The sessions of processes that are being stopped, by the id of the last lease.
    pub(super) stopping: HashMap<u64, SessionHistory>,
    /// Processes that closed their session and are checked before reuse, by the id of the last lease.
    pub(super) checking: HashMap<u64, ActiveLease>,
    pub(super) learned: Learned,
    /// The time of the last request for a process.
    pub(super) last_requested_at: Instant,
    pub(super) sign_in: SignInState,
}

pub(super) struct Start {
    pub(super) id: Uuid,
    pub(super) key: ProcessKey,
    /// No session has requested the process.
    pub(super) ahead: bool,
}

/// The next step for the waiters of an agent.
pub(super) enum Step {
    Grant(IdleProcess, Waiter),
    Start(Start),
    Stop(IdleProcess),
    Wait,
}

impl AgentState {
    pub(super) fn new(spec: Arc<AgentSpec>, tenant: Tenant) -> Self {
        Self {
            spec,
            tenant,
            live: 0,
            starting: 0,
            processes: HashMap::new(),
            queue: VecDeque::new(),
            idle: Vec::new(),
            leases: HashMap::new(),
            stopping: HashMap::new(),
            checking: HashMap::new(),
            learned: Learned::default(),
            last_requested_at: Instant::now(),
            sign_in: SignInState::default(),
        }
    }

    /// Registers the lease `id` of the process for a user.
    pub(super) fn grant(
        &mut self,
        id: u64,
        idle_process: IdleProcess,
        principal: Principal,
    ) -> Grant {
        let process = idle_process.process;
        let recall = Arc::new(Notify::new());
        let leased = ActiveLease {
            process: process.id,
            holder: None,
            user: principal.user,
            used_by: idle_process.used_by,
            idle_since: None,
            recall: Arc::clone(&recall),
            releasing: false,
            generation: idle_process.generation,
            spec: Arc::clone(&process.spec),
            history: idle_process.history,
            can_load: process.initialized.capabilities.can_restore(),
        };
        self.leases.insert(id, leased);
        Grant {
            process,
            id,
            recall,
        }
    }

    /// Makes the process of a lease idle, or returns it if it must stop.
    pub(super) fn put_back(
        &mut self,
        id: u64,
        process: Process,
        leased: ActiveLease,
        reuse: bool,
    ) -> Option<Process> {
        if !reuse {
            self.stopping.insert(id, leased.history);
            return Some(process);
        }
        self.idle.push(IdleProcess {
            process,
            used_by: leased.used_by,
            generation: leased.generation,
            idle_since: Instant::now(),
            history: leased.history,
        });
        None
    }

    /// Replaces the configuration entry and resets all that was learned about the previous one.
    pub(super) fn replace_spec(&mut self, spec: Arc<AgentSpec>) {
        self.spec = spec;
        self.learned = Learned::default();
        self.last_requested_at = Instant::now();
        // The new program must not receive the sign-in of the previous one.
        self.sign_in.reset();
    }

    /// Removes the entry. Holders of a process finish their work, and waiters receive an error.
    pub(super) fn remove(&mut self) {
        self.replace_spec(Arc::new(AgentSpec::removed(self.spec.name.clone())));
        for waiter in self.queue.drain(..) {
            // The waiter may have cancelled its request.
            let _ = waiter.reply.send(Err(AgentFailure::removed()));
        }
    }

    /// Recalls idle leases whose process belongs to another entry or to an earlier sign-in generation.
    fn recall_outdated(&mut self) {
        for leased in self.leases.values_mut() {
            if leased.generation < self.sign_in.generation || !Arc::ptr_eq(&leased.spec, &self.spec)
            {
                leased.recall_if_idle();
            }
        }
    }

    /// Whether the waiter has to wait for a process that has its session. That process is either being
    /// released, or keeps the session locked until it ends.
    fn is_blocked(&self, waiter: &Waiter) -> bool {
        let Some(requested) = &waiter.requested else {
            return false;
        };
        let holds = |held: &SessionHistory| held.contains(&requested.session);
        let has = |leased: &ActiveLease| {
            leased.releasing && leased.history.last() == Some(&*requested.session)
        };
        let is_checked = self.checking.values().any(|leased| holds(&leased.history));
        if is_checked || self.leases.values().any(has) {
            return true;
        }
        if !requested.in_use && !self.learned.keeps_sessions_locked {
            return false;
        }
        self.leases.values().any(|leased| holds(&leased.history))
            || self.stopping.values().any(holds)
            || self
                .idle
                .iter()
                .any(|idle_process| holds(&idle_process.history) && !idle_process.matches(waiter))
    }

    /// Recalls the idle leases whose processes lock the sessions of blocked waiters.
    fn recall_holders(&mut self) {
        let blocked = self
            .queue
            .iter()
            .filter(|w| w.priority == Priority::Reclaim && self.is_blocked(w));
        let requests: Vec<_> = blocked
            .filter_map(|waiter| waiter.requested.clone())
            .collect();
        let holds = |leased: &ActiveLease| {
            requests
                .iter()
                .any(|requested| leased.history.contains(&requested.session))
        };
        for leased in self.leases.values_mut().filter(|leased| holds(leased)) {
            leased.recall_if_idle();
        }
    }

    /// An idle process that no waiter can use and that locks sessions which others may need.
    fn idle_process_to_stop(&self) -> Option<usize> {
        let blocks = |idle_process: &IdleProcess| {
            self.queue.iter().any(|w| {
                self.is_blocked(w)
                    && idle_process.has_requested_session(w)
                    && !idle_process.matches(w)
            })
        };
        self.idle.iter().position(|idle_process| {
            (self.learned.keeps_sessions_locked && !idle_process.history.is_empty())
                || blocks(idle_process)
        })
    }

    pub(super) fn next_step(&mut self, now: Instant, limits: &Limits) -> Step {
        self.queue.retain(|waiter| !waiter.reply.is_closed());
        self.recall_outdated();
        if let Some(at) = self
            .idle
            .iter()
            .position(|idle_process| !self.is_usable(idle_process))
        {
            let dead = self.idle.swap_remove(at);
            if dead.process.has_ended() {
                metrics().agent_exits(&self.spec.name, "idle", 1);
                self.learned.last_failure = Some(LastFailure::of_idle(&dead.process));
                if dead.used_by.is_none() {
                    self.learned.prestart_crashes.record(now, limits);
                }
            }
            return Step::Stop(dead);
        }
        if let Some((at, idle_process)) = self.next_grant() {
            let waiter = self.queue.remove(at).expect("the position is in the queue");
            return Step::Grant(self.idle.swap_remove(idle_process), waiter);
        }
        if let Some(idle_process) = self.idle_process_to_stop() {
            return Step::Stop(self.idle.swap_remove(idle_process));
        }
        self.recall_holders();
        let unblocked: Vec<&Waiter> = self
            .queue
            .iter()
            .filter(|waiter| !self.is_blocked(waiter))
            .collect();
        let demand = unblocked.len();
        let pressing = unblocked
            .iter()
            .filter(|waiter| waiter.priority == Priority::Reclaim)
            .count();
        let starting = self.starting + self.checking.len();
        if demand > starting {
            if self.live < self.spec.settings.pool.max_size {
                return Step::Start(Start {
                    id: random_uuid(),
                    key: unblocked[starting].key.clone(),
                    ahead: false,
                });
            }
            // The processes that are starting or stopping.
            let coming = self
                .live
                .saturating_sub(self.leases.len() + self.idle.len());
            if !self.idle.is_empty() && demand > coming {
                // The idle processes match neither the user nor the capabilities of the first waiter.
                return Step::Stop(self.idle.swap_remove(0));
            }
            self.recall(demand.saturating_sub(coming).min(pressing), now);
            return Step::Wait;
        }
        let idle_process = (self.unused_idle_count() + self.starting).saturating_sub(demand);
        let lacking = idle_process < self.min_idle(now);
        let backoffs = [&self.learned.crashes, &self.learned.prestart_crashes];
        let in_backoff = |crashes: &CrashBackoff| crashes.remaining_backoff(now).is_some();
        let held_back = backoffs.into_iter().any(in_backoff) || self.learned.start_is_fixed;
        if lacking && !held_back && self.live < self.spec.settings.pool.max_size {
            return Step::Start(Start {
                id: random_uuid(),
                key: self.unused_key(),
                ahead: true,
            });
        }
        self.take_expired(now).map_or(Step::Wait, Step::Stop)
    }

    /// The target number of unused idle processes. It is 0 after a long time without requests. It is also 0
    /// while the agent requires a sign-in, since a new process could only refuse, and if a process starts for one
    /// session.
    pub(super) fn min_idle(&self, now: Instant) -> usize {
        if self.spec.settings.dialect.has_one_session() {
            return 0;
        }
        let refuses = self.sign_in.state == AuthState::Unauthenticated;
        let forgotten = now - self.last_requested_at > self.spec.settings.pool.min_idle_for;
        if refuses || forgotten {
            0
        } else {
            self.spec.settings.pool.min_idle
        }
    }

    /// Whether the process runs, with the current configuration entry and sign-in.
    fn is_usable(&self, idle_process: &IdleProcess) -> bool {
        !idle_process.process.has_ended()
            && idle_process.generation >= self.sign_in.generation
            && Arc::ptr_eq(&idle_process.process.spec, &self.spec)
    }

    /// An idle process with a folder, for a new session of this user with these client capabilities.
    pub(super) fn idle_process_with_folder(
        &mut self,
        user: &UserId,
        offer: ClientCapabilities,
    ) -> Option<&mut Process> {
        let fits = |idle_process: &IdleProcess| {
            idle_process.process.idle_folder.is_some()
                && idle_process.process.key.client_capabilities == offer
                && idle_process
                    .used_by
                    .as_ref()
                    .is_none_or(|used_by| used_by == user)
                && (!self.learned.keeps_sessions_locked || idle_process.history.is_empty())
                && self.is_usable(idle_process)
        };
        let at = self.idle.iter().position(fits)?;
        Some(&mut self.idle[at].process)
    }

    /// The number of idle processes that every user can use.
    fn unused_idle_count(&self) -> usize {
        self.idle
            .iter()
            .filter(|idle_process| self.is_unused(idle_process))
            .count()
    }

    fn is_unused(&self, idle_process: &IdleProcess) -> bool {
        idle_process.used_by.is_none()
            && idle_process.process.key_without_idle_folder() == self.unused_key()
    }

    /// The key of a process that starts before a request.
    fn unused_key(&self) -> ProcessKey {
        let offer = self.spec.client_capabilities();
        ProcessKey::new(&self.spec, self.tenant.clone(), offer, Vec::new(), None)
    }

    /// The next waiter and its idle process. A waiter is skipped only if a starting process will serve it.
    fn next_grant(&self) -> Option<(usize, usize)> {
        let mut coming = self.starting + self.spec.settings.pool.max_size.saturating_sub(self.live);
        for (at, waiter) in self.queue.iter().enumerate() {
            if self.is_blocked(waiter) {
                continue;
            }
            // The process that held the session has it in memory, or keeps it locked.
            let held = |idle_process: &IdleProcess| {
                idle_process.has_requested_session(waiter) && idle_process.matches(waiter)
            };
            let fits = |idle_process: &IdleProcess| {
                idle_process.matches(waiter)
                    && (!self.learned.keeps_sessions_locked || idle_process.history.is_empty())
            };
            let held = self.idle.iter().position(held);
            // Prefer a used process: every user can use an unused one.
            let used = || {
                self.idle
                    .iter()
                    .position(|idle_process| idle_process.used_by.is_some() && fits(idle_process))
            };
            if let Some(idle_process) = held
                .or_else(used)
                .or_else(|| self.idle.iter().position(fits))
            {
                return Some((at, idle_process));
            }
            coming = coming.checked_sub(1)?;
        }
        None
    }

    /// Recalls the leases that have been idle the longest.
    fn recall(&mut self, count: usize, now: Instant) {
        let leaving = self.leases.values().filter(|leased| leased.releasing);
        let count = count.saturating_sub(leaving.count());
        let leases = self.leases.values_mut();
        let mut idle: Vec<_> = leases
            .filter(|leased| leased.can_be_reclaimed(now))
            .collect();
        idle.sort_by_key(|leased| leased.idle_since);
        for leased in idle.into_iter().take(count) {
            leased.recall_if_idle();
            metrics().pool_evictions(&self.spec.name, 1);
        }
    }

    fn take_expired(&mut self, now: Instant) -> Option<IdleProcess> {
        let idle = self.spec.settings.pool.idle_timeout;
        let surplus = self.unused_idle_count() > self.min_idle(now);
        let over = |idle_process: &IdleProcess| {
            now - idle_process.idle_since > idle && (surplus || !self.is_unused(idle_process))
        };
        let at = self.idle.iter().position(over)?;
        Some(self.idle.swap_remove(at))
    }
}

/// The agent's ids of the last sessions that a process has held since its start.
#[derive(Debug, Default)]
pub(super) struct SessionHistory(VecDeque<Arc<str>>);

impl SessionHistory {
    pub(super) fn record(&mut self, session: &str) {
        self.0.retain(|held| **held != *session);
        if self.0.len() >= REMEMBERED_SESSIONS {
            self.0.pop_front();
        }
        self.0.push_back(session.into());
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        self.0.iter().any(|held| **held == *session)
    }

    pub(super) fn last(&self) -> Option<&str> {
        self.0.back().map(|held| &**held)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Default)]
pub(super) struct SignInState {
    /// The number of the last sign-in or sign-out. Processes of an earlier generation started before it and do not use
    /// it.
    pub(super) generation: u64,
    pub(super) state: AuthState,
    /// Params of the last successful sign-in, sent to new processes.
    pub(super) sign_in_params: Option<Box<RawValue>>,
    /// The agent refused a prompt because the sign-in is missing. That it opens sessions does not prove a sign-in
    /// then.
    pub(super) prompt_refused: bool,
    /// The pool does not try the key of the environment: it did before, or a client signed in or out.
    pub(super) key_tried: bool,
    pub(super) slot: Option<SignInSlot>,
}

impl SignInState {
    /// Resets the state because the configuration entry of the agent changed.
    pub(super) fn reset(&mut self) {
        self.update(AuthState::default(), None);
        self.key_tried = false;
        self.slot.take_if(|slot| !matches!(slot, SignInSlot::Open));
    }

    /// Records a sign-in or sign-out. Only processes that start from now on have the new generation.
    pub(super) fn update(&mut self, state: AuthState, params: Option<Box<RawValue>>) -> u64 {
        self.state = state;
        self.sign_in_params = params;
        self.prompt_refused = false;
        self.key_tried = true;
        self.generation += 1;
        self.generation
    }
}

/// The state of the sign-in slot of an agent and a tenant.
#[derive(Debug, Clone)]
pub(super) enum SignInSlot {
    /// Waits for its connection. A later offer replaces this one.
    Offered {
        id: Uuid,
        method: TerminalAuth,
        until: Instant,
    },
    Open,
}

impl SignInSlot {
    pub(super) fn is_offered(&self, id: Uuid) -> bool {
        matches!(self, Self::Offered { id: offered, until, .. } if *offered == id && Instant::now() < *until)
    }
}

/// The session of a lease, as its holder reports it. The pool makes no decision with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub session: SessionId,
    /// The running turn, and when this process got it.
    pub turn: Option<(PromptId, Timestamp)>,
}

/// A process from its start to its end.
pub(super) struct Started {
    pub(super) spec: Arc<AgentSpec>,
    pub(super) at: Instant,
    /// `None` before the end of the handshake.
    pub(super) connection: Option<Connection>,
    /// `None` before the end of the handshake, and if the agent is not a child process of the gateway.
    pub(super) pid: Option<u32>,
    pub(super) tree: Option<ProcessTree>,
}

/// The latest failed start, or the latest end of a process without an order of the gateway.
#[derive(Debug, Clone)]
pub struct LastFailure {
    pub failure: AgentFailure,
    at: Instant,
}

impl LastFailure {
    pub(super) fn of(failure: AgentFailure) -> Self {
        Self {
            failure,
            at: Instant::now(),
        }
    }

    /// The end of a process that no session used.
    fn of_idle(process: &Process) -> Self {
        Self::of(match process.pid() {
            Some(_) => AgentFailure::Exited(AgentExit {
                stderr_tail: process.stderr(),
                ..AgentExit::default()
            }),
            None => AgentFailure::Disconnected {
                reason: "it ended while no session used it".to_owned(),
            },
        })
    }

    /// The time since the failure.
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

#[cfg(test)]
mod session_history_tests {
    use super::*;

    #[test]
    fn least_recently_held_session_is_evicted_first() {
        let mut held = SessionHistory::default();
        assert!(held.is_empty());
        for number in 0..REMEMBERED_SESSIONS {
            held.record(&number.to_string());
        }
        held.record("0");
        held.record("one more");
        assert!(
            held.contains("0")
                && !held.contains("1")
                && held.contains("2")
                && held.contains("one more")
        );
    }
}
