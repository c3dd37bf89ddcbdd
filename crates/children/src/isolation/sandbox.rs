//! The isolation that this gateway offers its children.
//!
//! Each start reads the list of mounts. It hides every path at which a bind mount shows a hidden folder, or a part of
//! a folder of the gateway. A part of another hidden folder stays visible.
//!
//! Folders of programs below hidden folders are read-only. A link among them cannot lead into another hidden folder,
//! because an agent with access to a home could replace it.
//!
//! At the level `workspace`, and for each child of root, the child can write only to its own folders.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::confinement::{Confinement, ProcessLimits, Readable, reported, shared_folders};
use super::policy::IsolationPolicy;
use super::probe::{self, Probed};
use super::users::{self, AgentUsers, UserError};
use crate::SpawnError;
use crate::mount_table::MountTable;
use crate::spec::ChildSpec;
use base::types::{AppliedIsolation, Isolation, Mechanism};

/// Homes of users, and the sockets of system services: a service manager would start programs without isolation.
const SYSTEM_HIDDEN: [&str; 3] = ["/home", "/root", "/run"];

/// The file that marks the folder of an installed agent. The agent sees the whole folder.
pub const PACKAGE_FILE: &str = "installed-agent.json";
/// Folders below hidden ones that the resolution of host names needs.
const NAME_RESOLUTION: [&str; 3] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];

/// The temporary folder of one child. Dropping it removes it with its content, which blocks.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create(parent: &Path, user: Option<u32>) -> io::Result<Self> {
        // Distinguishes the folder from those of other children.
        let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let path = parent.join(format!("{number:016x}"));
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&path)?;
        let folder = Self(path.canonicalize()?);
        if let Some(user) = user {
            users::make_searchable(parent)?;
            users::give_new_folder(&folder.0, user)?;
        }
        Ok(folder)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "could not remove a temporary folder");
        }
    }
}

/// Removes a folder with its content. The child may have removed the rights of its own folders.
fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_accessible(folder)?;
            std::fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

/// Adds the permissions that the removal needs. The child has ended, so it cannot replace a folder with a link.
fn make_accessible(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_accessible(&entry.path())?;
        }
    }
    Ok(())
}

/// The folders that children must not see, and the mechanism that hides them.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    probed: Probed,
    /// The data folder, the workspace roots and the homes of users.
    hidden: Vec<PathBuf>,
    /// The folders of the gateway among them.
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
    /// The parent of temporary folders.
    temporary: PathBuf,
    policy: IsolationPolicy,
    /// The users of children. Without it, children have the user of the gateway.
    users: Option<AgentUsers>,
}

