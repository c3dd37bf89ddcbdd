//! Starts agents as child processes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use uuid::Uuid;

use super::dialect::{Acp, Dialect};
use super::early_acp::{EarlyAcp, Opening};
use super::endpoint::Endpoint;
use super::failure::{AgentFailure, with_cause};
use super::handshake::Handshake;
use super::idle_folder::{IdleFolder, IdleFolders};
use super::process::{FailedStart, HostAccess, Process};
use super::process_key::{ProcessKey, SessionStart};
use super::spec::{AgentSpec, INVALID_ENTRY};
use super::stream_json::{self, StartedSession, StreamJson};
use super::transport::stdio;
use crate::acp::{AcpVersion, error_code};
use crate::audit::Audit;
use crate::event::{ActorKind, IsolationApplied};
use crate::jsonrpc::RpcError;
use crate::process::{ChildIsolation, ChildSpec, SpawnError, Spawner, resolve};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{
    AgentDialect, AgentName, AgentSettings, AppliedIsolation, FolderError, Isolation, Limits,
    Tenant, random_uuid,
};

/// The time for the output of `--version`, and its size.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);
const VERSION_BYTES: u64 = 1024;

/// Starts agents.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub(super) spawner: Spawner,
    limits: Arc<Limits>,
    shutdown: Shutdown,
    audit: Audit,
    version: &'static str,
    idle_folders: Option<IdleFolders>,
    /// Entries that request v2 for an agent that supports only v1. The launcher retries v2 when the entry changes.
    v1_only: Arc<Mutex<HashMap<AgentName, Arc<AgentSpec>>>>,
    versions: Arc<Mutex<HashMap<AgentName, PrintedVersion>>>,
}

/// The version that the command of an entry printed. The launcher asks again when the entry changes.
#[derive(Debug, Clone)]
struct PrintedVersion {
    entry: Arc<AgentSpec>,
    version: Option<String>,
}

impl Launcher {
    pub fn new(
        spawner: Spawner,
        limits: Arc<Limits>,
        shutdown: Shutdown,
        audit: Audit,
        version: &'static str,
    ) -> Self {
        Self {
            spawner,
            limits,
            shutdown,
            audit,
            version,
            idle_folders: None,
            v1_only: Arc::default(),
            versions: Arc::default(),
        }
    }

    /// Lets processes start with a folder before their session exists.
    #[must_use]
    pub fn with_idle_folders(self, folders: IdleFolders) -> Self {
        Self {
            idle_folders: Some(folders),
            ..self
        }
    }

    /// A launcher whose program does not exist.
    #[cfg(test)]
    pub(crate) fn without_programs(
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
        audit: &Audit,
    ) -> Self {
        let nowhere = std::path::PathBuf::from("/nonexistent");
        let spawner = Spawner::new(
            nowhere.clone(),
            nowhere,
            shutdown.clone(),
            Arc::clone(limits),
        );
        Self::new(
            spawner,
            Arc::clone(limits),
            shutdown.clone(),
            audit.clone(),
            "test",
        )
    }

    /// The isolation that this machine applies for an entry.
    pub fn applied_isolation(&self, spec: &AgentSpec) -> AppliedIsolation {
        let applied = self.spawner.sandbox().applied(spec.settings.isolation);
        AppliedIsolation {
            agent_sandbox_off: !self.sandbox_off(spec).is_empty(),
            ..applied
        }
    }

    /// The variables that switch off the agent's own sandbox, because it fails with the isolation of the entry. A variable of
    /// the entry has precedence.
    fn sandbox_off(&self, spec: &AgentSpec) -> Vec<(&'static str, &'static str)> {
        let fails = self
            .spawner
            .sandbox()
            .forbids_mounts(spec.settings.isolation);
        let known = spec
            .known
            .filter(|_| fails)
            .into_iter()
            .flat_map(|known| known.row.sandbox_off());
        known
            .filter(|(name, _)| !spec.has_variable(name))
            .copied()
            .collect()
    }

