//! The control group of this process in the file system.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::group::Group;
use crate::process::mount_table::{Mount, MountTable};

/// The group of this process.
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
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(PathBuf::from)
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
    // `join` with an empty path would add a separator.
    if below.as_os_str().is_empty() {
        Some(mount.point.clone())
    } else {
        Some(mount.point.join(below))
    }
}

#[cfg(test)]
mod tests {
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
