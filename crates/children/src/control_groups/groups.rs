//! The control groups of this gateway process.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::getpid;
use serde::{Deserialize, Serialize};

use super::group::{CHILD_CONTROLLERS, ChildGroup, Group, MEMORY, PIDS, PROCESSES};
use crate::mount_table::{Mount, MountTable, join};
use crate::procfs;
use crate::spec::ResourceLimits;

const CONTROLLERS: [&str; 2] = [PIDS, MEMORY];

/// The group of the gateway itself below its tree.
const GATEWAY: &str = "gateway";

/// The wait for a child at the end of the gateway. All children have ended before.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why children have no control groups.
#[derive(Debug, Default, thiserror::Error)]
enum Unavailable {
    #[default]
    #[error("this process creates none")]
    Disabled,
    #[error("no mount of cgroup2 shows the group of the gateway")]
    NotMounted,
    #[error("could not read /proc: {0}")]
    Proc(#[source] io::Error),
    #[error("could not create a group in {}: {source}", folder.display())]
    NotDelegated { folder: PathBuf, source: io::Error },
    #[error("the kernel has no cgroup.kill (Linux 5.14)")]
    NoKill,
    #[error("could not write the record of the groups: {0}")]
    Record(#[source] io::Error),
}

/// The control groups of children, or the reason why there are none.
#[derive(Debug)]
pub struct ControlGroups(Result<Tree, Unavailable>);

#[derive(Debug)]
struct Tree {
    group: Group,
    own: Group,
    /// The group that this process left, because a group with controllers below may have no processes.
    left: Option<Group>,
    controllers: Vec<&'static str>,
    shortcoming: Option<String>,
    next_child: AtomicU64,
    record: PathBuf,
}

impl Default for ControlGroups {
    fn default() -> Self {
        Self(Err(Unavailable::default()))
    }
}

impl ControlGroups {
    /// Creates the group of this process's children, and enables controllers as far as the machine permits it. `record`
    /// is the file that names the group for the next start. Blocks for some milliseconds.
    ///
    /// Call it before this process starts others: a process that stays in the previous group would prevent controllers.
    pub fn open(record: &Path) -> Self {
        Self(Tree::open(record))
    }

    pub(crate) fn create_child(&self, limits: ResourceLimits) -> io::Result<Option<ChildGroup>> {
        let Ok(tree) = &self.0 else { return Ok(None) };
        let name = tree.next_child.fetch_add(1, Ordering::Relaxed).to_string();
        ChildGroup::create(&tree.group, &name, limits, &tree.controllers).map(Some)
    }

    /// Begins a wait of the kernel that otherwise delays the start of a child. Blocks for that time.
    ///
    /// A process enters a group only after a grace period of the kernel, about 10 ms, unless another process did so
    /// just before. This process enters the group in which it is, while the supervisor of the child starts.
    pub(crate) fn prepare_entrance(&self) {
        if let Ok(tree) = &self.0 {
            // Without it, the child starts later.
            tree.own.write(PROCESSES, "0").unwrap_or_default();
        }
    }

    /// Whether the kernel counts the processes of each child.
    pub(crate) fn limit_processes(&self) -> bool {
        let tree = self.0.as_ref();
        tree.is_ok_and(|tree| tree.controllers.contains(&PIDS))
    }

    /// Removes the groups at the end of the gateway, after the end of all children. Blocks.
    pub fn close(&self) {
        let Ok(tree) = &self.0 else { return };
        if let Err(error) = tree.close() {
            // The next start removes them.
            tracing::warn!(group = %tree.group.folder().display(), %error, "could not remove the control groups");
        }
    }
}

impl fmt::Display for ControlGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = match &self.0 {
            Ok(tree) => tree,
            Err(reason) => return write!(f, "not used: {reason}"),
        };
        match &*tree.controllers {
            [] => f.write_str("used without limits")?,
            enabled => write!(f, "used with limits ({})", enabled.join(", "))?,
        }
        match &tree.shortcoming {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl Tree {
    fn open(record: &Path) -> Result<Self, Unavailable> {
        let mut outcome = Err(Unavailable::NotMounted);
        for own in OwnGroup::find().map_err(Unavailable::Proc)? {
            outcome = Self::create(&own, record);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn create(own: &OwnGroup, record: &Path) -> Result<Self, Unavailable> {
        let failed = |source| {
            let folder = own.group.folder().to_owned();
            Unavailable::NotDelegated { folder, source }
        };
        let id = getrandom::u64().map_err(|error| failed(io::Error::other(error.to_string())))?;
        let group = own.group.create(&format!("acp-gateway-{id:016x}"));
        let group = group.map_err(failed)?;
        let checked = if group.can_be_killed() {
            write_record(record, &group).map_err(Unavailable::Record)
        } else {
            Err(Unavailable::NoKill)
        };
        if let Err(reason) = checked {
            // The group is empty, and nothing depends on it.
            group.remove().unwrap_or_default();
            return Err(reason);
        }
        let mut tree = Self {
            group,
            own: own.group.clone(),
            left: None,
            controllers: Vec::new(),
            shortcoming: None,
            next_child: AtomicU64::new(1),
            record: record.to_owned(),
        };
        tree.shortcoming = tree.enable_controllers(own).err();
        Ok(tree)
    }

    /// Enables the controllers for the groups of children. The error names those that are missing.
    fn enable_controllers(&mut self, own: &OwnGroup) -> Result<(), String> {
        let offered = own.group.read("cgroup.controllers").unwrap_or_default();
        let is_offered = |name: &&str| offered.split_ascii_whitespace().any(|one| one == *name);
        let (available, missing): (Vec<_>, Vec<_>) = CONTROLLERS.into_iter().partition(is_offered);
        let no_controller = |name| format!("the group has no controller {name}");
        let mut reasons: Vec<String> = missing.into_iter().map(no_controller).collect();
        if !available.is_empty() && !own.is_of_machine() {
            let entered = self.enter_own_group(own);
            entered.map_err(|error| format!("could not move the gateway: {error}"))?;
        }
        for name in available {
            let change = format!("+{name}");
            let enabled = own.group.write(CHILD_CONTROLLERS, &change);
            let enabled = enabled.and_then(|()| self.group.write(CHILD_CONTROLLERS, &change));
            match enabled {
                Ok(()) => self.controllers.push(name),
                Err(error) => {
                    reasons.push(format!("could not enable the controller {name}: {error}"));
                }
            }
        }
        if self.controllers.is_empty()
            && let Err(error) = self.return_processes()
        {
            reasons.push(format!("could not move the gateway back: {error}"));
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons.join("; "))
        }
    }

    /// Moves this process below the tree, and the other processes of its container.
    fn enter_own_group(&mut self, own: &OwnGroup) -> io::Result<()> {
        let entered = self.group.create(GATEWAY)?;
        self.left = Some(own.group.clone());
        entered.write(PROCESSES, "0")?;
        self.own = entered.clone();
        if own.is_first {
            for pid in own.group.processes()? {
                // A process that has ended needs no move. Another failure appears when a controller is enabled.
                let moved = entered.write(PROCESSES, &pid.to_string());
                moved.unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Moves all processes back to the group that they left. Its groups must have no controllers then.
    fn return_processes(&mut self) -> io::Result<()> {
        let Some(left) = self.left.take() else {
            return Ok(());
        };
        self.own = left.clone();
        move_back(&self.group, &left)
    }

    fn close(&self) -> io::Result<()> {
        for child in self.group.children()? {
            if self.left.is_none() || !child.folder().ends_with(GATEWAY) {
                child.end(CLOSE_TIMEOUT)?;
                child.remove()?;
            }
        }
        if let Some(left) = &self.left {
            for name in &self.controllers {
                let change = format!("-{name}");
                self.group.write(CHILD_CONTROLLERS, &change)?;
                left.write(CHILD_CONTROLLERS, &change)?;
            }
            move_back(&self.group, left)?;
        }
        if self.group.folder().exists() {
            self.group.remove()?;
        }
        fs::remove_file(&self.record)
    }
}

/// Moves the gateway and its supervisors to `left`, and removes their group.
fn move_back(tree: &Group, left: &Group) -> io::Result<()> {
    let entered = Group::at(tree.folder().join(GATEWAY));
    for pid in entered.processes()? {
        match left.write(PROCESSES, &pid.to_string()) {
            // It has ended.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            moved => moved?,
        }
    }
    entered.remove()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnGroup {
    pub(super) group: Group,
    /// It is the first group of a namespace: all its processes belong to one container, or to the machine.
    pub(super) is_first: bool,
}

impl OwnGroup {
    /// The group as each mount of the file system shows it.
    pub(super) fn find() -> io::Result<Vec<Self>> {
        let path = own_path(&fs::read_to_string("/proc/self/cgroup")?);
        let Some(path) = path else {
            return Ok(Vec::new());
        };
        let is_first = path == Path::new("/");
        let table = MountTable::read()?;
        let folders = table.iter().filter_map(|mount| shown_by(mount, &path));
        Ok(folders
            .map(|folder| Self {
                group: Group::at(folder),
                is_first,
            })
            .collect())
    }

    /// The first group of the machine, which may have processes and controllers.
    pub(super) fn is_of_machine(&self) -> bool {
        !self.group.folder().join("cgroup.type").exists()
    }
}

/// The group of cgroup2 in `/proc/PID/cgroup`, as this process's namespace of control groups shows it.
fn own_path(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(PathBuf::from)
}

/// The folder of a group below a mount. `None` if the mount shows only other groups.
fn shown_by(mount: &Mount, path: &Path) -> Option<PathBuf> {
    if mount.file_system != "cgroup2" {
        return None;
    }
    // A process outside of its namespace's first group has a path with `..`, which no mount shows.
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let below = path.strip_prefix(&mount.root).ok()?;
    Some(join(&mount.point, below))
}

/// A group, distinguished from every other one that had or will have its path.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    folder: PathBuf,
    inode: u64,
    boot_id: String,
}

impl Identity {
    fn of(folder: &Path) -> io::Result<Self> {
        let inode = fs::metadata(folder)?.ino();
        Ok(Self {
            folder: folder.to_owned(),
            inode,
            boot_id: procfs::boot_id()?,
        })
    }
}

pub(super) fn write_record(record: &Path, group: &Group) -> io::Result<()> {
    let text = serde_json::to_vec(&Identity::of(group.folder())?)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(record)?.write_all(&text)
}

/// Ends the processes in the control groups of an earlier gateway process, and removes the groups. Returns whether there
/// were processes.
///
/// Call it once, before any spawn and with the lock of the data folder held. It blocks for `limit` at most.
pub fn sweep(record: &Path, limit: Duration) -> io::Result<bool> {
    let text = match fs::read(record) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut had_processes = false;
    // A file without a valid identity was truncated, so there is no group to remove.
    if let Ok(named) = serde_json::from_slice::<Identity>(&text)
        && Identity::of(&named.folder).is_ok_and(|current| current == named)
    {
        let group = Group::at(named.folder);
        if contains_this_process(&group)? {
            let reason = "this process is in the group of an earlier gateway process";
            return Err(io::Error::other(reason));
        }
        had_processes = group.has_processes();
        if !group.end(limit)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        group.remove()?;
    }
    fs::remove_file(record)?;
    Ok(had_processes)
}

fn contains_this_process(group: &Group) -> io::Result<bool> {
    let this = getpid().as_raw_pid().cast_unsigned();
    if group.processes()?.contains(&this) {
        return Ok(true);
    }
    for child in group.children()? {
        if contains_this_process(&child)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod location_tests {
    use super::*;

    fn mount(root: &str, file_system: &str) -> Mount {
        Mount {
            root: root.into(),
            point: "/sys/fs/cgroup".into(),
            file_system: file_system.to_owned(),
            ..Mount::default()
        }
    }

    #[test]
    fn own_group_is_the_one_of_cgroup2() {
        assert_eq!(own_path("8:pids:/a\n0::/b/c\n"), Some("/b/c".into()));
        assert_eq!(own_path("8:pids:/a\n"), None);
    }

    #[test]
    fn folder_depends_on_the_root_of_the_mount() {
        let folder = |mount: &Mount, path: &str| shown_by(mount, Path::new(path));
        assert_eq!(
            folder(&mount("/", "cgroup2"), "/a/b"),
            Some("/sys/fs/cgroup/a/b".into())
        );
        assert_eq!(
            folder(&mount("/", "cgroup2"), "/"),
            Some("/sys/fs/cgroup".into())
        );
        assert_eq!(
            folder(&mount("/a", "cgroup2"), "/a/b"),
            Some("/sys/fs/cgroup/b".into())
        );
        assert_eq!(folder(&mount("/c", "cgroup2"), "/a/b"), None);
        assert_eq!(folder(&mount("/", "cgroup2"), "/../a"), None);
        assert_eq!(folder(&mount("/", "cgroup"), "/a"), None);
    }
}

#[cfg(test)]
mod record_tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    /// A folder like a group without processes.
    fn scripted(parent: &Path) -> Group {
        let folder = parent.join("group");
        fs::create_dir(&folder).unwrap();
        Group::at(folder)
    }

    #[test]
    fn group_of_another_boot_or_with_another_inode_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let group = scripted(parent.path());
        let record = parent.path().join("record");
        write_record(&record, &group).unwrap();
        let named: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        for (member, wrong) in [
            ("inode", serde_json::json!(1)),
            ("bootId", serde_json::json!("another boot")),
        ] {
            let mut other = named.clone();
            other[member] = wrong;
            fs::write(&record, other.to_string()).unwrap();
            assert!(!sweep(&record, LIMIT).unwrap(), "{member}");
            assert!(group.folder().exists() && !record.exists(), "{member}");
        }
        fs::write(&record, "{\"folder\":").unwrap();
        assert!(!sweep(&record, LIMIT).unwrap());
        assert!(!record.exists());
        assert!(!sweep(&record, LIMIT).unwrap(), "there is no record");
    }

    #[test]
    fn group_with_this_process_is_not_killed() {
        let parent = tempfile::tempdir().unwrap();
        let group = scripted(parent.path());
        let record = parent.path().join("record");
        fs::write(
            group.folder().join("cgroup.procs"),
            format!("1\n{}\n", getpid().as_raw_pid()),
        )
        .unwrap();
        write_record(&record, &group).unwrap();
        let error = sweep(&record, LIMIT).unwrap_err().to_string();
        assert!(error.contains("this process"), "{error}");
    }
}