impl Sandbox {
    /// Isolates nothing.
    pub fn disabled() -> Self {
        Self::unavailable(IsolationPolicy {
            allow_root: true,
            ..IsolationPolicy::default()
        })
    }
    /// Isolates nothing, and starts nothing that the policy requires to be isolated.
    pub fn unavailable(policy: IsolationPolicy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Probes the mechanisms by performing their operations. Blocks for some milliseconds. `hidden` are the folders of
    /// the gateway, and `home` is that of its operator.
    pub fn probe(
        supervisor: &Path,
        hidden: Vec<PathBuf>,
        home: Option<PathBuf>,
        temporary: PathBuf,
        policy: IsolationPolicy,
    ) -> Self {
        // A folder that does not exist yet is hidden by its name. Nothing below `/` would remain visible.
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let has_parent = |path: &PathBuf| path.parent().is_some();
        let own = hidden.into_iter().map(real).filter(has_parent);
        let own: Vec<PathBuf> = own.collect();
        // Landlock cannot hide a folder without its parents, so folders of missing services are not hidden.
        let services = probe::OUTSIDE.map(|(folder, _)| PathBuf::from(folder));
        let services = services.into_iter().filter(|folder| folder.is_dir());
        let others = home.iter().cloned();
        let others = others
            .chain(SYSTEM_HIDDEN.map(PathBuf::from))
            .chain(services);
        let others = others.map(real).filter(has_parent);
        let hidden = own.iter().cloned().chain(others).collect();
        // Children of an earlier gateway process left their folders if it was killed.
        let _ = remove(&temporary);
        // Without a folder, the probe of sockets fails, and sockets count as open.
        let folder = TemporaryFolder::create(&temporary, None).ok();
        let in_folder = folder.as_ref().map_or(Path::new("/"), |folder| &folder.0);
        let probed = probe::run(supervisor, in_folder, policy.run_as);
        drop(folder);
        let mut sandbox = Self {
            probed,
            hidden,
            own,
            home,
            temporary,
            policy,
            users: None,
        };
        if let Some(socket) = sandbox.open_service() {
            let socket = socket.display();
            let text = format!("landlock: agents can connect to {socket}");
            sandbox.probed.limit(&text);
        }
        sandbox
    }

    #[must_use]
    pub fn with_users(mut self, users: Option<AgentUsers>) -> Self {
        self.users = users;
        self
    }

    /// Makes a folder usable for the children with this home. Blocks.
    pub fn own_folder(&self, folder: &Path, home: &Path) -> Result<(), UserError> {
        match &self.users {
            Some(users) => users.own_folder(folder, home),
            None => Ok(()),
        }
    }

    /// The socket of a service that would start programs outside of a child's isolation, and that the mechanism cannot
    /// close.
    fn open_service(&self) -> Option<PathBuf> {
        if self.probed.is_partial
            || self.probed.mechanism != Mechanism::Landlock
            || !self.probed.leaves_sockets_open
        {
            return None;
        }
        probe::first_reachable(self.home.as_deref(), self.policy.run_as.is_some())
    }

    pub fn applied(&self, level: Isolation) -> AppliedIsolation {
        AppliedIsolation {
            level,
            mechanism: reported(self.mechanism(level), self.is_partial(level)),
            ..AppliedIsolation::default()
        }
    }

    /// The means that applies a level, also if it does so partially.
    pub fn mechanism(&self, level: Isolation) -> Mechanism {
        match level {
            Isolation::Off => Mechanism::None,
            Isolation::Strict => Mechanism::Command,
            Isolation::Private | Isolation::Workspace => self.probed.mechanism,
        }
    }

    fn is_partial(&self, level: Isolation) -> bool {
        matches!(level, Isolation::Private | Isolation::Workspace) && self.probed.is_partial
    }

    /// What the machine lacks for the best mechanism, for the log.
    pub fn shortcoming(&self) -> Option<&str> {
        self.probed.shortcoming.as_deref()
    }

    /// The instructions for the supervisor, with the temporary folder of the child.
    pub(crate) fn confinement(
        &self,
        spec: &ChildSpec,
    ) -> Result<(Confinement, Option<TemporaryFolder>), SpawnError> {
        let user = self.users.as_ref().map(|users| users.user_of(&spec.home));
        let user = user.transpose()?;
        if user.is_none() && geteuid().is_root() && !self.policy.allow_root {
            return Err(SpawnError::Root);
        }
        let (confinement, temporary) = self.decide(spec, user).map_err(SpawnError::Supervisor)?;
        let level = spec.isolation.level;
        let mechanism = confinement.reported();
        if self.policy.required && level != Isolation::Off && !mechanism.is_complete() {
            return Err(SpawnError::Isolation { level, mechanism });
        }
        Ok((confinement, temporary))
    }

    fn decide(
        &self,
        spec: &ChildSpec,
        user: Option<u32>,
    ) -> io::Result<(Confinement, Option<TemporaryFolder>)> {
        let level = spec.isolation.level;
        let mechanism = self.mechanism(level);
        let mut writable = vec![spec.home.canonicalize()?];
        if !matches!(mechanism, Mechanism::Namespaces | Mechanism::Landlock) {
            let confinement = Confinement {
                mechanism,
                writable,
                user,
                cwd: spec.cwd.clone(),
                ..Confinement::default()
            };
            return Ok((confinement, None));
        }
        let temporary = TemporaryFolder::create(&self.temporary, user)?;
        writable.extend(spec.isolation.folders.iter().cloned());
        let is_folder = |path: &PathBuf| path.is_dir();
        let configured = spec.isolation.configured.iter();
        let mut visible: Vec<PathBuf> =
            configured.filter(|path| is_folder(path)).cloned().collect();
        visible.extend(writable.iter().cloned());
        visible.sort();
        visible.dedup();
        let own = NAME_RESOLUTION.map(|path| (PathBuf::from(path), PathBuf::from(path)));
        let hidden = self.hidden_paths()?;
        let readable = self.program_folders(spec, &hidden).into_iter().chain(own);
        let readable = readable.filter(|(_, path)| is_folder(path) && !visible.contains(path));
        let readable = readable
            .filter_map(|(named, path)| self.readable(&named, path, &visible))
            .collect();
        let confinement = Confinement {
            mechanism,
            is_partial: self.is_partial(level) || self.is_limited_by(&hidden, &visible),
            hidden,
            own: self.own.clone(),
            visible,
            readable,
            writable,
            temporary: Some(temporary.0.clone()),
            // The files of the system belong to root, so a root process could change them.
            read_only: level == Isolation::Workspace || user.is_none() && geteuid().is_root(),
            user,
            env: Vec::new(),
            cwd: spec.cwd.clone(),
            maximum: ProcessLimits {
                processes: Some(spec.isolation.limits.max_processes),
                data_bytes: Some(spec.isolation.limits.max_memory_bytes),
            },
        };
        Ok((confinement, Some(temporary)))
    }

    /// The hidden folders with all paths at which bind mounts show them, or a part of a folder of the gateway. A bind mount
    /// of a part of another folder is a decision of the operator.
    fn hidden_paths(&self) -> io::Result<Vec<PathBuf>> {
        let table = MountTable::read()?;
        let shared: Vec<PathBuf> = shared_folders().collect();
        let mut hidden = self.hidden.clone();
        for folder in self.hidden.iter().chain(&shared) {
            let location = table.location(folder);
            let shown = location.map(|location| table.paths_of(&location));
            for shown in shown.into_iter().flatten() {
                let is_closed = !shown.is_part || self.own.contains(folder);
                let is_known = shown.path.starts_with(folder)
                    || hidden.contains(&shown.path)
                    || shared.contains(&shown.path);
                if is_closed && !is_known && shown.path.parent().is_some() {
                    hidden.push(shown.path);
                }
            }
        }
        Ok(hidden)
    }

    /// Landlock cannot close a folder below a visible one, nor the socket of a service on most kernels. A service may
    /// have started after the gateway.
    fn is_limited_by(&self, hidden: &[PathBuf], visible: &[PathBuf]) -> bool {
        if self.probed.mechanism != Mechanism::Landlock {
            return false;
        }
        let has_hidden = |folder: &PathBuf| hidden.iter().any(|hidden| hidden.starts_with(folder));
        if visible.iter().any(has_hidden) {
            return true;
        }
        let Some(socket) = self.open_service() else {
            return false;
        };
        tracing::warn!(socket = %socket.display(), "an agent can connect to the socket of a service that starts programs");
        true
    }

    /// A folder that the child can read. `named` is its path, or the path of a link to a program in it. An agent that can
    /// write to the home of the operator can replace both, so they must not lead to another hidden folder.
    fn readable(&self, named: &Path, path: PathBuf, visible: &[PathBuf]) -> Option<Readable> {
        let real = path.canonicalize().ok()?;
        if real != named && !self.may_lead(named, &real) {
            tracing::warn!(path = %named.display(), to = %real.display(), "a folder of programs leads to a hidden folder; the agent does not see it");
            return None;
        }
        // A visible folder contains the link.
        let has_link = visible.iter().any(|folder| path.starts_with(folder));
        Some(Readable {
            path: if has_link { real.clone() } else { path },
            real,
        })
    }

    /// Whether a link may lead to a folder: out of the hidden folders, or to another place in the same one. A link outside
    /// of them may lead to a home.
    fn may_lead(&self, link: &Path, real: &Path) -> bool {
        let nearest = |path: &Path| {
            let around = self.hidden.iter().filter(|hidden| path.starts_with(hidden));
            around.max_by_key(|hidden| hidden.components().count())
        };
        let leads_inside = nearest(real).is_some_and(|hidden| match nearest(link) {
            Some(around) => around != hidden,
            None => self.own.contains(hidden),
        });
        !leads_inside && !self.hidden.iter().any(|hidden| hidden.starts_with(real))
    }

    /// The version managers whose shims the child can find on its PATH, or whose shim is its program.
    fn version_managers(&self, spec: &ChildSpec) -> Vec<Installation> {
        let named = spec.program.parent().map(Path::to_path_buf);
        let folders = named.into_iter().chain(folders_of_path(spec));
        let mut found: Vec<Installation> = Vec::new();
        for installation in folders.filter_map(|folder| installation(&folder)) {
            let root = &installation.root;
            let is_hidden = self.hidden.iter().any(|hidden| root.starts_with(hidden));
            if is_hidden && !found.contains(&installation) {
                found.push(installation);
            }
        }
        found
    }

    /// Adds the variables that shims of version managers need, because the child has another HOME.
    pub(crate) fn add_variables(&self, spec: &mut ChildSpec) {
        for installation in self.version_managers(spec) {
            add_variables(&mut spec.env, &installation);
        }
    }

    /// The folders of programs below hidden folders: of the program itself and of its `PATH`, each with the
    /// libraries beside it. The first path of each pair names the second one, or a link to a program in it.
    fn program_folders(&self, spec: &ChildSpec, hidden: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
        let listed = folders_of_path(spec);
        let named = spec.program.parent().map(Path::to_path_buf);
        let program = spec.program.canonicalize().ok();
        let real = program
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_path_buf);
        let own = named.iter().flat_map(|named| {
            let folders = [Some(named), real.as_ref()].into_iter().flatten();
            folders.map(|folder| (named.clone(), folder.clone()))
        });
        // The files of an installed agent are not only beside its program.
        let is_package = |folder: &&Path| folder.join(PACKAGE_FILE).is_file();
        let package = spec.program.ancestors().skip(1).find(is_package);
        let interpreter = package.and_then(interpreter_folder);
        let package = package
            .map(Path::to_path_buf)
            .into_iter()
            .chain(interpreter);
        let managed = self
            .version_managers(spec)
            .into_iter()
            .map(|found| found.root);
        let unlinked = listed.into_iter().map(|folder| (folder.clone(), folder));
        let unlinked_too = package
            .chain(managed)
            .map(|folder| (folder.clone(), folder));
        // A hidden folder itself stays hidden, even if a program lies directly in it.
        let hidden: Vec<PathBuf> = hidden.iter().cloned().chain(shared_folders()).collect();
        let below_hidden = |folder: &PathBuf| {
            let mut hidden = hidden.iter();
            hidden.any(|hidden| folder != hidden && folder.starts_with(hidden))
        };
        let with_libraries = |(named, folder): (PathBuf, PathBuf)| {
            let libraries = folder
                .ends_with("bin")
                .then(|| folder.with_file_name("lib"));
            let libraries = libraries.map(|libraries| (named.clone(), libraries));
            std::iter::once((named, folder)).chain(libraries)
        };
        let folders = unlinked.chain(own).chain(unlinked_too);
        folders
            .filter(|(_, folder)| folder.is_absolute() && below_hidden(folder))
            .flat_map(with_libraries)
            .collect()
    }
}

