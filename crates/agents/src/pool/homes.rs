//! Serializes first starts in one HOME.
//!
//! Some agents set up their HOME when they start there for the first time, and fail if two processes do so at once.
//! Until one start in a HOME has succeeded, only one start runs there at a time. After that, each agent that has not
//! started in this HOME yet still starts one process at a time there.
//!
//! The key is the path, so that agents with `home = "user"` share it. A lock file would also cover other programs,
//! but it survives a killed gateway and is in the home of the user. A start that timed out is not retried.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::agent::{AgentFailure, AgentSpec};
use base::shutdown::lock_or_abort;
use base::types::{AgentName, Tenant};

#[derive(Debug, Default)]
pub(super) struct Homes {
    homes: Mutex<HashMap<PathBuf, HomeState>>,
    /// A start has ended or failed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct HomeState {
    succeeded: HashSet<AgentName>,
    running: Vec<Running>,
    started: u64,
    /// How many first starts have failed, and the last of them.
    failures: u64,
    failed: Option<(Arc<AgentSpec>, AgentFailure)>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    agent: AgentName,
    /// No other start may run in this HOME at the same time.
    exclusive: bool,
    /// Another start ran in this HOME at the same time.
    overlapped: bool,
}

/// Permission to start a process in a HOME. Dropping it ends the start.
#[derive(Debug)]
pub(super) struct HomePermit {
    homes: Arc<Homes>,
    home: PathBuf,
    spec: Arc<AgentSpec>,
    id: u64,
}

impl HomeState {
    fn must_wait(&self, agent: &AgentName, exclusive: bool) -> bool {
        if exclusive
            || self.succeeded.is_empty()
            || self.running.iter().any(|start| start.exclusive)
        {
            !self.running.is_empty()
        } else {
            !self.succeeded.contains(agent)
                && self.running.iter().any(|start| start.agent == *agent)
        }
    }
}

impl Homes {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, HomeState>> {
        lock_or_abort(self.homes.lock())
    }

    /// Waits until a process of this agent may start in its HOME. With `exclusive`, no other start runs there.
    ///
    /// Fails if the first start of the same entry fails during the wait. A start of the same program in the
    /// same HOME would fail in the same way, after the same time.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        exclusive: bool,
    ) -> Result<HomePermit, AgentFailure> {
        let home = spec.home_of(tenant);
        let failures = self.lock().entry(home.clone()).or_default().failures;
        loop {
            // Created before the check, so that no change between check and wait is missed.
            let changed = self.changed.notified();
            if let Some(outcome) = self.try_acquire(&home, spec, exclusive, failures) {
                return outcome;
            }
            changed.await;
        }
    }

    /// Returns `None` while another start must end first. `failures`: the number of failed first starts in this HOME
    /// when the wait began.
    fn try_acquire(
        self: &Arc<Self>,
        home: &Path,
        spec: &Arc<AgentSpec>,
        exclusive: bool,
        failures: u64,
    ) -> Option<Result<HomePermit, AgentFailure>> {
        let mut homes = self.lock();
        let state = homes.get_mut(home)?;
        if let Some((failed, failure)) = &state.failed
            && state.failures > failures
            && Arc::ptr_eq(failed, spec)
        {
            return Some(Err(failure.clone()));
        }
        if state.must_wait(&spec.name, exclusive) {
            return None;
        }
        state.started += 1;
        let id = state.started;
        let overlapped = !state.running.is_empty();
        for start in &mut state.running {
            start.overlapped = true;
        }
        state.running.push(Running {
            id,
            agent: spec.name.clone(),
            exclusive,
            overlapped,
        });
        Some(Ok(HomePermit {
            homes: Arc::clone(self),
            home: home.to_owned(),
            spec: Arc::clone(spec),
            id,
        }))
    }
}

impl HomePermit {
    fn update(&self, update: impl FnOnce(&mut HomeState)) {
        update(self.homes.lock().entry(self.home.clone()).or_default());
        self.homes.changed.notify_waiters();
    }

    pub(super) fn overlapped(&self) -> bool {
        let homes = self.homes.lock();
        homes.get(&self.home).is_some_and(|state| {
            let mut running = state.running.iter();
            running.any(|start| start.id == self.id && start.overlapped)
        })
    }

    pub(super) fn succeeded(self) {
        self.update(|state| {
            state.succeeded.insert(self.spec.name.clone());
            state.failed = None;
        });
    }