    /// Creates the folder of a process that starts before its session. `None` if such a process gets folders later or
    /// needs none, and at the level `strict`: its command contains the path of the folder.
    pub(crate) async fn create_idle_folder(
        &self,
        spec: &AgentSpec,
        tenant: &Tenant,
    ) -> Option<IdleFolder> {
        let level = spec.settings.isolation;
        let grants_later =
            level == Isolation::Strict || self.spawner.sandbox().grants_folders_later(level);
        let folders = self
            .idle_folders
            .clone()
            .filter(|_| level.restricts_folders() && !grants_later)?;
        let (spawner, home) = (self.spawner.clone(), spec.home_of(tenant));
        let create = move || {
            let folder = folders.create()?;
            spawner
                .sandbox()
                .own_folder(folder.path(), &home)
                .map_err(io::Error::other)?;
            Ok(folder)
        };
        let created: io::Result<IdleFolder> = self.shutdown.spawn_blocking(create).await.ok()?;
        let failed =
            |error: &_| tracing::warn!(%error, "could not create the folder of an idle process");
        created.inspect_err(failed).ok()
    }

    /// Starts the agent with the newest version that the agent and its entry support. An agent that supports
    /// only v1 is started again: it ignored the v2 fields of `initialize`, so it assumes that the client has
    /// no capabilities.
    pub async fn launch(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        match spec.settings.dialect {
            AgentDialect::Acp => self.launch_acp(spec, key).await,
            AgentDialect::StreamJson => self.launch_for_session(spec, key).await,
            AgentDialect::EarlyAcp => self.launch_early(spec, key).await,
        }
    }

    async fn launch_acp(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        let v1_only = lock_or_abort(self.v1_only.lock()).get(&spec.name).cloned();
        let known = v1_only.is_some_and(|older| Arc::ptr_eq(&older, spec));
        if known || AcpVersion::from_number(spec.settings.protocol) != Some(AcpVersion::V2) {
            return self.start_acp(spec, key, AcpVersion::V1).await;
        }
        match self.start_acp(spec, key, AcpVersion::V2).await {
            Ok(process) if process.initialized.acp_version == AcpVersion::V2 => return Ok(process),
            Ok(process) => process.stop().await,
            Err(failed) if failed.refuses_version() => failed.wait_stopped().await,
            Err(failed) => return Err(failed),
        }
        tracing::info!(agent = %spec.name, "the agent supports only version 1 of the protocol");
        lock_or_abort(self.v1_only.lock()).insert(spec.name.clone(), Arc::clone(spec));
        self.start_acp(spec, key, AcpVersion::V1).await
    }

    async fn start_acp(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        version: AcpVersion,
    ) -> Result<Process, FailedStart> {
        self.start(spec, key, Arc::new(Acp(version)), &[]).await
    }

    /// Starts an agent whose processes serve one session. If the agent does not have the session, the agent is started
    /// again for a new one. This process answers the restore with the agent's error.
    async fn launch_for_session(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        let restore = key
            .session
            .as_ref()
            .and_then(|session| session.restore.as_deref());
        let cwd = key.session.as_ref().map(|session| session.cwd.clone());
        let new = StartedSession {
            id: cwd.is_some().then(|| random_uuid().to_string()),
            cwd: cwd.unwrap_or_default(),
            version: self.version_of(spec, key).await,
            ..StartedSession::default()
        };
        let missing = match restore.map(|id| (id, Uuid::try_parse(id))) {
            None => None,
            // Only a UUID is an argument.
            Some((id, Err(_))) => Some((id.to_owned(), session_not_found(id))),
            Some((id, Ok(uuid))) => {
                let restored = StartedSession {
                    id: Some(uuid.to_string()),
                    restores: true,
                    ..new.clone()
                };
                match self.start_stream_json(spec, key, restored).await {
                    Err(failed) => match failed.missing_session().cloned() {
                        Some(error) => {
                            failed.wait_stopped().await;
                            Some((id.to_owned(), error))
                        }
                        None => return Err(failed),
                    },
                    started => return started,
                }
            }
        };
        self.start_stream_json(spec, key, StartedSession { missing, ..new })
            .await
    }

