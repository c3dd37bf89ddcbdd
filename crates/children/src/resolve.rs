//! Resolves a program's name to its file, with a PATH that other users cannot modify.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ResolveError {
    #[error("the program name is empty")]
    Empty,
    #[error("{0:?} is a relative path: use a name or an absolute path")]
    Relative(PathBuf),
    #[error("{0:?} is not an executable file")]
    NotExecutable(PathBuf),
    #[error("program {name:?} not found on PATH{}", skipped_note(skipped))]
    NotFound {
        name: OsString,
        /// Directories of PATH that were not searched, because other users could have put the program there.
        skipped: Vec<PathBuf>,
    },
}

fn skipped_note(skipped: &[PathBuf]) -> String {
    if skipped.is_empty() {
        return String::new();
    }
    format!(" (skipped because they are relative or writable by others: {skipped:?})")
}

/// Finds the file of `program`. An absolute path is used as it is, and a bare name is searched on `path`.
pub fn resolve(program: &OsStr, path: &OsStr) -> Result<PathBuf, ResolveError> {
    if program.is_empty() {
        return Err(ResolveError::Empty);
    }
    let named = Path::new(program);
    if named.is_absolute() {
        return if executable(named) {
            Ok(named.to_owned())
        } else {
            Err(ResolveError::NotExecutable(named.to_owned()))
        };
    }
    if named.components().count() != 1 || named.file_name() != Some(program) {
        return Err(ResolveError::Relative(named.to_owned()));
    }
    let (trusted, skipped) = split_trusted(path);
    let mut files = trusted.iter().map(|folder| folder.join(named));
    let found = files.find(|file| executable(file));
    found.ok_or_else(|| ResolveError::NotFound {
        name: program.to_owned(),
        skipped,
    })
}

/// The entries of `path` that a child may use: absolute, and not writable by others.
pub fn trusted_path(path: &OsStr) -> OsString {
    let (trusted, _) = split_trusted(path);
    std::env::join_paths(trusted).expect("entries that were split from a PATH hold no colon")
}

fn split_trusted(path: &OsStr) -> (Vec<PathBuf>, Vec<PathBuf>) {
    std::env::split_paths(path)
        .filter(|entry| !entry.as_os_str().is_empty())
        .partition(|entry| trusted(entry))
}

/// A missing directory is not trusted, because any user could create it later.
fn trusted(folder: &Path) -> bool {
    let metadata = folder.metadata();
    folder.is_absolute() && metadata.is_ok_and(|meta| meta.is_dir() && has_trusted_owner(&meta))
}

fn executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.mode() & 0o002 == 0)
        && access(file, Access::EXEC_OK).is_ok()
}

/// Owned by root or by this user, and not writable by everybody. Group write is allowed: distributions ship
/// `/usr/local/bin` writable by a group of administrators.
fn has_trusted_owner(meta: &std::fs::Metadata) -> bool {
    let owner = meta.uid();
    (owner == 0 || owner == rustix::process::geteuid().as_raw()) && meta.mode() & 0o002 == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(folder: &Path, name: &str) -> PathBuf {
        let file = folder.join(name);
        fs::write(&file, "#!/bin/sh\n").expect("a file in a temporary folder");
        fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("our own file");
        file
    }

    #[test]
    fn world_writable_directory_is_skipped_and_reported() {
        let open = tempfile::tempdir().unwrap();
        let closed = tempfile::tempdir().unwrap();
        program(open.path(), "agent");
        fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
        let path =
            std::env::join_paths([open.path(), closed.path(), Path::new("relative")]).unwrap();

        let missing = resolve(OsStr::new("agent"), &path).unwrap_err();
        let skipped = vec![open.path().to_owned(), PathBuf::from("relative")];
        assert_eq!(
            missing,
            ResolveError::NotFound {
                name: "agent".into(),
                skipped
            }
        );

        let file = program(closed.path(), "agent");
        assert_eq!(resolve(OsStr::new("agent"), &path), Ok(file));
        assert_eq!(trusted_path(&path), closed.path().as_os_str());
    }

    #[test]
    fn only_a_bare_name_is_looked_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = program(folder.path(), "agent");
        let path = folder.path().as_os_str();
        assert_eq!(resolve(file.as_os_str(), OsStr::new("")), Ok(file.clone()));
        for relative in ["./agent", "../agent", "bin/agent", "..", "agent/"] {
            assert_eq!(
                resolve(OsStr::new(relative), path),
                Err(ResolveError::Relative(relative.into()))
            );
        }
        assert_eq!(resolve(OsStr::new(""), path), Err(ResolveError::Empty));
    }

    #[test]
    fn file_without_execute_permission_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = program(folder.path(), "agent");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(
            resolve(file.as_os_str(), OsStr::new("")),
            Err(ResolveError::NotExecutable(file))
        );
        let found = resolve(OsStr::new("agent"), folder.path().as_os_str());
        assert!(
            matches!(found, Err(ResolveError::NotFound { .. })),
            "{found:?}"
        );
    }
}
