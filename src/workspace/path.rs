//! The syntax of a path, checked before any access to the file system.

use std::path::{Component, Path, PathBuf};

use super::error::FileError;

/// The path as plain names, without `.` and repeated slashes. `..` is an error: its meaning depends on links,
/// and no client needs it.
pub(super) fn normalize(path: &str) -> Result<PathBuf, FileError> {
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::Malformed);
    }
    Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::RootDir | Component::Normal(_) => Ok(part),
            Component::ParentDir | Component::CurDir | Component::Prefix(_) => {
                Err(FileError::Malformed)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_accepts_plain_names_only() {
        for (path, expected) in [
            ("a", "a"),
            ("./a//b/./c/", "a/b/c"),
            ("/", "/"),
            ("//a", "/a"),
            (".", ""),
            ("...", "..."),
            ("a..b", "a..b"),
            ("%2e%2e", "%2e%2e"),
        ] {
            assert_eq!(normalize(path).unwrap(), Path::new(expected), "{path}");
        }
        for path in ["", "..", "a/..", "/..", "a/../b", "../a", "a\0b", "\0"] {
            assert!(
                matches!(normalize(path), Err(FileError::Malformed)),
                "{path:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn normalized_path_never_leads_up(path in r"[a./\\]{1,12}") {
            if let Ok(plain) = normalize(&path) {
                let normal = |part| matches!(part, Component::Normal(_) | Component::RootDir);
                prop_assert!(plain.components().all(normal));
                prop_assert_eq!(plain.is_absolute(), path.starts_with('/'));
            }
        }
    }
}
