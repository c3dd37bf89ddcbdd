use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::*;
use crate::session::actor::Actor;
use crate::session::error::PromptError;
use crate::session::fixtures::{kinds, logs, principal, record};
use crate::session::record::SessionRecord;
use crate::session::validation::Origin;
use crate::session::{Baselines, MayPrompt, PromptRequest};
use agents::agent::{
    AgentFailure, AgentSpec, BoxFuture, Catalogue, CurrentCatalogue, FailedStart, IdleFolder,
    Process, ProcessKey, Terminal,
};
use agents::pool::{AgentSource, Pool};
use base::shutdown::Shutdown;
use base::types::{AppliedIsolation, Ids, PrincipalLimits, PromptId, Tenant, UserId};
use events::api::{self, PromptStatus, SessionState};
use log::eventlog::EventLog;
use wire::acp::auth::TerminalAuth;
use workspace::Workspaces;

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what)
        .await
        .expect("the future completes within 20 seconds")
}

fn prompt(queue: bool) -> PromptRequest {
    let blocks = RawValue::from_string(r#"[{"type":"text","text":"hello"}]"#.to_owned()).unwrap();
    PromptRequest {
        queue,
        ..PromptRequest::new(blocks)
    }
}

/// A source whose agents never start.
#[derive(Debug)]
struct NoAgents;

impl AgentSource for NoAgents {
    fn isolation(&self, _: &AgentSpec) -> Option<AppliedIsolation> {
        None
    }

    fn create_idle_folder<'a>(
        &'a self,
        _: &'a AgentSpec,
        _: &'a Tenant,
    ) -> BoxFuture<'a, Option<IdleFolder>> {
        Box::pin(async { None })
    }

    fn connect<'a>(
        &'a self,
        _: &'a Arc<AgentSpec>,
        _: &'a ProcessKey,
    ) -> BoxFuture<'a, Result<Process, FailedStart>> {
        Box::pin(std::future::pending())
    }

    fn sign_in<'a>(
        &'a self,
        _: &'a Arc<AgentSpec>,
        _: &'a Tenant,
        _: &'a TerminalAuth,
        _: agents::agent::PtySize,
    ) -> BoxFuture<'a, Result<Terminal, AgentFailure>> {
        Box::pin(std::future::pending())
    }
}

/// Sessions without programs.
struct Rig {
    directory: SessionDirectory,
    log: EventLog,
    ids: Ids,
    folder: tempfile::TempDir,
    _catalogues: tokio::sync::watch::Sender<Arc<Catalogue>>,
}

async fn rig() -> Rig {
    let shutdown = Shutdown::new();
    let ids = Ids::system();
    let (log, audit) = logs(&ids, &shutdown).await;
    let catalogue = Arc::new(Catalogue::new([AgentSpec::removed("a".parse().unwrap())]));
    let pool = Pool::new(
        &catalogue,
        NoAgents,
        Arc::default(),
        PrincipalLimits::default(),
        &shutdown,
    );
    let folder = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(folder.path(), &[]).unwrap();
    let (catalogues, catalogue) = CurrentCatalogue::new(catalogue);
    let context = Context::new(
        log.clone(),
        audit,
        pool,
        catalogue,
        workspaces,
        Baselines::new(folder.path().join("changes")),
        MayPrompt::new(|_| true),
        ids.clone(),
        Arc::default(),
        shutdown,
    );
    let directory = SessionDirectory::start(context).await.unwrap();
    Rig {
        directory,
        log,
        ids,
        folder,
        _catalogues: catalogues,
    }
}

#[tokio::test]
async fn another_user_does_not_load_a_session() {
    let Rig {
        directory,
        log,
        ids,
        ..
    } = &rig().await;
    let owner = principal(UserId::owner());
    let stranger = principal(UserId::from_text("default/other"));
    let id = ids.session();
    // Loading closes the process that a crash left open.
    let record = SessionRecord {
        attached: true,
        ..record(id, &owner, ids.now(), 0)
    };
    let mut records = log::eventlog::Records::default();
    record.put(None, &mut records);
    log.write(records).await.unwrap();
    let session_log = log.session(&owner.user, id).await.unwrap();
    let opened = in_time(directory.open(&stranger, id)).await;
    assert!(
        matches!(opened, Err(SessionError::NoSuchSession)),
        "{opened:?}"
    );
    assert_eq!(session_log.appended(), 0, "nothing was loaded");
    in_time(directory.open(&owner, id)).await.unwrap();
    assert_eq!(session_log.appended(), 1, "the owner loads it");
    let opened = in_time(directory.open(&stranger, id)).await;
    assert!(
        matches!(opened, Err(SessionError::NoSuchSession)),
        "{opened:?}"
    );
}

#[tokio::test]
async fn panicked_actor_fails_its_turn_and_restarts() {
    let Rig {
        directory,
        log,
        ids,
        folder,
        ..
    } = &rig().await;
    let by = principal(UserId::owner());
    let id = ids.session();
    let session_log = log.session(&by.user, id).await.unwrap();
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
    let (actor, slot) = Actor::new(
        directory.context(),
        session_log.clone(),
        record,
        Origin::New,
    );
    directory.entries.install(actor, slot);

    let session = directory.open(&by, id).await.unwrap();
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
    assert_eq!(
        kinds(&session_log).await,
        ["prompt.queued", "prompt.failed"]
    );
}
