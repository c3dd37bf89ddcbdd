//! The file that names the control groups of this gateway process, so that the next one can end the processes in them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::getpid;
use serde::{Deserialize, Serialize};

use super::group::Group;
use crate::process::procfs;

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

/// Writes the record. An earlier one is replaced.
pub(super) fn write(record: &Path, group: &Group) -> io::Result<()> {
    let text = serde_json::to_vec(&Identity::of(group.folder())?)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(record)?;
    file.write_all(&text)
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
    // A file that is no valid identity was truncated and names no group.
    if let Ok(named) = serde_json::from_slice::<Identity>(&text)
        && Identity::of(&named.folder).is_ok_and(|current| current == named)
    {
        let group = Group::at(named.folder);
        if contains_this_process(&group)? {
            return Err(io::Error::other(
                "this process is in the group of an earlier gateway process",
            ));
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
mod tests {
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
        let (group, record) = (scripted(parent.path()), parent.path().join("record"));
        write(&record, &group).unwrap();
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
        let (group, record) = (scripted(parent.path()), parent.path().join("record"));
        fs::write(
            group.folder().join("cgroup.procs"),
            format!("1\n{}\n", getpid().as_raw_pid()),
        )
        .unwrap();
        write(&record, &group).unwrap();
        let error = sweep(&record, LIMIT).unwrap_err().to_string();
        assert!(error.contains("this process"), "{error}");
    }
}
