//! The state of one agent: pure decisions, no waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::auth::SignedIn;
use super::crashes::Crashes;
use super::held::Held;
use super::lease::Lease;
use super::sign_in::SignInPlace;
use crate::acp::auth::AuthState;
use crate::acp::{ClientCapabilities, InitializeResult};
use crate::agent::{AgentFailure, AgentSpec, Process};
use crate::types::{Limits, Principal, Tenant};

/// The agent's session that a lease is for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The agent's id of the session.
    pub session: Arc<str>,
    /// The agent has just reported that another process uses the session. A process that held the session
    /// must end first.
    pub in_use: bool,
}

pub(super) struct Waiter {
    pub(super) principal: Principal,
    /// The capabilities that the session offers to the agent.
    pub(super) offer: ClientCapabilities,
    /// The pool may recall the lease of an idle session for this waiter.
    pub(super) pressing: bool,
    /// `None` for a new session or a call without a session.
    pub(super) wanted: Option<Wanted>,
    pub(super) give: oneshot::Sender<Result<Lease, AgentFailure>>,
}

/// A process that waits for a session.
pub(super) struct Spare {
    pub(super) process: Process,
    pub(super) tenant: Tenant,
    /// The only principal that may use the process. `None` if no session has used it.
    pub(super) used_by: Option<Arc<str>>,
    /// The generation of the sign-in that the process has.
    pub(super) generation: u64,
    pub(super) since: Instant,
    pub(super) held: Held,
}

impl Spare {
    fn fits(&self, waiter: &Waiter) -> bool {
        self.tenant == waiter.principal.tenant
            && self.process.offer == waiter.offer
            && self.used_by.as_ref().is_none_or(|id| *id == waiter.principal.id)
    }

    fn held_session_of(&self, waiter: &Waiter) -> bool {
        waiter.wanted.as_ref().is_some_and(|wanted| self.held.contains(&wanted.session))
    }
}

pub(super) struct Leased {
    /// The time since which the holder could release the process.
    pub(super) idle_since: Option<Instant>,
    pub(super) recall: Arc<Notify>,
    /// The pool recalled the lease, or its holder is releasing it.
    pub(super) leaving: bool,
    pub(super) tenant: Tenant,
    pub(super) generation: u64,
    /// The configuration entry with which the process started.
    pub(super) spec: Arc<AgentSpec>,
    pub(super) held: Held,
    /// The agent can load or resume the session on another process.
    pub(super) can_load: bool,
}

impl Leased {
    /// Whether a full pool may reclaim the process. A session that cannot be loaded keeps it for a longer time.
    fn may_be_reclaimed(&self, now: Instant) -> bool {
        let keep = if self.can_load { Duration::ZERO } else { self.spec.pool.no_load_reclaim_timeout };
        !self.leaving && self.idle_since.is_some_and(|since| now >= since + keep)
    }

    fn recall(&mut self) {
        self.leaving = true;
        self.recall.notify_one();
    }
}

pub(super) struct AgentState {
    /// The current configuration entry. Processes of another entry stop when they are idle.
    pub(super) spec: Arc<AgentSpec>,
    /// False after the removal of the entry: the pool accepts no new requests.
    pub(super) configured: bool,
    /// Existing processes: starting, idle, leased and stopping.
    pub(super) live: usize,
    pub(super) starting: usize,
    pub(super) line: VecDeque<Waiter>,
    pub(super) spares: Vec<Spare>,
    pub(super) leases: HashMap<u64, Leased>,
    /// The sessions of processes that are being stopped.
    pub(super) ending: HashMap<u64, Held>,
    /// The sessions of processes that closed them and are checked before reuse.
    pub(super) returning: HashMap<u64, Held>,
    /// The agent keeps a session locked after `session/close` until the process ends: no process is reused.
    pub(super) keeps_sessions_locked: bool,
    /// Failed starts while a session or a call waited for a process.
    pub(super) crashes: Crashes,
    /// Failed starts and crashes of processes that no session had requested. They are no reason to refuse a request.
    pub(super) spare_crashes: Crashes,
    /// The time of the last request for a process.
    pub(super) wanted_at: Instant,
    pub(super) initialized: Option<Arc<InitializeResult>>,
    pub(super) signed_in: HashMap<Tenant, SignedIn>,
    pub(super) sign_ins: HashMap<Tenant, SignInPlace>,
}

/// The next step for the waiters of an agent.
pub(super) enum Step {
    Give(Spare, Waiter),
    Start { tenant: Tenant, offer: ClientCapabilities },
    Stop(Spare),
    Nothing,
}

