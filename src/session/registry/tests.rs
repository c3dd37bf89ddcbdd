use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use serde_json::value::RawValue;

use super::*;
use crate::agent::{AgentSpec, Catalogue, CurrentCatalogue, Launcher};
use crate::api::{self, PromptStatus, SessionState};
use crate::audit::{Audit, CountedEvents};
use crate::eventlog::EventLog;
use crate::pool::Pool;
use crate::session::actor::Actor;
use crate::session::error::PromptError;
use crate::session::origin::Origin;
use crate::session::record::SessionRecord;
use crate::session::{Baselines, MayPrompt, PromptRequest};
use crate::shutdown::Shutdown;
use crate::store::MemoryStore;
use crate::types::{Ids, Limits, PrincipalLimits, PromptId, Scope, Tenant};
use crate::workspace::Workspaces;

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what)
        .await
        .expect("the future completes within 20 seconds")
}

fn prompt(queue: bool) -> PromptRequest {
    let blocks = RawValue::from_string(r#"[{"type":"text","text":"hello"}]"#.to_owned()).unwrap();
    let (attachments, acp_request, serving) = (Vec::new(), None, None);
    PromptRequest {
        blocks,
        attachments,
        queue,
        key: None,
        trace: None,
        acp_request,
        broadcast: None,
        serving,
    }
}

/// A session whose turns wait for a process forever. It already has `last_prompt` turns.
fn record(
    id: SessionId,
    by: &Principal,
    now: crate::types::Timestamp,
    last_prompt: u32,
) -> SessionRecord {
    SessionRecord {
        session_id: id,
        tenant: by.tenant.as_str().to_owned(),
        owner: by.id.to_string(),
        agent: "a".parse().unwrap(),
        title: None,
        metadata: Map::new(),
        cwd: "/".to_owned(),
        remote_folders: false,
        own_folder: false,
        shared_folder: false,
        folder_of: None,
        additional_directories: Vec::new(),
        granted_folders: crate::types::GrantedFolders::default(),
        mcp_servers: Vec::new(),
        meta: None,
        policy: api::SessionPolicy::default(),
        state: SessionState::Idle,
        attached: false,
        isolation: None,
        agent_session_id: Some("theirs".to_owned()),
        created_at: now,
        updated_at: now,
        last_activity_at: now,
        last_outcome: None,
        last_prompt,
        last_request: 0,
        open_requests: Vec::new(),
        last_terminal: 0,
        open_terminals: Vec::new(),
        prompt_id: None,
        queued: Vec::new(),
        prompt_capabilities: None,
        models: false,
        unfinished: false,
        inherits_history: false,
        called: false,
        channel: None,
        task: None,
        load_not_before: None,
        restore_failures: 0,
        discards_context: false,
        seq: 0,
    }
}

/// Sessions without programs.
struct Rig {
    registry: SessionRegistry,
    log: EventLog,
    ids: Ids,
    folder: tempfile::TempDir,
    _catalogues: tokio::sync::watch::Sender<Arc<Catalogue>>,
}

async fn rig() -> Rig {
    let (shutdown, ids, limits) = (Shutdown::new(), Ids::system(), Arc::new(Limits::default()));
    let store = Arc::new(MemoryStore::new(ids.clone()));
    let fatal = Box::new(|why: &str| panic!("fatal: {why}"));
    let log = EventLog::start(
        store,
        ids.clone(),
        Arc::clone(&limits),
        shutdown.clone(),
        fatal,
    )
    .unwrap();
    let counted = CountedEvents::default();
    let audit = Audit::open(log.clone(), counted, ids.clone(), Arc::clone(&limits))
        .await
        .unwrap();
    let catalogue = Arc::new(Catalogue::new([AgentSpec::removed("a".parse().unwrap())]));
    let launcher = Launcher::without_programs(&limits, &shutdown, &audit);
    let pool = Pool::new(
        &catalogue,
        launcher,
        (Arc::clone(&limits), PrincipalLimits::new(&limits)),
        &shutdown,
    );
    let folder = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(folder.path(), &[]).unwrap();
    let (catalogues, catalogue) = CurrentCatalogue::new(catalogue);
    let parts = (ids.clone(), limits, shutdown);
    let may_prompt = MayPrompt::new(|_, _| true);
    let folders = (workspaces, Baselines::new(folder.path().join("changes")));
    let context = Context::new(
        (log.clone(), audit),
        pool,
        catalogue,
        folders,
        may_prompt,
        parts,
    );
    let registry = SessionRegistry::start(context).await.unwrap();
    Rig {
        registry,
        log,
        ids,
        folder,
        _catalogues: catalogues,
    }
}

fn principal(tenant: Tenant) -> Principal {
    Principal {
        id: "alice".into(),
        tenant,
        scopes: Scope::ALL.into_iter().collect(),
        folders: crate::types::GrantedFolders::default(),
    }
}

#[tokio::test]
async fn client_of_another_tenant_does_not_load_a_session() {
    let Rig {
        registry, log, ids, ..
    } = &rig().await;
    let (owner, stranger) = (
        principal(Tenant::default()),
        principal(Tenant::new("other")),
    );
    let id = ids.session();
    // Loading closes the process that a crash left open.
    let record = SessionRecord {
        attached: true,
        ..record(id, &owner, ids.now(), 0)
    };
    let mut records = crate::eventlog::Records::default();
    record.put(None, &mut records);
    log.write(records).await.unwrap();
    let session_log = log.session(&owner.tenant, id).await.unwrap();
    let opened = in_time(registry.open(&stranger, id)).await;
    assert!(
        matches!(opened, Err(SessionError::NoSuchSession)),
        "{opened:?}"
    );
    assert_eq!(session_log.appended(), 0, "nothing was loaded");
    in_time(registry.open(&owner, id)).await.unwrap();
    assert_eq!(session_log.appended(), 1, "the owner loads it");
    let opened = in_time(registry.open(&stranger, id)).await;
    assert!(
        matches!(opened, Err(SessionError::NoSuchSession)),
        "{opened:?}"
    );
}

#[tokio::test]
async fn panicked_actor_fails_its_turn_and_restarts() {
    let Rig {
        registry,
        log,
        ids,
        folder,
        ..
    } = &rig().await;
    let by = principal(Tenant::default());
    let id = ids.session();
    let session_log = log.session(&by.tenant, id).await.unwrap();
    // The next turn number overflows and panics, because tests are built with overflow checks.
    let cwd = folder
        .path()
        .canonicalize()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let record = SessionRecord {
        cwd,
        ..record(id, &by, ids.now(), u32::MAX - 1)
    };
    let (actor, slot) = Actor::new(registry.context(), session_log.clone(), record, Origin::New);
    registry.entries.install(actor, slot);

    let session = registry.open(&by, id).await.unwrap();
    let first = in_time(session.prompt(&by, prompt(false), || Ok(())))
        .await
        .unwrap();
    assert_eq!(first.prompt.prompt_id, PromptId::new(u32::MAX));
    let waits = session.clone();
    let waiting = async move {
        waits
            .wait_ended(PromptId::new(u32::MAX), Duration::from_mins(1))
            .await
    };
    let (ended, rejected) = in_time(Box::pin(async {
        tokio::join!(waiting, session.prompt(&by, prompt(true), || Ok(())))
    }))
    .await;
    assert!(
        matches!(rejected, Err(PromptError::Session(SessionError::Internal))),
        "{rejected:?}"
    );
    let ended = ended.unwrap().expect("the turn has ended");
    let problem: api::Problem = serde_json::from_str(ended.error.unwrap().get()).unwrap();
    assert_eq!(
        (ended.status, problem.code),
        (PromptStatus::Failed, api::ProblemCode::Interrupted)
    );

    // The session is loaded again, also for an old handle. It fails again only where it panics again.
    let snapshot = in_time(session.snapshot()).await.unwrap();
    assert_eq!(
        (snapshot.state, snapshot.prompt_id),
        (SessionState::Idle, None)
    );
    assert!(matches!(
        in_time(session.prompt(&by, prompt(false), || Ok(()))).await,
        Err(PromptError::Session(SessionError::Internal))
    ));
    assert_eq!(
        in_time(session.snapshot()).await.unwrap().last_event_id,
        snapshot.last_event_id
    );
    let runs = session_log.read(0, 1 << 20).await.unwrap();
    let kinds: Vec<_> = runs
        .iter()
        .flat_map(|run| run.events().map(|event| event.kind().to_owned()))
        .collect();
    assert_eq!(kinds, ["prompt.queued", "prompt.failed"]);
}
