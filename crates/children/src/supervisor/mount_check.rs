//! Compares the mounts of an isolated child with the model of its isolation, after all changes and before the program
//! starts. A difference is a defect, or a mount that another process added during the start: the child does not start.
//!
//! The check covers three rules: no path shows a hidden folder, shared folders show only the child's own ones, and
//! mounts are read-only where the model requires it. The check runs again after each folder that a running child gets.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::isolation::{
    Access, AccessModel, Confinement, replaced_folders, shared_memory, temporary_folders,
};
use crate::mount_table::{Location, Mount, MountTable};

/// A folder that no visible path may show.
#[derive(Debug)]
struct HiddenFolder {
    location: Location,
    /// No path may show a part of it either.
    is_own: bool,
}

/// The mounts that the child must have.
#[derive(Debug)]
pub(super) struct ExpectedMounts {
    pub(super) model: AccessModel,
    hidden: Vec<HiddenFolder>,
    /// The mount points of the child's own temporary folder, and its location.
    temporary: Vec<PathBuf>,
    own: Option<Location>,
    shared_memory: Option<PathBuf>,
    /// The mounts before all changes.
    previous: Vec<u64>,
}

impl ExpectedMounts {
    /// `before` are the mounts before all changes.
    pub(super) fn new(confinement: &Confinement, before: &MountTable) -> Self {
        let replaced = replaced_folders(confinement);
        let hidden = confinement.hidden.iter().cloned().chain(replaced);
        let hidden = hidden.filter_map(|folder| {
            Some(HiddenFolder {
                location: before.location(&folder)?,
                is_own: confinement.own.contains(&folder),
            })
        });
        let own = &confinement.temporary;
        let mut temporary = Vec::new();
        if let Some(own) = own {
            temporary.extend(temporary_folders());
            temporary.push(own.clone());
        }
        // A session can have a shared folder itself.
        let model = AccessModel::new(confinement);
        temporary.retain(|path| model.at(path) == Access::Own);
        Self {
            hidden: hidden.collect(),
            temporary,
            own: own.as_ref().and_then(|own| before.location(own)),
            shared_memory: shared_memory().filter(|path| model.at(path) == Access::Own),
            previous: before.iter().map(|mount| mount.id).collect(),
            model,
        }
    }

    pub(super) fn grant(&mut self, folder: &Path) {
        self.model.grant(folder);
    }

    /// The number of mounts that were added at a point.
    pub(super) fn added_at(&self, point: &Path, mounts: &MountTable) -> usize {
        let added = |mount: &&Mount| mount.point == point && !self.previous.contains(&mount.id);
        mounts.iter().filter(added).count()
    }

    /// Fails with the first path that shows more than the model.
    pub(super) fn check(&self, mounts: &MountTable) -> io::Result<()> {
        let reachable: Vec<&Mount> = mounts.reachable().collect();
        self.check_hidden(mounts)?;
        self.check_own(mounts, &reachable)?;
        for mount in reachable {
            let must_be_read_only =
                mount.is_control_groups() || self.model.is_read_only(&mount.point);
            // The init process mounts the `/proc` of its namespace after the first check.
            let is_own = mount.file_system == "proc" && !self.previous.contains(&mount.id);
            if must_be_read_only && !is_own && !mount.is_read_only && exists(&mount.point) {
                return Err(wrong(&mount.point, "can be written"));
            }
        }
        Ok(())
    }

    fn check_hidden(&self, mounts: &MountTable) -> io::Result<()> {
        for HiddenFolder { location, is_own } in &self.hidden {
            for shown in mounts.paths_of(location) {
                let is_wrong = match self.model.at(&shown.path) {
                    Access::Hidden => true,
                    Access::Open => *is_own || !shown.is_part,
                    // `check_own` compares the mounts at own places.
                    Access::Own | Access::Visible | Access::ReadOnly | Access::Writable => false,
                };
                if is_wrong && exists(&shown.path) {
                    return Err(wrong(&shown.path, "shows a hidden folder"));
                }
            }
        }
        Ok(())
    }

    /// The shared folders for temporary files show only the child's own ones.
    fn check_own(&self, mounts: &MountTable, reachable: &[&Mount]) -> io::Result<()> {
        let foreign = "shows a folder that is not the child's own";
        for path in &self.temporary {
            if self.own.is_none() || mounts.location(path) != self.own {
                return Err(wrong(path, foreign));
            }
        }
        if let Some(path) = &self.shared_memory {
            let is_new = |mount: &Mount| {
                mount.file_system == "tmpfs"
                    && mount.point == *path
                    && !self.previous.contains(&mount.id)
            };
            if !mounts.at(path).is_some_and(is_new) {
                return Err(wrong(path, foreign));
            }
        }
        let is_own = |point: &Path| {
            self.temporary.iter().any(|own| own == point)
                || self.shared_memory.as_deref() == Some(point)
        };
        for Mount { point, .. } in reachable {
            if self.model.at(point) == Access::Own && !is_own(point) {
                return Err(wrong(point, foreign));
            }
        }
        Ok(())
    }
}

/// Whether the child could reach the path with the rights of files.
fn exists(path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).is_ok()
}

fn wrong(path: &Path, what: &str) -> io::Error {
    let path = path.display();
    io::Error::other(format!(
        "{path} {what}: a mount may have changed during the start, try again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &[u8] = b"1 0 8:1 / / rw - ext4 a rw
2 1 0:9 / /dev/shm rw - tmpfs s rw
";

    /// The mounts of a child that can change nothing and does not see `/usr`: its root, an empty folder at `/usr`, and a
    /// `/dev/shm` of its own.
    const CHILD: [&str; 3] = [
        "1 0 8:1 / / ro - ext4 a rw",
        "10 1 0:20 / /usr ro - tmpfs t rw",
        "11 1 0:21 / /dev/shm rw - tmpfs x rw",
    ];

    #[test]
    fn child_with_other_mounts_than_the_model_does_not_start() {
        let confinement = Confinement {
            hidden: vec!["/usr".into()],
            read_only: true,
            ..Confinement::default()
        };
        let expected = ExpectedMounts::new(&confinement, &MountTable::parse(BEFORE));
        let check = |lines: &[&str]| {
            let table = MountTable::parse(lines.join("\n").as_bytes());
            expected.check(&table).map_err(|error| error.to_string())
        };
        let [root, hidden, shared] = CHILD;
        assert_eq!(check(&CHILD), Ok(()));
        for (lines, difference) in [
            (vec![root, shared], "/usr shows a hidden folder"),
            (
                vec![root, hidden, shared, "12 1 8:1 /usr /srv ro - ext4 a rw"],
                "/srv shows a hidden folder",
            ),
            (
                vec!["1 0 8:1 / / rw - ext4 a rw", hidden, shared],
                "/ can be written",
            ),
            (
                vec![root, hidden, "2 1 0:9 / /dev/shm rw - tmpfs s rw"],
                "/dev/shm shows a folder that is not the child's own",
            ),
        ] {
            let error = check(&lines).expect_err(difference);
            assert!(error.starts_with(difference), "{error}");
        }
    }
}