fn folders_of_path(spec: &ChildSpec) -> Vec<PathBuf> {
    let path = spec.env.iter().find(|(name, _)| name == "PATH");
    path.into_iter()
        .flat_map(|(_, value)| std::env::split_paths(value))
        .collect()
}

/// The folder of the Python that runs the virtual environment of an installed agent. The agent cannot change its package.
fn interpreter_folder(package: &Path) -> Option<PathBuf> {
    let python = package.join("venv/bin/python").canonicalize().ok()?;
    let is_python = python.file_name()?.to_str()?.starts_with("python");
    let folder = python.parent()?;
    (is_python && folder.ends_with("bin")).then(|| folder.to_owned())
}

/// The installation of a version manager. Its shims start the programs below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Installation {
    /// The folder with the versions.
    pub(super) root: PathBuf,
    /// The variables that name it. Without them, a shim searches below HOME, which the agent has for itself.
    pub(super) variables: Vec<(&'static str, PathBuf)>,
}

/// Managers with a folder `shims` beside a file that identifies them.
const WITH_SHIMS: [(&str, &[&str]); 6] = [
    ("libexec/pyenv", &["PYENV_ROOT"]),
    ("libexec/rbenv", &["RBENV_ROOT"]),
    ("libexec/nodenv", &["NODENV_ROOT"]),
    ("libexec/goenv", &["GOENV_ROOT"]),
    ("bin/asdf", &["ASDF_DIR", "ASDF_DATA_DIR"]),
    // Both asdf and mise. mise has its program elsewhere.
    ("installs", &["ASDF_DATA_DIR", "MISE_DATA_DIR"]),
];