    /// The version that the command of the entry prints. The CLI reports it in its protocol only with the first turn. The
    /// first start of an entry waits for it, at most for [`VERSION_TIMEOUT`].
    async fn version_of(&self, spec: &Arc<AgentSpec>, key: &ProcessKey) -> Option<String> {
        let known = lock_or_abort(self.versions.lock()).get(&spec.name).cloned();
        if let Some(known) = known
            && Arc::ptr_eq(&known.entry, spec)
        {
            return known.version;
        }
        let printed = tokio::time::timeout(VERSION_TIMEOUT, self.printed_version(spec, key));
        let version = printed.await.ok().flatten();
        let known = PrintedVersion {
            entry: Arc::clone(spec),
            version: version.clone(),
        };
        lock_or_abort(self.versions.lock()).insert(spec.name.clone(), known);
        version
    }

    async fn printed_version(&self, spec: &Arc<AgentSpec>, key: &ProcessKey) -> Option<String> {
        let folders = key.folders.clone();
        let mut child = self.child_spec(spec, &key.tenant, folders).await.ok()?;
        child.args.push("--version".into());
        child.cwd = key.session.as_ref().map(|session| session.cwd.clone());
        let mut child = self.spawner.spawn(child).await.ok()?;
        let stdout = child.take_stdout().expect("a new child has its stdout");
        let mut output = Vec::new();
        let mut stdout = stdout.take(VERSION_BYTES);
        // The end of its input ends a command that does not know the argument.
        let (_, read) = tokio::join!(child.stop(), stdout.read_to_end(&mut output));
        read.ok()?;
        stream_json::version(&String::from_utf8_lossy(&output))
    }

    async fn start_stream_json(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        session: StartedSession,
    ) -> Result<Process, FailedStart> {
        let arguments = stream_json::arguments(&session);
        self.start(spec, key, Arc::new(StreamJson::new(session)), &arguments)
            .await
    }

    /// Starts an agent with an early protocol. An agent that ends because of the version in `initialize` is started again
    /// with the other spelling.
    async fn launch_early(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        let start = async |opening| {
            self.start(spec, key, Arc::new(EarlyAcp::new(opening)), &[])
                .await
        };
        match start(Opening::Text).await {
            Err(failed) if failed.has_exited() => failed.wait_stopped().await,
            started => return started,
        }
        start(Opening::Number).await
    }

