//! Starts of agent processes: after the back-off, and serialized within one HOME.

use std::sync::Arc;

use tokio::time::Instant;

use super::held::Held;
use super::homes::HomeStart;
use super::line::Pool;
use super::state::Spare;
use crate::acp::ClientCapabilities;
use crate::agent::{AgentFailure, AgentSpec, FailedStart, Process};
use crate::types::{AgentName, Tenant};

/// A start without a usable process.
struct Failed {
    start: FailedStart,
    /// `None` if the start waited for another one and failed with it. The agent has then failed once, not twice.
    home: Option<HomeStart>,
}

impl Pool {
    pub(super) async fn launch(&self, name: AgentName, tenant: Tenant, offer: ClientCapabilities) {
        let (spec, wait) = {
            let state = self.state();
            let agent = &state.agents[&name];
            (Arc::clone(&agent.spec), agent.crashes.wait(Instant::now()))
        };
        let start = async {
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
            self.start(&spec, &tenant, offer).await
        };
        // Dropping a start stops its process.
        let outcome = tokio::select! {
            biased;
            () = self.shutdown().soft() => Err(Failed { start: AgentFailure::Draining.into(), home: None }),
            outcome = start => outcome,
        };
        let failed = match outcome {
            Ok((process, generation)) => {
                let mut state = self.state();
                let agent = state.agents.get_mut(&name).expect("agents stay in the pool");
                agent.starting -= 1;
                if Arc::ptr_eq(&agent.spec, &spec) {
                    agent.initialized = Some(Arc::clone(&process.initialized));
                }
                let since = Instant::now();
                let held = Held::default();
                agent.spares.push(Spare { process, tenant, used_by: None, generation, since, held });
                None
            }
            Err(failed) => {
                self.report(&spec, &failed);
                Some(failed)
            }
        };
        self.advance(&name);
        if let Some(Failed { start, home }) = failed {
            // The process counts as live, and occupies its HOME, until it has ended.
            start.stopped().await;
            drop(home);
            self.state().agents.get_mut(&name).expect("agents stay in the pool").live -= 1;
            self.advance(&name);
        }
    }

    /// Reports a failed start to the first waiter of the agent. Does not wait for the end of the process.
    fn report(&self, spec: &Arc<AgentSpec>, failed: &Failed) {
        let mut state = self.state();
        let agent = state.agents.get_mut(&spec.name).expect("agents stay in the pool");
        agent.starting -= 1;
        let failure = &failed.start.failure;
        // The failure says nothing about a new entry.
        if matches!(failure, AgentFailure::Draining) || !Arc::ptr_eq(&agent.spec, spec) {
            return;
        }
        agent.line.retain(|waiter| !waiter.give.is_closed());
        let waiter = agent.line.pop_front();
        if failed.home.is_some() {
            tracing::warn!(agent = %spec.name, %failure, "could not start the agent");
            let crashes = if waiter.is_some() { &mut agent.crashes } else { &mut agent.spare_crashes };
            crashes.note(Instant::now(), self.limits());
        }
        if let Some(waiter) = waiter {
            // The waiter may have cancelled its request.
            drop(waiter.give.send(Err(failure.clone())));
        }
    }

    /// Starts a process when its HOME is available. Agents that set up the same files at the same time break each
    /// other. Therefore a start that fails while another one runs in the same HOME is retried once, exclusively.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        offer: ClientCapabilities,
    ) -> Result<(Process, u64), Failed> {
        let mut home = match self.homes().enter(spec, false).await {
            Ok(home) => home,
            Err(failure) => return Err(Failed { start: failure.into(), home: None }),
        };
        let mut outcome = self.start_once(spec, tenant, offer).await;
        if let Err(failed) = &outcome
            && let failure @ (AgentFailure::Exited(_) | AgentFailure::Rpc(_)) = &failed.failure
            && home.overlapped()
        {
            tracing::info!(agent = %spec.name, %failure, "retrying a failed start alone: another start ran in the same HOME");
            home.leave();
            let alone = tokio::time::timeout(spec.limits.start, self.homes().enter(spec, true)).await;
            if let Ok(Ok(alone)) = alone {
                home = alone;
                if let Err(failed) = outcome {
                    failed.stopped().await;
                }
                outcome = self.start_once(spec, tenant, offer).await;
            }
        }
        match outcome {
            Ok(started) => {
                home.succeeded();
                Ok(started)
            }
            Err(start) => {
                home.failed(&start.failure);
                Err(Failed { start, home: Some(home) })
            }
        }
    }

    /// Starts a process. Returns it with the generation of its sign-in.
    async fn start_once(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        offer: ClientCapabilities,
    ) -> Result<(Process, u64), FailedStart> {
        let (signed_in, current) = self.signed_in_to(spec, tenant);
        if !current {
            return Err(AgentFailure::removed().into());
        }
        let generation = signed_in.generation;
        let process = self.launch_signed_in(spec, offer, (tenant, signed_in)).await?;
        Ok((process, generation))
    }
}
