//! An agent lists, reads and writes everything that it can reach. The test compares the result with a model of its level,
//! for each place of the data folder and of the workspace roots.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use super::ground::{
    Machine, Opened, SECRET, User, agents, open, order, outside_tmp, run_by, setup, start, variable,
};
use crate::support::places::{open_parent, project};
use crate::support::{Gateway, figure};

const LEVELS: [&str; 2] = ["private", "workspace"];
const MACHINES: [Machine; 2] = [Machine::Namespaces, Machine::LandlockOnly];

/// Folders that an agent replaces by its own ones, and hidden ones of every machine.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
const HIDDEN: [&str; 3] = ["/home", "/root", "/run"];

/// The content of the files that the agent may read.
const OPEN: &str = "everybody may read this";

/// Where the data folder and the workspace root are, two levels below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a folder that all processes share, or that is hidden.
    Below(&'static str),
    /// In a folder that is not hidden.
    Open,
    /// The data folder and the root are mount points.
    MountPoint,
    /// The configuration names both through a symbolic link.
    Link,
    /// A bind mount shows both at a second path.
    BindMount,
}

impl Place {
    fn parent(self) -> &'static Path {
        match self {
            Self::Below(parent) => Path::new(parent),
            Self::Open | Self::MountPoint | Self::Link | Self::BindMount => outside_tmp(),
        }
    }

    fn needs_root(self) -> bool {
        matches!(
            self,
            Self::Below("/run" | "/home") | Self::MountPoint | Self::BindMount
        )
    }

    /// The shell commands that mount, in a mount namespace of the gateway.
    fn mounts(self, base: &Path) -> Option<String> {
        let deep = base.join("x/deep");
        let second = base.join("second");
        let bind = |from: &Path, to: &Path| {
            format!("mount --bind '{}' '{}'", from.display(), to.display())
        };
        match self {
            Self::MountPoint => {
                let root = deep.join("root");
                Some(format!("{}; {}", bind(&deep, &deep), bind(&root, &root)))
            }
            Self::BindMount => Some(bind(&deep, &second)),
            Self::Below(_) | Self::Open | Self::Link => None,
        }
    }
}

/// The result of the agent at one path.
#[derive(Debug, Deserialize)]
struct Found {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    listed: bool,
    #[serde(default)]
    write: bool,
}

/// A gateway at a place, and a session of the hostile agent.
struct Walk {
    gateway: Gateway,
    session: Opened,
    base: TempDir,
    user: User,
    level: &'static str,
    machine: Machine,
    place: Place,
    root: PathBuf,
    /// The folder of the gateway: the home of the operator.
    operator: PathBuf,
    home: PathBuf,
}

impl Walk {
    async fn new(place: Place, user: User, machine: Machine, level: &'static str) -> Self {
        let base = tempfile::tempdir_in(place.parent()).expect("a folder");
        let path = |name: &str| base.path().join(name);
        for folder in [
            "x/deep/root/session",
            "x/deep/root/other",
            "second",
            "x/deep/tools",
        ] {
            std::fs::create_dir_all(path(folder)).expect("the folder is ours");
        }
        let is_open = !matches!(place, Place::Below(_));
        let beside = if is_open { OPEN } else { SECRET };
        for (name, content) in [
            ("beside", beside),
            ("x/beside", beside),
            ("x/deep/beside", beside),
            ("x/deep/root/other/secret", SECRET),
            ("x/deep/root/secret", SECRET),
            ("x/deep/root/session/own", OPEN),
        ] {
            std::fs::write(path(name), content).expect("the folder is ours");
        }
        symlink(path("x"), path("link")).expect("the folder is ours");
        user.own(base.path());
        let deep = if place == Place::Link {
            "link/deep"
        } else {
            "x/deep"
        };
        let root = path(deep).join("root");
        let deep = path(deep);
        let mut words: Vec<String> = Vec::new();
        if let Some(mounts) = place.mounts(base.path()) {
            let script = format!("set -e; mount --make-rprivate /; {mounts}; exec \"$@\"");
            words = ["unshare", "--mount", "sh", "-c", &script, "mounts"]
                .map(str::to_owned)
                .to_vec();
        }
        words.extend(run_by(user, machine));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let configured = setup(user, machine, level, "")
            .run_by(&words)
            .below(&deep)
            .settings(&format!("workspaces.allow = {}", json!([root])));
        let gateway = start(configured, user);
        let session = open(
            &gateway,
            &json!({ "agent": "hostile", "cwd": root.join("session") }),
        )
        .await;
        let pid = *agents(&gateway, "hostile").first().expect("it runs");
        let home = PathBuf::from(variable(pid, "HOME").expect("each agent has a home"));
        let real = |path: PathBuf| path.canonicalize().expect("it exists");
        Self {
            root: real(root),
            operator: real(gateway.path("")),
            home: real(home),
            gateway,
            session,
            base,
            user,
            level,
            machine,
            place,
        }
    }