impl AgentState {
    pub(super) fn new(spec: Arc<AgentSpec>) -> Self {
        Self {
            spec,
            configured: true,
            live: 0,
            starting: 0,
            line: VecDeque::new(),
            spares: Vec::new(),
            leases: HashMap::new(),
            ending: HashMap::new(),
            returning: HashMap::new(),
            keeps_sessions_locked: false,
            crashes: Crashes::default(),
            spare_crashes: Crashes::default(),
            wanted_at: Instant::now(),
            initialized: None,
            signed_in: HashMap::new(),
            sign_ins: HashMap::new(),
        }
    }

    /// The number of queued requests of this principal.
    pub(super) fn waiting_for(&self, principal: &Principal) -> usize {
        let of = |waiter: &&Waiter| {
            (&waiter.principal.tenant, &waiter.principal.id) == (&principal.tenant, &principal.id)
        };
        self.line.iter().filter(of).count()
    }

    pub(super) fn generation(&self, tenant: &Tenant) -> u64 {
        self.signed_in.get(tenant).map_or(0, |signed_in| signed_in.generation)
    }

    /// Replaces the configuration entry and resets all that was learned about the former one.
    pub(super) fn renew(&mut self, spec: Arc<AgentSpec>) {
        (self.spec, self.configured) = (spec, true);
        (self.crashes, self.spare_crashes) = (Crashes::default(), Crashes::default());
        (self.initialized, self.wanted_at) = (None, Instant::now());
        self.keeps_sessions_locked = false;
        for signed_in in self.signed_in.values_mut() {
            // The new program must not receive the sign-in of the former one.
            signed_in.renewed();
        }
        self.sign_ins.retain(|_, place| matches!(place, SignInPlace::Open));
        self.recall_outdated();
    }

    /// Removes the entry. Holders of a process finish their work, and waiters receive an error.
    pub(super) fn remove(&mut self) {
        self.renew(Arc::new(AgentSpec::gone(self.spec.name.clone())));
        self.configured = false;
        for waiter in self.line.drain(..) {
            // The waiter may have cancelled its request.
            drop(waiter.give.send(Err(AgentFailure::removed())));
        }
    }

    /// Recalls idle leases whose process belongs to another entry or to an earlier sign-in generation.
    pub(super) fn recall_outdated(&mut self) {
        let Self { spec, signed_in, leases, .. } = self;
        let outdated = |leased: &&mut Leased| {
            let generation = signed_in.get(&leased.tenant).map_or(0, |signed_in| signed_in.generation);
            leased.generation < generation || !Arc::ptr_eq(&leased.spec, spec)
        };
        for leased in leases.values_mut().filter(outdated) {
            if !leased.leaving && leased.idle_since.is_some() {
                leased.recall();
            }
        }
    }

    /// Whether the waiter has to wait for a process that has its session. That process is either being
    /// released, or keeps the session locked until it ends.
    fn is_blocked(&self, waiter: &Waiter) -> bool {
        let Some(wanted) = &waiter.wanted else { return false };
        let holds = |held: &Held| held.contains(&wanted.session);
        let has = |leased: &Leased| leased.leaving && leased.held.last() == Some(&*wanted.session);
        if self.returning.values().any(holds) || self.leases.values().any(has) {
            return true;
        }
        if !wanted.in_use && !self.keeps_sessions_locked {
            return false;
        }
        self.leases.values().any(|leased| holds(&leased.held))
            || self.ending.values().any(holds)
            || self.spares.iter().any(|spare| holds(&spare.held) && !spare.fits(waiter))
    }

    /// Recalls the idle leases whose processes lock the sessions of blocked waiters.
    fn recall_holders(&mut self) {
        let blocked = self.line.iter().filter(|waiter| waiter.pressing && self.is_blocked(waiter));
        let wanted: Vec<_> = blocked.filter_map(|waiter| waiter.wanted.clone()).collect();
        for leased in self.leases.values_mut().filter(|leased| !leased.leaving && leased.idle_since.is_some())
        {
            if wanted.iter().any(|wanted| leased.held.contains(&wanted.session)) {
                leased.recall();
            }
        }
    }

    /// An idle process that no waiter can use and that locks sessions which others may need.
    fn locking_spare(&self) -> Option<usize> {
        let blocks = |spare: &Spare| {
            self.line.iter().any(|w| self.is_blocked(w) && spare.held_session_of(w) && !spare.fits(w))
        };
        self.spares
            .iter()
            .position(|spare| (self.keeps_sessions_locked && !spare.held.is_empty()) || blocks(spare))
    }