/// The installation of a version manager to which a folder of programs belongs.
pub(super) fn installation(folder: &Path) -> Option<Installation> {
    let beside = folder.parent()?;
    if folder.ends_with("shims") {
        let mut managers = WITH_SHIMS.into_iter();
        let (_, names) = managers.find(|(marker, _)| beside.join(marker).exists())?;
        let variables = names.iter().map(|name| (*name, beside.to_owned()));
        return Some(Installation {
            root: beside.to_owned(),
            variables: variables.collect(),
        });
    }
    if !folder.ends_with("bin") {
        return None;
    }
    if folder.join("volta-shim").exists() {
        return Some(Installation {
            root: beside.to_owned(),
            variables: vec![("VOLTA_HOME", beside.to_owned())],
        });
    }
    let toolchains = beside.with_file_name(".rustup");
    (folder.join("rustup").exists() && toolchains.is_dir()).then(|| Installation {
        variables: vec![("RUSTUP_HOME", toolchains.clone())],
        root: toolchains,
    })
}

/// Adds variables that the environment does not have.
pub(super) fn add_variables(env: &mut Vec<(OsString, OsString)>, installation: &Installation) {
    for (name, root) in &installation.variables {
        if env.iter().all(|(known, _)| known != name) {
            env.push(((*name).into(), root.clone().into()));
        }
    }
}

