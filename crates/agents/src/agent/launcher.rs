//! Starts agents as child processes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::failure::{AgentFailure, with_cause};
use super::handshake::{Handshake, v2_process};
use super::idle_folder::{IdleFolder, IdleFolders};
use super::process::{FailedStart, HostAccess, Process, ProcessKey, SessionStart};
use super::spec::{AgentSpec, Endpoint, INVALID_ENTRY};
use super::telemetry::{TelemetryAdmission, TelemetrySources};
use super::transport::stdio;
use crate::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{AgentName, AppliedIsolation, FolderError, Isolation, Mechanism, Tenant};
use children::{
    ChildIsolation, ChildSpec, PtyChild, PtyReader, PtySize, PtyWriter, SpawnError, Spawner,
    resolve,
};
use events::event::{ActorKind, IsolationApplied};
use log::audit::Audit;
use wire::acp::AcpVersion;
use wire::acp::auth::TerminalAuth;

#[derive(Debug, Clone)]
pub struct Launcher {
    pub(super) spawner: Spawner,
    limits: Arc<Limits>,
    shutdown: Shutdown,
    audit: Audit,
    version: &'static str,
    /// Processes can start with a folder before their session exists.
    idle_folders: IdleFolders,
    /// `None` if no entry enabled telemetry at the start of the gateway.
    telemetry: Option<TelemetrySources>,
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
        idle_folders: IdleFolders,
        telemetry: Option<TelemetrySources>,
    ) -> Self {
        Self {
            spawner,
            limits,
            shutdown,
            audit,
            version,
            idle_folders,
            telemetry,
            v1_only: Arc::default(),
        }
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
        let sandbox = self.spawner.sandbox();
        let Some(known) = spec.known else {
            return Vec::new();
        };
        // Agents mount file systems for their own sandboxes.
        if sandbox.mechanism(spec.settings.isolation) != Mechanism::Landlock {
            return Vec::new();
        }
        let variables = known.row.sandbox_off().iter();
        variables
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
        // A running process in namespaces can get the folders of its session.
        let grants_later = level == Isolation::Strict
            || self.spawner.sandbox().mechanism(level) == Mechanism::Namespaces;
        if !level.restricts_folders() || grants_later {
            return None;
        }
        let folders = self.idle_folders.clone();
        let spawner = self.spawner.clone();
        let home = spec.home_of(tenant);
        let create = move || {
            let folder = folders.create()?;
            let owned = spawner.sandbox().own_folder(folder.path(), &home);
            owned.map_err(io::Error::other)?;
            Ok(folder)
        };
        let created: io::Result<IdleFolder> = self.shutdown.spawn_blocking(create).await.ok()?;
        let failed =
            |error: &_| tracing::warn!(%error, "could not create the folder of an idle process");
        created.inspect_err(failed).ok()
    }

    /// Starts the agent with the newest version that the agent and its entry support.
    pub async fn launch(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        let v1_only = lock_or_abort(self.v1_only.lock()).get(&spec.name).cloned();
        let known = v1_only.is_some_and(|older| Arc::ptr_eq(&older, spec));
        if !known && spec.requests_v2() {
            let started = self.start(spec, key, AcpVersion::V2);
            let started = started.instrument(process_span()).await;
            if let Some(process) = v2_process(started).await? {
                return Ok(process);
            }
            tracing::info!("the agent supports only version 1 of the protocol");
            lock_or_abort(self.v1_only.lock()).insert(spec.name.clone(), Arc::clone(spec));
        }
        let started = self.start(spec, key, AcpVersion::V1);
        started.instrument(process_span()).await
    }

    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        version: AcpVersion,
    ) -> Result<Process, FailedStart> {
        let folders = key.folders.clone();
        let mut child = self.child_spec(spec, &key.tenant, folders).await?;
        let session = key.session.as_ref();
        child.cwd = session.map(|session| session.cwd.clone());
        let telemetry = self.admit_telemetry(spec);
        if let Some(telemetry) = &telemetry {
            child.env.extend(telemetry.variables(spec));
            child.secrets.push(telemetry.token().to_owned());
        }
        // At the level `strict` a translation runs outside of the operator's command, which may be a container without this
        // program.
        (child.program, child.args) = spec.settings.dialect.command(
            child.program,
            child.args,
            session.and_then(|session| session.restore.as_deref()),
            spec.settings.max_line_bytes,
        );
        let spawned = self.spawner.spawn(child).await;
        let child = spawned.map_err(|error| failed_spawn(error, key))?;
        Span::current().record("pid", child.pid);
        let isolation = AppliedIsolation {
            agent_sandbox_off: !self.sandbox_off(spec).is_empty(),
            ..child.isolation
        };
        let applied = IsolationApplied {
            agent: spec.name.clone(),
            level: isolation.level,
            mechanism: isolation.mechanism,
            process_id: child.pid,
            user_id: child.user,
        };
        self.audit.append(ActorKind::Gateway, applied);
        let pid = child.pid;
        let folders = child.folders.clone();
        let terminals = child.terminals.clone();
        let tree = child.tree();
        let handshake = Handshake {
            spec,
            key,
            version,
            gateway_version: self.version,
            telemetry_token: telemetry.as_ref().map(TelemetryAdmission::token),
        };
        let channel = stdio::open(child);
        let mut process = handshake.run(channel, &self.limits, &self.shutdown).await?;
        let noted = tree.clone();
        let noted = self.shutdown.spawn_blocking(move || noted.with_baseline());
        let tree = noted.await.unwrap_or(tree);
        process.host = Some(HostAccess {
            pid,
            terminals,
            tree,
            isolation,
            folders,
            telemetry,
        });
        Ok(process)
    }

    /// Admits the telemetry of a new process, if its entry enables it.
    fn admit_telemetry(&self, spec: &AgentSpec) -> Option<TelemetryAdmission> {
        if !spec.settings.telemetry {
            return None;
        }
        if self.telemetry.is_none() {
            tracing::warn!(
                "the agent sends no telemetry: `telemetry` of its entry takes effect at the next start of the gateway"
            );
        }
        let sources = self.telemetry.as_ref()?;
        Some(sources.admit(&spec.name))
    }

    /// The configured command with the home of the tenant, which is created if necessary.
    pub(super) async fn child_spec(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        folders: Vec<PathBuf>,
    ) -> Result<ChildSpec, AgentFailure> {
        let home = spec.home_of(tenant);
        let owner = Arc::clone(spec);
        let of = tenant.clone();
        let create = move || owner.create_home(&of);
        let created = self.shutdown.spawn_blocking(create).await;
        if let Ok(Err(error)) = created {
            let detail = format!("could not create its home {}: {error}", home.display());
            return Err(AgentFailure::start(detail));
        }
        let mut env = spec.env.clone();
        env.push(("HOME".into(), home.clone().into()));
        for (name, value) in self.sandbox_off(spec) {
            tracing::info!(agent = %spec.name, name, value, "the agent's own sandbox is off: it fails with Landlock");
            env.push((name.into(), value.into()));
        }
        let (program, args) = command(spec, &home, &folders)?;
        let isolation = ChildIsolation {
            level: spec.settings.isolation,
            folders,
            configured: spec.settings.folders.clone(),
            limits: spec.settings.resources,
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

/// The span of the log lines about one process.
fn process_span() -> Span {
    tracing::error_span!("process", pid = Empty)
}

/// The failure of a spawn. A missing folder of the session concerns only that session.
fn failed_spawn(error: SpawnError, key: &ProcessKey) -> AgentFailure {
    match (error, &key.session) {
        // If the child cannot enter the folder, its report contains no path.
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
        return Err(AgentFailure::start(INVALID_ENTRY));
    };
    if spec.settings.isolation != Isolation::Strict {
        return Ok((agent.clone(), args.clone()));
    }
    let cwd = folders.first().map_or(home, PathBuf::as_path);
    let cwd = cwd.to_string_lossy();
    let fill = |word: &String| {
        word.replace("{cwd}", &cwd)
            .replace("{home}", &home.to_string_lossy())
    };
    let mut words = spec.settings.isolation_command.iter().map(fill);
    let first = words.next().unwrap_or_default();
    let path = spec.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
    let program =
        resolve(first.as_ref(), &path).map_err(|error| AgentFailure::start(with_cause(&error)))?;
    let own = std::iter::once(agent.clone().into()).chain(args.iter().cloned());
    Ok((program, words.map(OsString::from).chain(own).collect()))
}

/// The running command. Dropping it stops it and all its descendants.
#[derive(Debug)]
pub struct Terminal {
    pub output: PtyReader,
    pub input: PtyWriter,
    pub command: PtyChild,
}

impl Launcher {
    /// Runs the configured command with the additions of the method, and never another command.
    pub async fn run_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        method: &TerminalAuth,
        size: PtySize,
    ) -> Result<Terminal, AgentFailure> {
        let mut child = self.child_spec(spec, tenant, Vec::new()).await?;
        child.args.extend(method.args.iter().map(Into::into));
        for (name, value) in &method.env {
            child.env.retain(|(known, _)| known != name.as_str());
            child.env.push((name.into(), value.into()));
        }
        let spawned = self.spawner.spawn_pty(child, size).await;
        let mut child = spawned.map_err(AgentFailure::from)?;
        let output = child.reader.take().expect("a new child has its terminal");
        let input = child.writer.take().expect("a new child has its terminal");
        Ok(Terminal {
            output,
            input,
            command: child,
        })
    }
}