    pub(super) fn step(&mut self, now: Instant, limits: &Limits) -> Step {
        self.line.retain(|waiter| !waiter.give.is_closed());
        let outdated = |spare: &Spare| {
            spare.generation < self.generation(&spare.tenant) || !Arc::ptr_eq(&spare.process.spec, &self.spec)
        };
        if let Some(dead) = self.spares.iter().position(|spare| spare.process.is_over() || outdated(spare)) {
            let dead = self.spares.swap_remove(dead);
            if dead.process.is_over() && dead.used_by.is_none() {
                self.spare_crashes.note(now, limits);
            }
            return Step::Stop(dead);
        }
        if let Some((at, spare)) = self.next_given() {
            let waiter = self.line.remove(at).expect("the position is in the queue");
            return Step::Give(self.spares.swap_remove(spare), waiter);
        }
        if let Some(spare) = self.locking_spare() {
            return Step::Stop(self.spares.swap_remove(spare));
        }
        self.recall_holders();
        let unblocked: Vec<&Waiter> = self.line.iter().filter(|waiter| !self.is_blocked(waiter)).collect();
        let wanted = unblocked.len();
        let pressing = unblocked.iter().filter(|waiter| waiter.pressing).count();
        let starting = self.starting + self.returning.len();
        if wanted > starting {
            if self.live < self.spec.pool.max {
                let next = unblocked[starting];
                return Step::Start { tenant: next.principal.tenant.clone(), offer: next.offer };
            }
            let coming = self.starting + self.stopping();
            if !self.spares.is_empty() && wanted > coming {
                // The idle processes match neither the principal nor the capabilities of the first waiter.
                return Step::Stop(self.spares.swap_remove(0));
            }
            self.recall(wanted.saturating_sub(coming).min(pressing), now);
            return Step::Nothing;
        }
        let spare = (self.warm_spares() + self.starting).saturating_sub(wanted);
        let lacking = spare < self.warm(now);
        let held_back = self.crashes.wait(now).or(self.spare_crashes.wait(now)).is_some();
        if lacking && !held_back && self.live < self.spec.pool.max {
            return Step::Start { tenant: Tenant::default(), offer: self.spec.offers() };
        }
        self.expired(now).map_or(Step::Nothing, Step::Stop)
    }

    /// The target number of unused idle processes. It is 0 after a long time without requests. It is also 0
    /// while the agent requires a sign-in, since a new process could only refuse.
    pub(super) fn warm(&self, now: Instant) -> usize {
        let signed_in = self.signed_in.get(&Tenant::default());
        let refuses = signed_in.is_some_and(|signed_in| signed_in.state == AuthState::Unauthenticated);
        let forgotten = now - self.wanted_at > self.spec.pool.warm_for;
        if refuses || forgotten { 0 } else { self.spec.pool.warm }
    }

    /// The number of idle processes that any principal can use.
    fn warm_spares(&self) -> usize {
        self.spares.iter().filter(|spare| self.is_warm(spare)).count()
    }

    fn is_warm(&self, spare: &Spare) -> bool {
        spare.used_by.is_none()
            && spare.tenant == Tenant::default()
            && spare.process.offer == self.spec.offers()
    }

    /// The next waiter and its idle process. A waiter is skipped only if a starting process will serve it.
    fn next_given(&self) -> Option<(usize, usize)> {
        let mut coming = self.starting + self.spec.pool.max.saturating_sub(self.live);
        for (at, waiter) in self.line.iter().enumerate() {
            if self.is_blocked(waiter) {
                continue;
            }
            // The process that held the session has it in memory, or keeps it locked.
            let held = |spare: &Spare| spare.held_session_of(waiter) && spare.fits(waiter);
            let fits =
                |spare: &Spare| spare.fits(waiter) && (!self.keeps_sessions_locked || spare.held.is_empty());
            let held = self.spares.iter().position(held);
            // Prefer a used process: any principal can use an unused one.
            let used = || self.spares.iter().position(|spare| spare.used_by.is_some() && fits(spare));
            if let Some(spare) = held.or_else(used).or_else(|| self.spares.iter().position(fits)) {
                return Some((at, spare));
            }
            coming = coming.checked_sub(1)?;
        }
        None
    }

    /// The number of processes that are not leased, idle or starting, and still exist.
    fn stopping(&self) -> usize {
        self.live.saturating_sub(self.leases.len() + self.spares.len() + self.starting)
    }

    /// Recalls the leases that have been idle the longest.
    fn recall(&mut self, wanted: usize, now: Instant) {
        let leaving = self.leases.values().filter(|leased| leased.leaving).count();
        let mut idle: Vec<_> =
            self.leases.values_mut().filter(|leased| leased.may_be_reclaimed(now)).collect();
        idle.sort_by_key(|leased| leased.idle_since);
        for leased in idle.into_iter().take(wanted.saturating_sub(leaving)) {
            leased.recall();
        }
    }

    fn expired(&mut self, now: Instant) -> Option<Spare> {
        let idle = self.spec.pool.idle;
        let surplus = self.warm_spares() > self.warm(now);
        let over = |spare: &Spare| now - spare.since > idle && (surplus || !self.is_warm(spare));
        let at = self.spares.iter().position(over)?;
        Some(self.spares.swap_remove(at))
    }
}
