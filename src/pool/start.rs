//! Starts of agent processes: after the back-off, and serialized within one HOME.

use std::sync::Arc;

use tokio::time::Instant;

use super::homes::HomePermit;
use super::scheduler::Pool;
use super::session_history::SessionHistory;
use super::state::{IdleProcess, PoolKey, Start};
use crate::agent::{AgentFailure, AgentSpec, FailedStart, Process, ProcessKey};

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
            (
                Arc::clone(&agent.spec),
                agent.learned.crashes.remaining_backoff(Instant::now()),
            )
        };
        let start = async {
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
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
                process.id = id;
                let mut state = self.state();
                let agent = state.existing(&pool);
                agent.starting -= 1;
                agent.processes.connected(id, &process.connection);
                if Arc::ptr_eq(&agent.spec, &spec) {
                    agent.learned.initialized = Some(Arc::clone(&process.initialized));
                    agent.learned.start_error = None;
                    agent.learned.start_is_fixed = false;
                }
                let (idle_since, history) = (Instant::now(), SessionHistory::default());
                agent.idle.push(IdleProcess {
                    process,
                    used_by: None,
                    generation,
                    idle_since,
                    history,
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
                agent.processes.end(id);
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
        let of_session = failure.is_of_session();
        let mut is_known = false;
        let waiter = if of_session {
            let at = agent.queue.iter().position(|waiter| waiter.key == *key);
            at.and_then(|at| agent.queue.remove(at))
        } else {
            agent.queue.pop_front()
        };
        if of_session {
            tracing::warn!(agent = %spec.name, %failure, "could not start the agent for a session");
        } else {
            let error: Arc<str> = failure.with_output(ERROR_BYTES).into();
            is_known = agent.learned.start_error.as_ref() == Some(&error);
            agent.learned.start_error = Some(error);
            agent.learned.start_is_fixed = failure.is_fixed();
        }
        if !of_session && failed.permit.is_some() {
            let failure = failure.with_output(ERROR_BYTES);
            if is_known && waiter.is_none() {
                tracing::debug!(agent = %spec.name, failure, "could not start the agent again");
            } else {
                tracing::warn!(agent = %spec.name, failure, "could not start the agent");
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
            drop(waiter.reply.send(Err(failure.clone())));
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
            tracing::info!(agent = %spec.name, %failure, "retrying a failed start alone: another start ran in the same HOME");
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
