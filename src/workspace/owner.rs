//! The owner of new files. A gateway that runs as root would otherwise create files that the agent cannot change.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Stat, chownat, fstat};
use rustix::process::{Gid, Uid, geteuid};

/// The user and the group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    user: Uid,
    group: Gid,
}

impl From<&Stat> for Owner {
    fn from(stat: &Stat) -> Self {
        Self {
            user: Uid::from_raw(stat.st_uid),
            group: Gid::from_raw(stat.st_gid),
        }
    }
}

impl Owner {
    pub(super) fn of(opened: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(opened)?))
    }

    /// Makes this the owner of a file or folder that the gateway has created. Only root can do that, and only root
    /// needs it.
    pub(super) fn give(self, created: impl AsFd) -> io::Result<()> {
        if geteuid().is_root() {
            chownat(
                created,
                "",
                Some(self.user),
                Some(self.group),
                AtFlags::EMPTY_PATH,
            )?;
        }
        Ok(())
    }

    /// Whether root may read an open file for an agent. The agent could have given a file of another user a second name
    /// in its folder, which has this owner.
    pub(super) fn permits(self, file: &Stat) -> bool {
        !geteuid().is_root() || file.st_nlink <= 1 || Self::from(file).user == self.user
    }
}