    /// Reports the failure to the starts that wait for this one, unless the failure concerns one session only. Dropping
    /// this value ends the start.
    pub(super) fn failed(&self, failure: &AgentFailure) {
        if failure.is_of_session() {
            return self.homes.changed.notify_waiters();
        }
        self.update(|state| {
            if !state.succeeded.contains(&self.spec.name) {
                state.failures += 1;
                state.failed = Some((Arc::clone(&self.spec), failure.clone()));
            }
        });
    }

    /// Ends this start before the drop, so that other starts may run.
    pub(super) fn release(&self) {
        self.update(|state| state.running.retain(|start| start.id != self.id));
    }
}

impl Drop for HomePermit {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::agent::Home;

    fn agent(name: &str, home: &str) -> Arc<AgentSpec> {
        let name = name.parse().expect("a name");
        Arc::new(AgentSpec {
            home: Home::User(home.into()),
            ..AgentSpec::removed(name)
        })
    }

    async fn try_acquire_permit(
        homes: &Arc<Homes>,
        spec: &Arc<AgentSpec>,
        exclusive: bool,
    ) -> Option<HomePermit> {
        tokio::time::timeout(
            Duration::from_millis(1),
            homes.acquire(spec, &Tenant::default(), exclusive),
        )
        .await
        .ok()?
        .ok()
    }

    #[tokio::test(start_paused = true)]
    async fn starts_overlap_only_after_a_start_of_the_agent_has_succeeded() {
        let homes = Arc::new(Homes::default());
        let one = agent("one", "/a");
        let two = agent("two", "/a");
        let other = agent("one", "/b");
        let first = try_acquire_permit(&homes, &one, false)
            .await
            .expect("nothing else runs");
        assert!(
            try_acquire_permit(&homes, &one, false).await.is_none(),
            "the first start runs"
        );
        assert!(
            try_acquire_permit(&homes, &two, false).await.is_none(),
            "of another agent, in the same HOME"
        );
        assert!(
            try_acquire_permit(&homes, &other, false).await.is_some(),
            "another HOME"
        );
        assert!(!first.overlapped());
        first.succeeded();
        let again = try_acquire_permit(&homes, &one, false)
            .await
            .expect("the agent has started here");
        let second = try_acquire_permit(&homes, &two, false)
            .await
            .expect("the HOME is set up");
        assert!(again.overlapped() && second.overlapped());
        assert!(
            try_acquire_permit(&homes, &two, false).await.is_none(),
            "the first start of this agent runs"
        );
        assert!(
            try_acquire_permit(&homes, &one, true).await.is_none(),
            "others run"
        );
        drop((again, second));
        let alone = try_acquire_permit(&homes, &one, true)
            .await
            .expect("nothing else runs");
        assert!(
            try_acquire_permit(&homes, &one, false).await.is_none(),
            "a start runs alone"
        );
        assert!(!alone.overlapped());
    }

    #[tokio::test]
    async fn failed_first_start_fails_only_starts_that_waited_for_it() {
        let homes = Arc::new(Homes::default());
        let one = agent("one", "/a");
        let two = agent("two", "/a");
        let first = homes
            .acquire(&one, &Tenant::default(), false)
            .await
            .expect("nothing else runs");
        let fails = async {
            first.failed(&AgentFailure::Start {
                detail: "no".to_owned(),
            });
            drop(first);
        };
        let tenant = Tenant::default();
        let (same, other, ()) = tokio::join!(biased; homes.acquire(&one, &tenant, false), async { homes.acquire(&two, &tenant, false).await.map(drop) }, fails);
        assert!(matches!(same, Err(AgentFailure::Start { .. })), "{same:?}");
        assert!(other.is_ok(), "another agent does not share the failure");
        assert!(
            homes.acquire(&one, &Tenant::default(), false).await.is_ok(),
            "it did not wait for the failed one"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn starts_of_two_tenants_do_not_wait_for_each_other() {
        let homes = Arc::new(Homes::default());
        let spec = AgentSpec {
            home: Home::Dedicated("/homes".into()),
            ..AgentSpec::clone(&agent("one", ""))
        };
        let spec = Arc::new(spec);
        let _first = try_acquire_permit(&homes, &spec, false)
            .await
            .expect("nothing else runs");
        assert!(try_acquire_permit(&homes, &spec, false).await.is_none());
        assert!(
            homes
                .acquire(&spec, &Tenant::new("other"), false)
                .await
                .is_ok()
        );
    }
}