    fn name(&self) -> String {
        format!("probe-{}", self.gateway.pid())
    }

    async fn found(&self) -> BTreeMap<PathBuf, Found> {
        let mut roots: Vec<PathBuf> = SHARED.iter().chain(&HIDDEN).map(PathBuf::from).collect();
        roots.extend([self.base.path().to_owned(), self.session.cwd.clone()]);
        roots.extend([self.root.clone(), self.operator.clone(), self.home.clone()]);
        let walk =
            json!({ "act": "walk", "roots": roots, "depth": 12, "quiet": [], "name": self.name() });
        let found = order(&self.gateway, &self.session, &walk, "walked.json").await;
        serde_json::from_value(found).expect("the report of the agent")
    }

    /// The folders that the agent can change at each level.
    fn granted(&self) -> [&Path; 2] {
        [&self.session.cwd, &self.home]
    }

    fn is_granted(&self, path: &Path) -> bool {
        self.granted().iter().any(|folder| path.starts_with(folder))
    }

    /// Folders of which the agent sees only the names that lead to its own folders.
    fn hidden(&self) -> Vec<PathBuf> {
        let mut hidden: Vec<PathBuf> = SHARED.iter().chain(&HIDDEN).map(PathBuf::from).collect();
        hidden.extend([self.root.clone(), self.operator.clone()]);
        if self.place == Place::BindMount {
            let deep = self.base.path().join("x/deep");
            for folder in [&self.root, &self.operator] {
                let below = folder.strip_prefix(&deep).expect("it is below");
                hidden.push(self.base.path().join("second").join(below));
            }
        }
        hidden
    }

    /// Folders whose paths the agent sees: its own ones, those of its programs and those of name resolution.
    fn named(&self) -> Vec<PathBuf> {
        let mut named: Vec<PathBuf> = self.granted().map(Path::to_path_buf).to_vec();
        named.push(self.operator.join("bin"));
        named.push(self.operator.join("data/tmp"));
        named.push(project().join("tests/isolation"));
        let resolution = [
            "/run/systemd/resolve",
            "/run/resolvconf",
            "/run/NetworkManager",
        ];
        named.extend(resolution.map(PathBuf::from));
        // Both folders for temporary files are one folder of the agent.
        let [tmp, var_tmp, _] = SHARED.map(Path::new);
        for (folder, other) in [(tmp, var_tmp), (var_tmp, tmp)] {
            let below = named
                .iter()
                .filter_map(|path| path.strip_prefix(folder).ok());
            let mirrored: Vec<PathBuf> = below.map(|below| other.join(below)).collect();
            named.extend(mirrored);
        }
        named
    }

