//! The metrics that a scrape reads from the state of the gateway.

use std::sync::{Arc, Weak};

use strum::VariantArray as _;

use agents::pool::Pool;
use base::telemetry::metrics;
use events::api::ProcessState;
use log::eventlog::EventLog;
use sessions::task::Tasks;
use sessions::webhooks::Webhooks;
use wire::fleet::{Fleet, MemberState};

/// The owners of the state. The metrics of the process have weak references, because they outlive the store.
pub(super) struct Figures {
    pub(super) pool: Pool,
    pub(super) log: EventLog,
    pub(super) fleet: Fleet,
    pub(super) tasks: Tasks,
    pub(super) webhooks: Webhooks,
}

impl Figures {
    /// Registers the figures. Every one comes from memory, so that a scrape waits for no disk and no process.
    pub(super) fn register(self: &Arc<Self>) {
        let figures = || Arc::downgrade(self);
        let metrics = metrics();
        let of = figures();
        metrics.processes(move |observe| {
            with(&of, |figures| {
                for (agent, counts) in figures.pool.counts() {
                    for state in ProcessState::VARIANTS {
                        let count = counts.processes.get(state).copied();
                        observe(&agent, state.into(), count.unwrap_or_default());
                    }
                }
            });
        });
        let of = figures();
        metrics.pool_waiting(move |observe| {
            with(&of, |figures| {
                for (agent, counts) in figures.pool.counts() {
                    observe(&agent, counts.waiting);
                }
            });
        });
        let of = figures();
        metrics.sessions_stored(move |observe| {
            with(&of, |figures| observe(figures.log.session_count() as u64));
        });
        let of = figures();
        metrics.log_size(move |observe| with(&of, |figures| observe(figures.log.stored_bytes())));
        let of = figures();
        metrics
            .disk_free(move |observe| with(&of, |figures| observe(figures.log.free_disk_bytes())));
        let of = figures();
        metrics.webhook_pending(move |observe| {
            with(&of, |figures| {
                observe(figures.webhooks.pending_count() as u64);
            });
        });
        let of = figures();
        metrics.tasks(move |observe| {
            with(&of, |figures| {
                let (queued, running) = figures.tasks.counts();
                observe("queued", queued as u64);
                observe("running", running as u64);
            });
        });
        let of = figures();
        metrics.fleet_members(move |observe| {
            with(&of, |figures| {
                let members = figures.fleet.status();
                for (state, name) in [
                    (MemberState::Connected, "connected"),
                    (MemberState::Reconnecting, "reconnecting"),
                    (MemberState::Disconnected, "disconnected"),
                ] {
                    let count = members
                        .iter()
                        .filter(|member| member.state == state)
                        .count();
                    observe(name, count as u64);
                }
            });
        });
    }
}

fn with(figures: &Weak<Figures>, read: impl FnOnce(&Figures)) {
    if let Some(figures) = figures.upgrade() {
        read(&figures);
    }
}
