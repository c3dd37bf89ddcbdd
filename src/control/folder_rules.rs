//! The folders that the owner can grant to a key.

use std::io;
use std::path::{Path, PathBuf};

use base::types::text::{check_name, one_line};

/// Folders of the system. An agent must not change programs, devices or settings of the machine.
const SYSTEM: [&str; 13] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys",
    "/usr", "/var/run",
];

/// Folders that all users share. Folders below them can be granted.
const SHARED: [&str; 4] = ["/home", "/tmp", "/var", "/var/tmp"];

pub struct FolderRules {
    roots: Vec<PathBuf>,
    data: PathBuf,
    home: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderRejection {
    #[error("the path of the folder must be absolute")]
    Relative,
    #[error("there is no folder {0}")]
    Missing(String),
    #[error("could not open the folder {0}: {1}")]
    Unusable(String, String),
    #[error("the path of the folder has characters that are not text")]
    NotText,
    #[error("{0} contains {1}, which agents must not access: open a folder below it")]
    TooWide(String, &'static str),
    #[error("{0} belongs to {1}, which agents must not access: open another folder")]
    Forbidden(String, &'static str),
}

impl FolderRules {
    pub fn new(roots: impl Iterator<Item = PathBuf>, data: &Path, home: Option<&Path>) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self {
            roots: roots.map(|root| real(&root)).collect(),
            data: real(data),
            home: home.map(real),
        }
    }

    /// The real path of a folder that can be granted. `None`: it is below a root, so it needs no grant. Blocks.
    pub fn check(&self, requested: &str) -> Result<Option<PathBuf>, FolderRejection> {
        if !requested.starts_with('/') {
            return Err(FolderRejection::Relative);
        }
        let shown = one_line(requested);
        let real = match Path::new(requested).canonicalize() {
            Ok(real) if real.is_dir() => real,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FolderRejection::Unusable(shown, error.to_string()));
            }
            Ok(_) | Err(_) => return Err(FolderRejection::Missing(shown)),
        };
        if self.roots.iter().any(|root| real.starts_with(root)) {
            return Ok(None);
        }
        let text = real.to_str().filter(|text| check_name(text).is_ok());
        let name = text.ok_or(FolderRejection::NotText)?.to_owned();
        let forbidden = |of| Err(FolderRejection::Forbidden(name.clone(), of));
        let too_wide = |content| Err(FolderRejection::TooWide(name.clone(), content));
        if real.starts_with(&self.data) {
            return forbidden("the data folder of the gateway");
        }
        if SYSTEM.iter().any(|system| real.starts_with(system)) {
            return forbidden("the system");
        }
        if self.data.starts_with(&real) {
            return too_wide("the data folder of the gateway");
        }
        let home = self.home.as_ref();
        if home.is_some_and(|home| home.starts_with(&real)) {
            return too_wide("the home folder");
        }
        if real.parent().is_none() || SHARED.iter().any(|shared| real == Path::new(shared)) {
            return too_wide("folders of other users or of the system");
        }
        Ok(Some(real))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_of_the_gateway_the_home_and_the_system_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let home = base.join("home");
        let data = base.join("home/data");
        let root = data.join("workspaces");
        let project = home.join("project");
        for path in [&root.join("one"), &data.join("private"), &project] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(project.join("file"), "").unwrap();
        symlink(&data, project.join("link")).unwrap();
        let rules = FolderRules::new([root.clone()].into_iter(), &data, Some(&home));
        let check = |path: &Path| rules.check(path.to_str().unwrap());
        assert_eq!(check(&project), Ok(Some(project.clone())));
        assert_eq!(check(&root.join("one")), Ok(None));
        for path in [
            &home,
            &base,
            &data,
            &data.join("private"),
            &project.join("link"),
        ] {
            assert!(
                matches!(
                    check(path),
                    Err(FolderRejection::TooWide(..) | FolderRejection::Forbidden(..))
                ),
                "{}",
                path.display()
            );
        }
        for path in ["/", "/etc", "/usr/bin", "/proc", "/tmp", "/proc/self/root"] {
            assert!(rules.check(path).is_err(), "{path}");
        }
        let error = check(&home).unwrap_err().to_string();
        assert!(
            error.contains("the data folder") && error.contains("below it"),
            "{error}"
        );
        assert_eq!(
            check(&project.join("file")),
            Err(FolderRejection::Missing(format!(
                "{}/file",
                project.display()
            )))
        );
        assert!(matches!(
            check(&project.join("none")),
            Err(FolderRejection::Missing(_))
        ));
        assert_eq!(rules.check("project"), Err(FolderRejection::Relative));
    }
}
