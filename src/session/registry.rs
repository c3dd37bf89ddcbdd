//! The registry of sessions: creates, finds and loads them. Sessions of other tenants are invisible.

mod deleted;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::actor::Actor;
use super::command::Command;
use super::context::Context;
use super::creation::{CreateWaiter, Origin};
use super::entry::ActorEntry;
use super::handle::SessionHandle;
use super::idempotency::{self, Claim, Claimed};
use super::list::{self, ListQuery};
use super::metadata;
use super::record::{SessionRecord, StoredState};
use super::refusal::Refusal;
use super::{IdempotencyKey, adopt, gc, requirements};
use crate::acp::{self, TraceContext, client_input_policy};
use crate::agent::AgentSpec;
use crate::api::{self, CreateSession, McpServer, Session, SessionList};
use crate::shutdown::lock_or_abort;
use crate::store::Table;
use crate::types::{OnTimeout, Principal, SessionId, Tenant};

/// The maximum number of characters of a title.
const TITLE_CHARS: usize = 512;
/// The maximum number of directories or MCP servers of a session.
const MAX_LIST_LEN: usize = 64;
/// The maximum number of bytes of a path.
const PATH_BYTES: usize = 4096;
/// The number of locks for loading. Part of the session id selects the lock.
const LOAD_LOCKS: usize = 16;

/// A new session, or the session that an earlier request with the same idempotency key created.
#[derive(Debug)]
pub struct Created {
    pub session: Session,
    pub replayed: bool,
}

/// How to create a session.
#[derive(Debug)]
pub(super) struct CreateOptions {
    pub(super) origin: Origin,
    pub(super) claim: Option<Claim>,
    pub(super) trace: Option<TraceContext>,
}

#[derive(Debug, Clone)]
pub struct SessionRegistry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    entries: Mutex<HashMap<SessionId, (Tenant, Arc<ActorEntry>)>>,
    /// Sessions whose actor panicked. The next actor skips their queue, because a prompt may cause the panic.
    panicked: Mutex<HashSet<SessionId>>,
    /// Sessions that were deleted while the disk accepted no commits.
    deleted: Mutex<HashSet<SessionId>>,
    /// Serializes the loading of a session, so that it never has two actors.
    load_locks: [tokio::sync::Mutex<()>; LOAD_LOCKS],
}

