//! The control groups of this gateway process.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::child_group::{ChildGroup, MEMORY, PIDS};
use super::group::{CHILD_CONTROLLERS, Group, PROCESSES};
use super::location::OwnGroup;
use super::record;
use crate::types::ResourceLimits;

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

/// The groups of one gateway process.
#[derive(Debug)]
struct Tree {
    group: Group,
    /// The group of this process.
    own: Group,
    /// The group that this process left, because a group with controllers below may have no processes.
    left: Option<Group>,
    /// The controllers of the groups of children.
    controllers: Vec<&'static str>,
    /// Why controllers are missing.
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
    /// Call it before this process starts others: a process that stays in the former group would prevent controllers.
    pub fn open(record: &Path) -> Self {
        Self(Tree::open(record))
    }

    /// Creates the group of one child. `None` if children have no groups.
    pub(in crate::process) fn create_child(
        &self,
        limits: ResourceLimits,
    ) -> io::Result<Option<ChildGroup>> {
        let Ok(tree) = &self.0 else { return Ok(None) };
        let name = tree.next_child.fetch_add(1, Ordering::Relaxed).to_string();
        ChildGroup::create(&tree.group, &name, limits, &tree.controllers).map(Some)
    }

    /// Begins a wait of the kernel that otherwise delays the start of a child. Blocks for that time.
    ///
    /// A process enters a group only after a grace period of the kernel, about 10 ms, unless another process did so
    /// just before. This process enters the group in which it is, while the supervisor of the child starts.
    pub(in crate::process) fn prepare_entrance(&self) {
        if let Ok(tree) = &self.0 {
            // Without it, the child starts later.
            tree.own.write(PROCESSES, "0").unwrap_or_default();
        }
    }

    /// Whether the kernel counts the processes of each child.
    pub(in crate::process) fn limit_processes(&self) -> bool {
        self.0
            .as_ref()
            .is_ok_and(|tree| tree.controllers.contains(&PIDS))
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
        tree.shortcoming
            .as_ref()
            .map_or(Ok(()), |reason| write!(f, ": {reason}"))
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
        let group = own
            .group
            .create(&format!("acp-gateway-{id:016x}"))
            .map_err(failed)?;
        let checked = if group.can_be_killed() {
            record::write(record, &group).map_err(Unavailable::Record)
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
        let mut reasons: Vec<String> = missing
            .into_iter()
            .map(|name| format!("the group has no controller {name}"))
            .collect();
        if !available.is_empty() && !own.is_of_machine() {
            self.enter_own_group(own)
                .map_err(|error| format!("could not move the gateway: {error}"))?;
        }
        for name in available {
            let change = format!("+{name}");
            let enabled = own
                .group
                .write(CHILD_CONTROLLERS, &change)
                .and_then(|()| self.group.write(CHILD_CONTROLLERS, &change));
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
                entered
                    .write(PROCESSES, &pid.to_string())
                    .unwrap_or_default();
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
