//! The pool with agents in memory.

use std::sync::{Arc, Mutex};

use super::*;
use crate::agent::memory::{self, MemoryAgent};
use crate::agent::{
    AgentFailure, AgentSpec, BoxFuture, Catalogue, FailedStart, IdleFolder, Process, ProcessKey,
    Terminal,
};
use crate::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{
    AgentName, AppliedIsolation, Ids, Isolation, Principal, PrincipalLimits, Scopes, Tenant, UserId,
};
use children::PtySize;
use wire::acp::ClientCapabilities;
use wire::acp::auth::{AuthState, TerminalAuth};

/// Connects to agents in memory, and keeps the agents' ends.
#[derive(Clone, Default)]
struct MemorySource(Arc<Mutex<Vec<(ProcessKey, MemoryAgent)>>>);

impl std::fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemorySource")
    }
}

impl AgentSource for MemorySource {
    fn isolation(&self, _: &AgentSpec) -> Option<AppliedIsolation> {
        None
    }

    fn create_idle_folder<'a>(
        &'a self,
        _: &'a AgentSpec,
        _: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>> {
        Box::pin(std::future::ready(None))
    }

    fn connect<'a>(
        &'a self,
        spec: &'a Arc<AgentSpec>,
        key: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        Box::pin(async move {
            let (process, agent) = memory::connect(spec, key).await;
            lock_or_abort(self.0.lock()).push((key.clone(), agent));
            Ok(process)
        })
    }

    fn sign_in<'a>(
        &'a self,
        _spec: &'a Arc<AgentSpec>,
        _tenant: &'a Tenant,
        _method: &'a TerminalAuth,
        _size: PtySize,
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>> {
        Box::pin(async {
            Err(AgentFailure::Unsupported {
                method: "terminal".to_owned(),
            })
        })
    }
}

impl MemorySource {
    /// The keys of the connections so far.
    fn keys(&self) -> Vec<ProcessKey> {
        lock_or_abort(self.0.lock())
            .iter()
            .map(|(key, _)| key.clone())
            .collect()
    }
}

fn name() -> AgentName {
    "a".parse().unwrap()
}

fn principal(tenant: &str, id: &str) -> Principal {
    Principal {
        user: UserId::new(&Tenant::new(tenant), id),
        scopes: Scopes::default(),
        folders: base::types::GrantedFolders::default(),
        is_local: false,
    }
}

fn pool(max_size: usize) -> (Pool, MemorySource, Arc<AgentSpec>) {
    let mut spec = AgentSpec::removed(name());
    spec.settings.pool.max_size = max_size;
    spec.settings.isolation = Isolation::Off;
    let catalogue = Catalogue::new([spec]);
    let spec = Arc::clone(catalogue.agent(&name()).unwrap());
    let source = MemorySource::default();
    let limits = Arc::new(Limits::default());
    let shutdown = Shutdown::new();
    let principals = PrincipalLimits::default();
    (
        Pool::new(&catalogue, source.clone(), limits, principals, &shutdown),
        source,
        spec,
    )
}

fn enqueue(pool: &Pool, by: &Principal, files: bool) -> PendingLease {
    let offer = ClientCapabilities {
        files,
        ..ClientCapabilities::default()
    };
    pool.enqueue(
        &name(),
        by,
        offer,
        vec!["/work".into()],
        Priority::Reclaim,
        None,
    )
    .unwrap()
}

async fn lease(pool: &Pool, by: &Principal, files: bool) -> Lease {
    enqueue(pool, by, files).lease().await.unwrap()
}

fn live(pool: &Pool, by: &Principal) -> usize {
    pool.agent_stats(&name(), &by.user.tenant()).unwrap().0.live
}

#[tokio::test]
async fn idle_process_serves_only_requests_with_its_key_and_principal() {
    let (pool, source, _) = pool(9);
    let alice = principal("default", "alice");
    let bob = principal("default", "bob");
    lease(&pool, &alice, false)
        .await
        .release(Disposition::Reuse);
    lease(&pool, &alice, false)
        .await
        .release(Disposition::Reuse);
    assert_eq!(source.keys().len(), 1);
    let _files = lease(&pool, &alice, true).await;
    let _bob = lease(&pool, &bob, false).await;
    let keys = source.keys();
    assert_eq!(keys.len(), 3);
    assert!(keys[1].client_capabilities.files && keys[0] == keys[2]);
    assert!(
        keys[0].folders.is_empty(),
        "a process without isolation has access to every folder"
    );
}

#[tokio::test]
async fn tenants_share_no_pool() {
    let (pool, source, spec) = pool(1);
    let ours = principal("default", "alice");
    let theirs = principal("other", "alice");
    let held = lease(&pool, &ours, false).await;
    held.record_auth(true);
    assert_eq!((live(&pool, &ours), live(&pool, &theirs)), (1, 0));
    // The pool of the other tenant is not full, and its agent needs no sign-in.
    let other = lease(&pool, &theirs, false).await;
    assert_eq!(
        pool.auth_state(&name(), &ours.user.tenant()),
        AuthState::Unauthenticated
    );
    assert_eq!(
        pool.auth_state(&name(), &theirs.user.tenant()),
        AuthState::Unknown
    );
    other.release(Disposition::Untouched);
    let mut waiting = enqueue(&pool, &ours, false);
    tokio::select! {
        biased;
        _ = waiting.lease() => panic!("the process of another tenant was leased"),
        () = tokio::task::yield_now() => {}
    }
    let tenants: Vec<Tenant> = source.keys().into_iter().map(|key| key.tenant).collect();
    assert_eq!(tenants, [ours.user.tenant(), theirs.user.tenant()]);

    let id = Ids::system().uuid();
    pool.offer_sign_in(&spec, &ours.user.tenant(), id, TerminalAuth::default())
        .unwrap();
    assert!(pool.offers_sign_in(&name(), &ours.user.tenant(), id));
    assert!(!pool.offers_sign_in(&name(), &theirs.user.tenant(), id));
}

#[tokio::test]
async fn dropped_request_does_not_lose_a_granted_process() {
    let (pool, source, _) = pool(1);
    let alice = principal("default", "alice");
    let pending = enqueue(&pool, &alice, false);
    while pool
        .agent_stats(&name(), &alice.user.tenant())
        .unwrap()
        .0
        .leased
        == 0
    {
        tokio::task::yield_now().await;
    }
    drop(pending);
    let agent = source.0.lock().unwrap().pop().unwrap().1;
    // The pool stops the process.
    while !agent.is_closing() {
        tokio::task::yield_now().await;
    }
    drop(agent);
    lease(&pool, &alice, false).await;
}
