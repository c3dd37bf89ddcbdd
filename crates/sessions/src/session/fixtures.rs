//! Sessions in a memory store, for unit tests.

use std::sync::Arc;

use serde_json::Map;

use super::journal::{Journal, Quotas};
use super::record::SessionRecord;
use base::shutdown::Shutdown;
use base::types::{Clock, GrantedFolders, Ids, Principal, Scope, SessionId, Timestamp, UserId};
use events::api::{SessionPolicy, SessionState};
use log::audit::{Audit, CountedEvents};
use log::eventlog::{EventLog, SessionLog};
use log::store::{MemoryStore, Run};

/// A clock that shows 1000 milliseconds.
#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1000)
    }
}

/// The log and the audit log of a memory store.
pub(super) async fn logs(ids: &Ids, shutdown: &Shutdown) -> (EventLog, Audit) {
    let store = Arc::new(MemoryStore::new(ids.clone()));
    let fatal = Box::new(|why: &str| panic!("fatal: {why}"));
    let log = EventLog::start(store, ids.clone(), Arc::default(), shutdown.clone(), fatal).unwrap();
    let counted = CountedEvents::default();
    let audit = Audit::open(log.clone(), counted, ids.clone(), Arc::default());
    (log.clone(), audit.await.unwrap())
}

/// The journal of a new session, and the audit log. The writer of both stops when the audit log is dropped.
pub(super) async fn journal() -> (Journal, Audit) {
    let ids = Ids::new(Arc::new(FixedClock));
    let (log, audit) = logs(&ids, &Shutdown::new()).await;
    let by = principal(UserId::owner());
    let record = record(ids.session(), &by, ids.now(), 0);
    let session = log.session(&by.user, record.session_id).await.unwrap();
    (
        Journal::new(session, ids, record, &Quotas::default()),
        audit,
    )
}

/// The types of the events in a log, in order.
pub(super) async fn kinds(log: &SessionLog) -> Vec<String> {
    log.wait(log.appended()).await.unwrap();
    let runs = log.read(0, 1 << 20).await.unwrap();
    let events = runs.iter().flat_map(Run::events);
    events.map(|event| event.kind().to_owned()).collect()
}

pub(super) fn principal(user: UserId) -> Principal {
    Principal {
        is_local: false,
        user,
        scopes: Scope::ALL.iter().copied().collect(),
        folders: GrantedFolders::default(),
    }
}

/// A session whose turns wait for a process forever. It already has `last_prompt` turns.
pub(super) fn record(
    id: SessionId,
    by: &Principal,
    now: Timestamp,
    last_prompt: u32,
) -> SessionRecord {
    SessionRecord {
        session_id: id,
        owner: by.user.clone(),
        agent: "a".parse().unwrap(),
        title: None,
        metadata: Map::new(),
        cwd: "/".to_owned(),
        remote_folders: false,
        own_folder: false,
        shared_folder: false,
        folder_of: None,
        additional_directories: Vec::new(),
        granted_folders: GrantedFolders::default(),
        mcp_servers: Vec::new(),
        meta: None,
        policy: SessionPolicy::default(),
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
        imported_from: None,
        load_not_before: None,
        restore_failures: 0,
        discards_context: false,
        seq: 0,
    }
}