    /// The difference between an entry and the model.
    fn difference(&self, path: &Path, found: &Found) -> Option<&'static str> {
        if found
            .content
            .as_deref()
            .is_some_and(|text| text.contains(SECRET))
        {
            return Some("a hidden file was read");
        }
        if self.is_granted(path) {
            return None;
        }
        let is_below = |folders: &[PathBuf]| folders.iter().any(|folder| path.starts_with(folder));
        let temporary = self.operator.join("data/tmp");
        let is_own = is_below(&[temporary]) || is_below(&SHARED.map(PathBuf::from));
        if is_below(&self.hidden()) {
            // Landlock shows metadata of names that the agent knows.
            let is_used = found.listed || found.write || found.content.is_some();
            let is_there = self.machine == Machine::Namespaces || is_used;
            let leads = self
                .named()
                .iter()
                .any(|named| named.starts_with(path) || path.starts_with(named));
            if is_there && !leads && !self.hidden().iter().any(|hidden| hidden == path) {
                return Some("a hidden name is visible");
            }
            if self.machine == Machine::LandlockOnly && is_used && !is_below(&self.named()) {
                return Some("a closed folder is open");
            }
            if found.write && !is_own {
                return Some("a hidden folder can be written");
            }
            return None;
        }
        let is_read_only = self.level == "workspace" || self.user == User::Root;
        (found.write && is_read_only).then_some("a read-only place can be written")
    }

    /// The folders below this one in which the agent created a file, as other processes see them.
    fn created_below(&self, folder: &Path, created: &mut Vec<PathBuf>) {
        if folder.join(self.name()).symlink_metadata().is_ok() {
            created.push(folder.to_owned());
        }
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.created_below(&entry.path(), created);
            }
        }
    }

    async fn check(&self) {
        let found = self.found().await;
        let differences: Vec<String> = found
            .iter()
            .filter_map(|(path, entry)| {
                Some(format!(
                    "{}: {}",
                    path.display(),
                    self.difference(path, entry)?
                ))
            })
            .collect();
        assert!(differences.is_empty(), "{self}: {differences:#?}");
        let may_change = |path: &Path| {
            let is_open = !self.hidden().iter().any(|hidden| path.starts_with(hidden));
            let temporary = self.operator.join("data/tmp");
            self.is_granted(path)
                || path.starts_with(temporary)
                || is_open && self.level == "private" && self.user != User::Root
        };
        let mut created = Vec::new();
        self.created_below(self.base.path(), &mut created);
        for shared in SHARED {
            if Path::new(shared).join(self.name()).exists() {
                created.push(shared.into());
            }
        }
        created.retain(|path| !may_change(path));
        assert!(created.is_empty(), "{self}: files appeared in {created:#?}");
        // The agent can work.
        for folder in self.granted() {
            let entry = found
                .get(folder)
                .unwrap_or_else(|| panic!("{self}: no {}", folder.display()));
            assert!(
                entry.listed && entry.write,
                "{self}: {} {entry:?}",
                folder.display()
            );
        }
        let own = found.get(&self.session.cwd.join("own"));
        assert_eq!(
            own.and_then(|own| own.content.as_deref()),
            Some(OPEN),
            "{self}"
        );
        if self.machine == Machine::Namespaces && !matches!(self.place, Place::Below(_)) {
            let beside = found.get(&self.base.path().join("beside"));
            assert_eq!(
                beside.and_then(|file| file.content.as_deref()),
                Some(OPEN),
                "{self}"
            );
        }
    }
}

impl std::fmt::Display for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            place,
            user,
            machine,
            level,
            ..
        } = self;
        write!(f, "{place:?} {user:?} {machine:?} {level}")
    }
}

async fn walk(place: Place) {
    if place.needs_root() && !geteuid().is_root() {
        figure("this test needs root");
        return;
    }
    if !matches!(place, Place::Below(_)) && open_parent().is_none() {
        figure("this test needs a folder that each level shows");
        return;
    }
    let users = User::all().into_iter();
    for user in users.filter(|user| user.range().is_none()) {
        for machine in MACHINES {
            for level in LEVELS {
                Walk::new(place, user, machine, level).await.check().await;
            }
        }
    }
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_below_tmp() {
    walk(Place::Below("/tmp")).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_below_var_tmp() {
    walk(Place::Below("/var/tmp")).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_below_shared_memory() {
    walk(Place::Below("/dev/shm")).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_below_run() {
    walk(Place::Below("/run")).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_below_home() {
    walk(Place::Below("/home")).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_in_an_open_folder() {
    walk(Place::Open).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_at_mount_points() {
    walk(Place::MountPoint).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_through_a_link() {
    walk(Place::Link).await;
}

#[tokio::test]
async fn agent_sees_the_model_of_its_level_beside_a_bind_mount() {
    walk(Place::BindMount).await;
}