impl SessionRegistry {
    /// Starts the registry after it has closed every session that a crash left open.
    pub async fn start(context: Context) -> Result<Self, Refusal> {
        let inner = Inner {
            context,
            entries: Mutex::default(),
            panicked: Mutex::default(),
            deleted: Mutex::default(),
            load_locks: Default::default(),
        };
        let registry = Self { inner: Arc::new(inner) };
        metadata::build(registry.context()).await?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = registry.context().log.scan(Table::Open, Vec::new(), after.take(), 256).await;
            let page = page.map_err(|error| Refusal::internal(&error))?;
            let mut closed = Vec::new();
            for (key, _) in &page {
                let Ok(id) = uuid::Uuid::from_slice(key) else { continue };
                let reader = registry.clone();
                let read = async move { reader.entry(SessionId::from_uuid(id)).await };
                // A session that cannot be loaded must not keep the other sessions from starting.
                match registry.context().shutdown.spawn_isolated(read).await {
                    Ok(Ok((_, slot))) => closed.push(slot),
                    Ok(Err(refusal)) => {
                        tracing::error!(session = %id, %refusal, "could not load a session that was open when the gateway stopped");
                    }
                    Err(panic) => {
                        tracing::error!(session = %id, %panic, "could not load a session that was open when the gateway stopped");
                    }
                }
            }
            // The first reader after a crash finds an end for every turn, unless the disk is full.
            for slot in closed {
                let durable = slot.log.wait_or_full(slot.log.appended()).await;
                durable.map_err(|error| Refusal::internal(&error))?;
            }
            match page.last() {
                Some((key, _)) => after = Some(key.clone()),
                None => break,
            }
        }
        registry.context().shutdown.spawn(gc::run(registry.clone()));
        Ok(registry)
    }

    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, (Tenant, Arc<ActorEntry>)>> {
        lock_or_abort(self.inner.entries.lock())
    }

    fn running_entry(&self, id: SessionId) -> Option<(Tenant, Arc<ActorEntry>)> {
        self.entries().get(&id).filter(|(_, slot)| !slot.commands.is_closed()).cloned()
    }

    /// The entry of the session's actor. Loads the session if it has no actor.
    pub(super) async fn entry(&self, id: SessionId) -> Result<(Tenant, Arc<ActorEntry>), Refusal> {
        if lock_or_abort(self.inner.deleted.lock()).contains(&id) {
            return Err(Refusal::NoSuchSession);
        }
        if let Some(found) = self.running_entry(id) {
            return Ok(found);
        }
        let door = usize::from(id.as_bytes()[15]) % LOAD_LOCKS;
        let _guard = self.inner.load_locks[door].lock().await;
        if let Some(found) = self.running_entry(id) {
            return Ok(found);
        }
        // The former actor must have stopped, with its last event durable, before the session is loaded.
        let former = self.entries().get(&id).map(|(_, former)| former.stopped.clone());
        if let Some(gone) = former {
            gone.cancelled().await;
        }
        let restore = !lock_or_abort(self.inner.panicked.lock()).contains(&id);
        let loaded = Actor::load(self.context(), id, restore).await?;
        lock_or_abort(self.inner.panicked.lock()).remove(&id);
        let Some((actor, slot)) = loaded else { return Err(Refusal::NoSuchSession) };
        Ok(self.install(actor, slot))
    }

    fn install(&self, actor: Actor, slot: ActorEntry) -> (Tenant, Arc<ActorEntry>) {
        let (tenant, id) = (slot.log.tenant().clone(), slot.log.session());
        let found = (tenant, Arc::new(slot));
        self.entries().insert(id, found.clone());
        self.run(actor, Arc::clone(&found.1));
        found
    }

    /// Removes this entry. Another actor may already have replaced it.
    fn uninstall(&self, id: SessionId, slot: &Arc<ActorEntry>) {
        let mut slots = self.entries();
        if slots.get(&id).is_some_and(|(_, installed)| Arc::ptr_eq(installed, slot)) {
            slots.remove(&id);
        }
    }

    fn run(&self, actor: Actor, slot: Arc<ActorEntry>) {
        let registry = self.clone();
        let id = slot.log.session();
        let shutdown = self.context().shutdown.clone();
        let owner = shutdown.spawn_isolated(actor.run());
        shutdown.spawn_isolated(async move {
            let Ok(unanswered) = owner.await else { return registry.recover_panicked(id, &slot).await };
            registry.uninstall(id, &slot);
            slot.stopped.cancel();
            // The next actor executes the remaining commands. If it cannot be loaded, they get no reply.
            for command in unanswered {
                if let Ok((_, next)) = registry.entry(id).await {
                    drop(next.commands.send(command).await);
                }
            }
        });
    }

    /// Recovers a session whose actor panicked. The next actor closes everything that was open, so that no
    /// client waits for it.
    async fn recover_panicked(&self, id: SessionId, slot: &Arc<ActorEntry>) {
        tracing::error!(session = %id, "the session's actor panicked; its turn fails, and the session is loaded again from the log");
        // The next actor reads from the store, so everything that was appended must be committed.
        drop(slot.log.wait(slot.log.appended()).await);
        lock_or_abort(self.inner.panicked.lock()).insert(id);
        self.uninstall(id, slot);
        slot.stopped.cancel();
        if let Err(refusal) = self.entry(id).await {
            tracing::warn!(session = %id, %refusal, "could not load the session again after its actor panicked");
        }
    }

    pub async fn open(&self, by: &Principal, id: SessionId) -> Result<SessionHandle, Refusal> {
        let (tenant, slot) = self.entry(id).await?;
        let visible = tenant == by.tenant && slot.visible.load(Ordering::Acquire);
        if visible { Ok(SessionHandle::new(self.clone(), id, slot)) } else { Err(Refusal::NoSuchSession) }
    }

    pub async fn list(&self, by: &Principal, query: &ListQuery) -> Result<SessionList, Refusal> {
        list::list(self.context(), by, query).await
    }

    /// Removes an erased session.
    pub(super) fn remove(&self, id: SessionId) {
        self.entries().remove(&id);
    }

    /// Creates a session. On failure nothing of it remains. The operation continues if the caller is dropped,
    /// because its idempotency key must stay reserved until the session is durable.
    pub async fn create(
        &self,
        by: &Principal,
        request: CreateSession,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Created, Refusal> {
        let (registry, by) = (self.clone(), by.clone());
        let made =
            async move { registry.create_once(&by, request, key.as_ref(), trace).await }.in_current_span();
        self.context().shutdown.spawn_isolated(made).await.map_err(|error| Refusal::internal(&error))?
    }

    async fn create_once(
        &self,
        by: &Principal,
        request: CreateSession,
        key: Option<&IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Created, Refusal> {
        let claimed = match key {
            Some(key) => Some(idempotency::claim(self.context(), by, key).await?),
            None => None,
        };
        if let Some(replayed) = self.find_replayed(by, claimed.as_ref()).await? {
            return Ok(replayed);
        }
        let (flight, claim) = claimed.map(|claimed| (claimed.flight, claimed.claim)).unzip();
        let session = self.create_new(by, request, (claim, trace)).await?;
        drop(flight);
        Ok(Created { session, replayed: false })
    }

    /// The session that an earlier request with the same idempotency key created.
    pub(super) async fn find_replayed(
        &self,
        by: &Principal,
        claimed: Option<&Claimed>,
    ) -> Result<Option<Created>, Refusal> {
        let Some(before) = claimed.and_then(|claimed| claimed.previous.as_ref()) else { return Ok(None) };
        // If that session was deleted since, the client gets a new one.
        match self.open(by, before.session).await {
            Ok(session) => Ok(Some(Created { session: session.snapshot().await?, replayed: true })),
            Err(Refusal::NoSuchSession) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn create_new(
        &self,
        by: &Principal,
        request: CreateSession,
        (claim, trace): (Option<Claim>, Option<TraceContext>),
    ) -> Result<Session, Refusal> {
        let context = self.context();
        if context.log.alarm().is_some() {
            return Err(Refusal::StorageFull);
        }
        let spec = context.catalogue.agent(&request.agent);
        let Some(spec) = spec else { return Err(crate::pool::AcquireError::NoSuchAgent.into()) };
        let id = context.ids.session();
        let adopted = adopt::adopted_session(by, &request)?.map(str::to_owned);
        let take = match &adopted {
            Some(theirs) => Some(self.begin_adoption(by, &request.agent, theirs).await?),
            None => None,
        };
        let mut request = request;
        if let Some(theirs) = adopted.as_deref().filter(|_| request.cwd.is_none()) {
            request.cwd = Some(self.find_listed_folder(by, &spec, theirs, trace.as_ref()).await?);
        }
        let asked = request.meta.as_deref().map(acp::split_meta);
        let trace = trace.or_else(|| asked.and_then(|(_, trace)| trace));
        let origin = if adopted.is_some() { Origin::Adopted } else { Origin::New };
        let record = self.new_record(by, id, request, &spec).await?;
        let session = self.start_actor(by, record, CreateOptions { origin, claim, trace }).await;
        drop(take);
        session
    }

    /// Runs the actor of a new session until the agent has the session. On failure nothing of it remains.
    pub(super) async fn start_actor(
        &self,
        by: &Principal,
        record: SessionRecord,
        CreateOptions { origin, claim, trace }: CreateOptions,
    ) -> Result<Session, Refusal> {
        let context = self.context();
        let (id, own_folder) = (record.session_id, record.own_folder && origin == Origin::New);
        let log = context.log.session(&by.tenant, id).await.map_err(|error| Refusal::internal(&error))?;
        let (actor, slot) = Actor::new(context, log.clone(), record, origin);
        let (reply, created) = tokio::sync::oneshot::channel();
        let deadline = Instant::now() + context.limits.settings_queue_timeout;
        drop(slot.commands.try_send(Command::Create(CreateWaiter { origin, claim, trace, reply, deadline })));
        // Other clients can find the session only after its creation succeeded.
        slot.visible.store(false, Ordering::Release);
        let slot = Arc::new(slot);
        self.entries().insert(id, (by.tenant.clone(), Arc::clone(&slot)));
        self.run(actor, Arc::clone(&slot));
        match created.await.unwrap_or(Err(Refusal::Internal)) {
            Ok((session, seq)) => {
                slot.log.wait(seq).await.map_err(|error| Refusal::internal(&error))?;
                slot.visible.store(true, Ordering::Release);
                Ok(session)
            }
            Err(refusal) => {
                if own_folder {
                    let workspaces = context.workspaces.clone();
                    let erased = context
                        .shutdown
                        .spawn_blocking(move || workspaces.remove_directory(&id.to_string()))
                        .await;
                    if !matches!(erased, Ok(Ok(()))) {
                        tracing::warn!(session = %id, "could not remove the folder of a session that could not be created");
                    }
                }
                Err(refusal)
            }
        }
    }

    async fn new_record(
        &self,
        by: &Principal,
        id: SessionId,
        request: CreateSession,
        spec: &AgentSpec,
    ) -> Result<SessionRecord, Refusal> {
        check_request(&request, spec)?;
        let context = self.context();
        let metadata = request.metadata.unwrap_or_default();
        let mcp_servers = mcp_servers(spec, &request.mcp_servers)?;
        // If the capabilities are not known yet, the check happens when a process is leased.
        if let Some(initialized) =
            context.pool.agent_stats(&spec.name, &by.tenant).and_then(|(_, initialized)| initialized)
        {
            let directories = &request.additional_directories;
            requirements::check(spec, &mcp_servers, directories, &initialized.capabilities)?;
        }
        let (workspaces, cwd) = (context.workspaces.clone(), request.cwd);
        let directories = request.additional_directories;
        let span = Span::current();
        let folders = context.shutdown.spawn_blocking(move || {
            let _request = span.entered();
            let existing = |(at, path): (usize, &String)| {
                workspaces
                    .resolve(&format!("/additionalDirectories/{at}"), path)
                    .map(|p| p.to_string_lossy().into_owned())
            };
            let directories: Vec<String> =
                directories.iter().enumerate().map(existing).collect::<Result<_, _>>()?;
            Ok::<_, Refusal>((workspaces.folder(id, cwd.as_deref())?, directories))
        });
        let (folder, additional_directories) = folders.await.map_err(|error| Refusal::internal(&error))??;
        let now = context.ids.now();
        Ok(SessionRecord {
            session_id: id,
            tenant: by.tenant.as_str().to_owned(),
            owner: by.id.to_string(),
            agent: request.agent,
            title: request.title,
            metadata,
            cwd: folder.path.to_string_lossy().into_owned(),
            own_folder: folder.created,
            shared_folder: false,
            folder_of: None,
            additional_directories,
            mcp_servers,
            meta: request.meta.as_deref().and_then(|meta| acp::split_meta(meta).0).map(acp::to_one_line),
            policy: request.policy.unwrap_or_default().into(),
            state: StoredState::Idle,
            attached: false,
            agent_session_id: request.agent_session_id,
            created_at: now,
            updated_at: now,
            last_prompt: 0,
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
            load_not_before: None,
            seq: 0,
        })
    }
}

/// Checks the members of a request that need neither a process nor a file.
fn check_request(request: &CreateSession, spec: &AgentSpec) -> Result<(), Refusal> {
    check_title(request.title.as_deref())?;
    if let Some(metadata) = &request.metadata {
        metadata::check(metadata)?;
    }
    check_policy(request.policy.as_ref(), spec)?;
    check_paths(request.cwd.iter().map(|cwd| ("/cwd", cwd)))?;
    let directories = request.additional_directories.iter();
    check_paths(directories.map(|directory| ("/additionalDirectories", directory)))?;
    check_count("/additionalDirectories", request.additional_directories.len())?;
    check_count("/mcpServers", request.mcp_servers.len())?;
    if let Some(meta) = &request.meta {
        client_input_policy::check_meta(&spec.settings.allowed_meta_keys, meta)
            .map_err(|gated| Refusal::from_policy(&gated, ""))?;
    }
    Ok(())
}

/// Clients name MCP servers. They never supply a command or a URL.
fn mcp_servers(spec: &AgentSpec, wanted: &[McpServer]) -> Result<Vec<String>, Refusal> {
    let server = |(at, server): (usize, &McpServer)| match server {
        McpServer::Name(name) if spec.mcp.contains_key(name) => Ok(name.clone()),
        McpServer::Name(_) => Err(Refusal::Invalid {
            pointer: format!("/mcpServers/{at}"),
            detail: "no MCP server of that name is configured".to_owned(),
        }),
        McpServer::Inline(_) => Err(Refusal::Forbidden(
            "clients cannot define MCP servers; name one of the configuration ([mcp.<name>])".to_owned(),
        )),
    };
    wanted.iter().enumerate().map(server).collect()
}

pub(super) fn invalid(pointer: &str, detail: &str) -> Refusal {
    Refusal::Invalid { pointer: pointer.to_owned(), detail: detail.to_owned() }
}

pub(super) fn check_title(title: Option<&str>) -> Result<(), Refusal> {
    match title {
        Some(title) if title.chars().count() > TITLE_CHARS => {
            Err(invalid("/title", "at most 512 characters"))
        }
        _ => Ok(()),
    }
}

fn check_count(pointer: &str, count: usize) -> Result<(), Refusal> {
    if count > MAX_LIST_LEN { Err(invalid(pointer, "at most 64")) } else { Ok(()) }
}

fn check_paths<'a>(paths: impl Iterator<Item = (&'static str, &'a String)>) -> Result<(), Refusal> {
    let mut long = paths.filter(|(_, path)| path.len() > PATH_BYTES);
    long.next().map_or(Ok(()), |(pointer, _)| Err(invalid(pointer, "a path of at most 4096 bytes")))
}

/// A client can only narrow the agent's policy.
fn check_policy(policy: Option<&api::SessionPolicy>, spec: &AgentSpec) -> Result<(), Refusal> {
    let Some(policy) = policy else { return Ok(()) };
    let entry = &spec.settings;
    for (pointer, wanted, permitted) in [
        ("/policy/files", policy.files, entry.files),
        ("/policy/terminals", policy.terminals, entry.terminals),
    ] {
        if wanted.is_some_and(|wanted| wanted > permitted) {
            return Err(invalid(pointer, "a session can only narrow the setting of the agent"));
        }
    }
    let Some(permissions) = &policy.permissions else { return Ok(()) };
    let waits = permissions.on_timeout == Some(OnTimeout::Wait);
    if waits && entry.permissions.on_timeout == OnTimeout::Reject {
        return Err(invalid(
            "/policy/permissions/onTimeout",
            "the agent's entry rejects unanswered requests",
        ));
    }
    let listed = |kind: &String| entry.permissions.allow.contains(kind);
    if !permissions.allow.iter().flatten().all(listed) {
        return Err(invalid("/policy/permissions/allow", "the agent's entry does not allow all of these"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
