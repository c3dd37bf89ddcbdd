//! Starts of processes for the pool: after the back-off, and in their order within one HOME.

use std::sync::Arc;

use tokio::time::Instant;

use super::line::Pool;
use super::state::Spare;
use crate::acp::ClientCapabilities;
use crate::agent::{AgentFailure, AgentSpec, Process};
use crate::types::{AgentName, Tenant};

/// A start that did not lead to a process.
struct FailedStart {
    failure: AgentFailure,
    /// False if the start waited for another one, and failed with it: that is one failure of the agent, not two.
    was_started: bool,
}

impl From<AgentFailure> for FailedStart {
    fn from(failure: AgentFailure) -> Self {
        Self { failure, was_started: true }
    }
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
        // Dropping a start stops what it has started.
        let outcome = tokio::select! {
            biased;
            () = self.shutdown().soft() => Err(AgentFailure::Draining.into()),
            outcome = start => outcome,
        };
        {
            let mut state = self.state();
            let agent = state.agents.get_mut(&name).expect("agents stay in the pool");
            agent.starting -= 1;
            let current = Arc::ptr_eq(&agent.spec, &spec);
            match outcome {
                Ok((process, generation)) => {
                    if current {
                        agent.initialized = Some(Arc::clone(&process.initialized));
                    }
                    let since = Instant::now();
                    agent.spares.push(Spare { process, tenant, used_by: None, generation, since });
                }
                Err(FailedStart { failure: AgentFailure::Draining, .. }) => agent.live -= 1,
                // Its entry is another one by now, which may do better.
                Err(_) if !current => agent.live -= 1,
                Err(FailedStart { failure, was_started }) => {
                    agent.live -= 1;
                    agent.line.retain(|waiter| !waiter.give.is_closed());
                    let waiter = agent.line.pop_front();
                    if was_started {
                        tracing::warn!(agent = %name, %failure, "an agent did not start");
                        let (now, limits) = (Instant::now(), self.limits());
                        let crashes =
                            if waiter.is_some() { &mut agent.crashes } else { &mut agent.spare_crashes };
                        crashes.note(now, limits);
                    }
                    if let Some(waiter) = waiter {
                        // A waiter that left the line needs no reason.
                        drop(waiter.give.send(Err(failure)));
                    }
                }
            }
        }
        self.advance(&name);
    }

    /// Starts a process when its HOME is free for it. A start that fails beside another one in the same HOME is
    /// retried once, alone: agents that set up the same files at once break each other.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        offer: ClientCapabilities,
    ) -> Result<(Process, u64), FailedStart> {
        let mut start = match self.homes().enter(spec, false).await {
            Ok(start) => start,
            Err(failure) => return Err(FailedStart { failure, was_started: false }),
        };
        let mut outcome = self.start_once(spec, tenant, offer).await;
        if let Err(failure @ (AgentFailure::Exited(_) | AgentFailure::Rpc(_))) = &outcome
            && start.overlapped()
        {
            tracing::info!(agent = %spec.name, %failure, "retrying a start that failed beside another one in its HOME");
            drop(start);
            let alone = tokio::time::timeout(spec.limits.start, self.homes().enter(spec, true)).await;
            let Ok(Ok(alone)) = alone else { return Ok(outcome?) };
            start = alone;
            outcome = self.start_once(spec, tenant, offer).await;
        }
        match &outcome {
            Ok(_) => start.succeeded(),
            Err(failure) => start.failed(failure),
        }
        Ok(outcome?)
    }

    /// The process, and the generation of the sign-in that it knows of.
    async fn start_once(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        offer: ClientCapabilities,
    ) -> Result<(Process, u64), AgentFailure> {
        let (signed_in, current) = self.signed_in_to(spec, tenant);
        if !current {
            return Err(AgentFailure::removed());
        }
        let generation = signed_in.generation;
        let process = self.launch_signed_in(spec, offer, (tenant, signed_in)).await?;
        Ok((process, generation))
    }
}
