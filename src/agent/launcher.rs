//! Starts agents as child processes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::endpoint::Endpoint;
use super::failure::{AgentFailure, with_cause};
use super::handshake::Handshake;
use super::idle_folder::{IdleFolder, IdleFolders};
use super::process::{FailedStart, HostAccess, Process};
use super::process_key::{ProcessKey, SessionStart};
use super::spec::{AgentSpec, INVALID_ENTRY};
use super::transport::stdio;
use crate::acp::AcpVersion;
use crate::audit::Audit;
use crate::event::{ActorKind, IsolationApplied};
use crate::process::{ChildIsolation, ChildSpec, SpawnError, Spawner, resolve};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{
    AgentName, AgentSettings, AppliedIsolation, FolderError, Isolation, Limits, Tenant,
};

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
        let v1_only = lock_or_abort(self.v1_only.lock()).get(&spec.name).cloned();
        let known = v1_only.is_some_and(|older| Arc::ptr_eq(&older, spec));
        if known || AcpVersion::from_number(spec.settings.protocol) != Some(AcpVersion::V2) {
            return self.start(spec, key, AcpVersion::V1).await;
        }
        match self.start(spec, key, AcpVersion::V2).await {
            Ok(process) if process.initialized.acp_version == AcpVersion::V2 => return Ok(process),
            Ok(process) => process.stop().await,
            Err(failed) if failed.refuses_version() => failed.wait_stopped().await,
            Err(failed) => return Err(failed),
        }
        tracing::info!(agent = %spec.name, "the agent supports only version 1 of the protocol");
        lock_or_abort(self.v1_only.lock()).insert(spec.name.clone(), Arc::clone(spec));
        self.start(spec, key, AcpVersion::V1).await
    }

    /// Spawns and initializes the agent.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        version: AcpVersion,
    ) -> Result<Process, FailedStart> {
        let mut child = self
            .child_spec(spec, &key.tenant, key.folders.clone())
            .await?;
        let session = key.session.as_ref();
        child.cwd = session.map(|session| session.cwd.clone());
        // At the level `strict` a translation runs outside of the operator's command, which may be a container without this
        // program.
        (child.program, child.args) = spec.settings.dialect.command(
            child.program,
            child.args,
            session.and_then(|session| session.restore.as_deref()),
            spec.settings.max_line_bytes,
        );
        let child = self
            .spawner
            .spawn(child)
            .await
            .map_err(|error| failed_spawn(error, key))?;
        let isolation = AppliedIsolation {
            agent_sandbox_off: !self.sandbox_off(spec).is_empty(),
            ..child.isolation()
        };
        let applied = IsolationApplied {
            agent: spec.name.clone(),
            level: isolation.level,
            mechanism: isolation.mechanism,
            process_id: child.pid(),
            user_id: child.user(),
        };
        self.audit.append(ActorKind::Gateway, applied);
        let folders = child.folders().cloned();
        let terminals = child.terminals().clone();
        let tree = child.tree();
        let handshake = Handshake {
            spec,
            key,
            version,
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
