//! The dependencies of the actors, and the state that they share.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::baselines::Baselines;
use super::journal::Quotas;
use agents::agent::CurrentCatalogue;
use agents::pool::Pool;
use base::shutdown::Shutdown;
use base::types::{Ids, KeyedCounts, KeyedGuard, Limits, Tenant};
use log::audit::Audit;
use log::eventlog::EventLog;
use workspace::{ScrollbackBudget, Workspaces};

/// Checks whether a principal still has a key that allows prompts.
#[derive(Clone)]
pub struct MayPrompt(Arc<PromptCheck>);

type PromptCheck = dyn Fn(&Tenant, &str) -> bool + Send + Sync;

impl MayPrompt {
    /// `holds` receives the tenant and the id of the principal. It must not block.
    pub fn new(holds: impl Fn(&Tenant, &str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    pub fn allows(&self, tenant: &Tenant, id: &str) -> bool {
        (self.0)(tenant, id)
    }
}

impl fmt::Debug for MayPrompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayPrompt")
    }
}

#[derive(Debug, Clone)]
pub struct Context {
    pub log: EventLog,
    pub audit: Audit,
    pub pool: Pool,
    pub catalogue: CurrentCatalogue,
    pub workspaces: Workspaces,
    pub baselines: Baselines,
    pub ids: Ids,
    pub limits: Arc<Limits>,
    pub shutdown: Shutdown,
    /// Checked before a restored prompt runs.
    pub may_prompt: MayPrompt,
    pub(super) bounds: SharedBounds,
}

#[derive(Debug, Clone)]
pub(super) struct SharedBounds {
    /// The sessions of each principal that have or await a process.
    pub(super) live: KeyedCounts<Arc<str>>,
    pub(super) quotas: Quotas,
    /// The idempotency keys whose first request is in flight.
    pub(super) keys_in_flight: KeyedCounts<Vec<u8>>,
    /// Permits one `session/delete` at a time.
    pub(super) upstream_deletes: Arc<Semaphore>,
    pub(super) scrollback_budget: ScrollbackBudget,
}

impl Context {
    pub fn new(
        (log, audit): (EventLog, Audit),
        pool: Pool,
        catalogue: CurrentCatalogue,
        (workspaces, baselines): (Workspaces, Baselines),
        may_prompt: MayPrompt,
        (ids, limits, shutdown): (Ids, Arc<Limits>, Shutdown),
    ) -> Self {
        Self {
            bounds: SharedBounds {
                live: KeyedCounts::default(),
                quotas: Quotas::default(),
                keys_in_flight: KeyedCounts::default(),
                upstream_deletes: Arc::new(Semaphore::new(1)),
                scrollback_budget: ScrollbackBudget::new(limits.max_total_terminal_bytes),
            },
            log,
            audit,
            pool,
            catalogue,
            workspaces,
            baselines,
            ids,
            limits,
            shutdown,
            may_prompt,
        }
    }
}

/// Counts one session that has or awaits a process until it is dropped.
pub(super) type LiveGuard = KeyedGuard<Arc<str>>;