    /// Spawns and initializes the agent. `arguments` follow those of the entry.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        dialect: Arc<dyn Dialect>,
        arguments: &[String],
    ) -> Result<Process, FailedStart> {
        let mut child = self
            .child_spec(spec, &key.tenant, key.folders.clone())
            .await?;
        child.args.extend(arguments.iter().map(OsString::from));
        child.cwd = key.session.as_ref().map(|session| session.cwd.clone());
        let child = self
            .spawner
            .spawn(child)
            .await
            .map_err(|error| failed_spawn(error, key))?;
        let agent_sandbox_off = !self.sandbox_off(spec).is_empty();
        let (isolation, folders) = (
            AppliedIsolation {
                agent_sandbox_off,
                ..child.isolation()
            },
            child.folders().cloned(),
        );
        let AppliedIsolation {
            level, mechanism, ..
        } = isolation;
        let (agent, process_id, user_id) = (spec.name.clone(), child.pid(), child.user());
        let applied = IsolationApplied {
            agent,
            level,
            mechanism,
            process_id,
            user_id,
        };
        self.audit.append(ActorKind::Gateway, applied);
        let (tree, terminals) = (child.tree(), child.terminals().clone());
        let handshake = Handshake {
            spec,
            key,
            dialect,
            gateway_version: self.version,
        };
        let mut process = handshake
            .run(stdio::open(child), &self.limits, &self.shutdown)
            .await?;
        let noted = tree.clone();
        let tree = self
            .shutdown
            .spawn_blocking(move || noted.with_baseline())
            .await
            .unwrap_or(tree);
        process.host = Some(HostAccess {
            terminals,
            tree,
            isolation,
            folders,
        });
        Ok(process)
    }

    /// The configured command with the home of the tenant, which is created if necessary.
    pub(super) async fn child_spec(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        folders: Vec<PathBuf>,
    ) -> Result<ChildSpec, AgentFailure> {
        let home = spec.home_of(tenant);
        let (owner, of) = (Arc::clone(spec), tenant.clone());
        let created = self
            .shutdown
            .spawn_blocking(move || owner.create_home(&of))
            .await;
        if let Ok(Err(error)) = created {
            let detail = format!("could not create its home {}: {error}", home.display());
            return Err(AgentFailure::Start { detail });
        }
        let mut env = spec.env.clone();
        env.push(("HOME".into(), home.clone().into()));
        for (name, value) in self.sandbox_off(spec) {
            tracing::info!(agent = %spec.name, name, value, "the agent's own sandbox is off: it fails with Landlock");
            env.push((name.into(), value.into()));
        }
        let (program, args) = command(spec, &home, &folders)?;
        let AgentSettings {
            isolation: level,
            folders: configured,
            resources: limits,
            ..
        } = &spec.settings;
        let isolation = ChildIsolation {
            level: *level,
            folders,
            configured: configured.clone(),
            limits: *limits,
        };
        Ok(ChildSpec {
            program,
            args,
            env,
            home,
            cwd: None,
            secrets: spec.secrets.clone(),
            isolation,
        })
    }
}

/// The failure of a spawn. A missing folder of the session concerns only that session.
fn failed_spawn(error: SpawnError, key: &ProcessKey) -> AgentFailure {
    match (error, &key.session) {
        // The child reports the folder that it cannot enter without its path.
        (SpawnError::Directory { folder, source }, Some(SessionStart { cwd, .. }))
            if folder == *cwd || folder.as_os_str().is_empty() =>
        {
            let folder = cwd.clone();
            match source.kind() {
                io::ErrorKind::NotFound => FolderError::Missing { folder }.into(),
                _ => FolderError::Unusable {
                    folder,
                    cause: source.to_string(),
                }
                .into(),
            }
        }
        (error, _) => error.into(),
    }
}

fn session_not_found(id: &str) -> RpcError {
    let message = format!("Session not found: {id}");
    RpcError {
        code: error_code::RESOURCE_NOT_FOUND,
        message,
        data: None,
    }
}

/// The program and its arguments. At the level `strict` the operator's command is before them.
fn command(
    spec: &AgentSpec,
    home: &Path,
    folders: &[PathBuf],
) -> Result<(PathBuf, Vec<OsString>), AgentFailure> {
    let Endpoint::Command {
        program: agent,
        args,
    } = &spec.endpoint
    else {
        return Err(AgentFailure::Start {
            detail: INVALID_ENTRY.to_owned(),
        });
    };
    if spec.settings.isolation != Isolation::Strict {
        return Ok((agent.clone(), args.clone()));
    }
    let cwd = folders
        .first()
        .map_or(home, PathBuf::as_path)
        .to_string_lossy();
    let fill = |word: &String| {
        word.replace("{cwd}", &cwd)
            .replace("{home}", &home.to_string_lossy())
    };
    let mut words = spec.settings.isolation_command.iter().map(fill);
    let first = words.next().unwrap_or_default();
    let path = spec
        .env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, path)| path.clone());
    let program = resolve(first.as_ref(), &path.unwrap_or_default());
    let program = program.map_err(|error| AgentFailure::Start {
        detail: with_cause(&error),
    })?;
    let own = std::iter::once(agent.clone().into()).chain(args.iter().cloned());
    Ok((program, words.map(OsString::from).chain(own).collect()))
}
