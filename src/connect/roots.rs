//! The folders of this machine in which sessions may work.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use crate::acp::RawObject;
use crate::workspace::{FileError, Workspace, Workspaces};

/// The roots of a member, opened at its start. The first one is the default folder of sessions.
#[derive(Debug, Clone)]
pub struct Roots {
    workspaces: Workspaces,
    paths: Vec<PathBuf>,
}

/// A root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("could not open the root {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("the root {} is not UTF-8, which the gateway requires", .0.display())]
    NotUtf8(PathBuf),
    #[error("at least one root is required")]
    Missing,
}

impl Roots {
    /// Opens the real paths of the roots.
    pub fn open(requested: &[PathBuf]) -> Result<Self, RootError> {
        let real = |path: &PathBuf| {
            let real = path
                .canonicalize()
                .map_err(|error| RootError::Open(path.clone(), error))?;
            if real.to_str().is_some() {
                Ok(real)
            } else {
                Err(RootError::NotUtf8(real))
            }
        };
        let paths = requested.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        let (first, others) = paths.split_first().ok_or(RootError::Missing)?;
        let workspaces = Workspaces::new(first, others)
            .map_err(|error| RootError::Open(first.clone(), error))?;
        Ok(Self { workspaces, paths })
    }

    /// The real paths as text.
    pub fn names(&self) -> Vec<String> {
        self.paths
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    }

    /// The default folder.
    pub(super) fn first(&self) -> &Path {
        &self.paths[0]
    }

    /// The roots for requests of the agent. Blocks on the file system.
    pub(super) fn workspace(&self) -> Result<Workspace, FileError> {
        self.workspaces.open(&self.paths[0], &self.paths[1..])
    }

    /// Checks that these folders exist below the roots after the resolution of all links. Returns the real path of `cwd`.
    /// Blocks on the file system. `Err`: a text for the gateway.
    pub(super) fn check(&self, named: &NamedFolders) -> Result<Option<PathBuf>, String> {
        for directory in &named.additional {
            self.folder("additionalDirectories", directory)?;
        }
        named
            .cwd
            .as_ref()
            .map(|cwd| self.folder("cwd", cwd))
            .transpose()
    }

    fn folder(&self, member: &str, requested: &str) -> Result<PathBuf, String> {
        let error = if requested.starts_with('/') {
            match self.workspaces.resolve_directory(requested) {
                Ok(real) => return Ok(real),
                Err(error) => error,
            }
        } else {
            FileError::Relative
        };
        let detail = match error {
            FileError::OutsideRoots => {
                "the folder is outside of the roots of the member".to_owned()
            }
            FileError::Missing => "there is no such folder at the member".to_owned(),
            other => other.to_string(),
        };
        Err(format!("{member}: {detail}"))
    }
}

/// The folders that a message of the gateway names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedFolders {
    cwd: Option<String>,
    additional: Vec<String>,
}

impl NamedFolders {
    /// The folders in the params of any method. Fails if two readers could find different ones.
    pub(super) fn of(params: &RawValue) -> Result<Self, String> {
        let Some(object) = RawObject::parse(params) else {
            let is_object = params.get().starts_with('{');
            let ambiguous = Err("the params are not an object with distinct members".to_owned());
            return if is_object {
                ambiguous
            } else {
                Ok(Self::default())
            };
        };
        let member = |name: &str| {
            object
                .get(name)
                .filter(|value| value.get() != "null")
                .map(RawValue::get)
        };
        let cwd = member("cwd").map(serde_json::from_str).transpose();
        let additional = member("additionalDirectories")
            .map(serde_json::from_str)
            .transpose();
        Ok(Self {
            cwd: cwd.map_err(|_| "cwd: expected a path".to_owned())?,
            additional: additional
                .map_err(|_| "additionalDirectories: expected an array of paths".to_owned())?
                .unwrap_or_default(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: &serde_json::Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    #[test]
    fn folders_of_a_message_are_below_the_roots_after_all_links() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (first, second, other) = (base.join("first"), base.join("second"), base.join("other"));
        for folder in [&first.join("sub"), &second, &other] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink(&other, first.join("out")).unwrap();
        std::os::unix::fs::symlink(&second, first.join("across")).unwrap();
        let roots = Roots::open(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(
            roots.names(),
            [first.to_str().unwrap(), second.to_str().unwrap()]
        );
        let check = |params: serde_json::Value| roots.check(&NamedFolders::of(&raw(&params))?);
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        for (cwd, real) in [
            (first.clone(), &first),
            (first.join("sub"), &first.join("sub")),
            (first.join("across"), &second),
        ] {
            assert_eq!(
                check(serde_json::json!({ "cwd": cwd })).unwrap().as_ref(),
                Some(real)
            );
        }
        for outside in [
            path(&other),
            path(&first.join("out")),
            format!("{}/../other", path(&first)),
            path(&first.join("missing")),
            "/".to_owned(),
            "sub".to_owned(),
        ] {
            assert!(
                check(serde_json::json!({ "cwd": outside })).is_err(),
                "{outside}"
            );
            let directories =
                serde_json::json!({ "cwd": first, "additionalDirectories": [second, outside] });
            assert!(check(directories).is_err(), "{outside}");
        }
        assert_eq!(
            check(serde_json::json!({ "sessionId": "s", "cwd": null })),
            Ok(None)
        );
        assert_eq!(check(serde_json::json!(null)), Ok(None));
        for wrong in [
            r#"{"cwd":1}"#,
            r#"{"additionalDirectories":"/"}"#,
            r#"{"cwd":null,"cwd":"/"}"#,
        ] {
            assert!(
                NamedFolders::of(serde_json::from_str(wrong).unwrap()).is_err(),
                "{wrong}"
            );
        }
        assert!(Roots::open(&[base.join("missing")]).is_err() && Roots::open(&[]).is_err());
    }
}