#[cfg(test)]
mod version_managers_tests {
    use super::*;

    fn found(files: &[&str], folder: &str) -> Option<(PathBuf, Vec<&'static str>)> {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let path = home.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = installation(&home.path().join(folder))?;
        let names = found.variables.iter().map(|(name, _)| *name).collect();
        let root = found.root.strip_prefix(home.path()).unwrap();
        Some((root.to_owned(), names))
    }

    #[test]
    fn folder_of_shims_names_its_manager() {
        for (files, folder, root, name) in [
            (
                &[".pyenv/libexec/pyenv"][..],
                ".pyenv/shims",
                ".pyenv",
                "PYENV_ROOT",
            ),
            (&[".asdf/bin/asdf"], ".asdf/shims", ".asdf", "ASDF_DIR"),
            (
                &["share/mise/installs/node/file"],
                "share/mise/shims",
                "share/mise",
                "MISE_DATA_DIR",
            ),
            (
                &[".volta/bin/volta-shim"],
                ".volta/bin",
                ".volta",
                "VOLTA_HOME",
            ),
            (
                &[".cargo/bin/rustup", ".rustup/settings.toml"],
                ".cargo/bin",
                ".rustup",
                "RUSTUP_HOME",
            ),
        ] {
            let (found, names) = found(files, folder).expect(folder);
            assert_eq!(found, Path::new(root));
            assert!(names.contains(&name), "{names:?}");
        }
    }

    #[test]
    fn other_folders_of_programs_need_nothing() {
        assert_eq!(found(&["tools/bin/program"], "tools/bin"), None);
        assert_eq!(found(&["tools/shims/program"], "tools/shims"), None);
        assert_eq!(found(&[".cargo/bin/rustup"], ".cargo/bin"), None);
    }

    #[test]
    fn variable_of_the_entry_has_precedence() {
        let installation = Installation {
            root: "/home/u/.pyenv".into(),
            variables: vec![("PYENV_ROOT", "/home/u/.pyenv".into())],
        };
        let mut env = vec![("PYENV_ROOT".into(), "/other".into())];
        add_variables(&mut env, &installation);
        assert_eq!(env, [("PYENV_ROOT".into(), "/other".into())]);
    }
}
