//! Version managers, whose programs on PATH are shims: each one starts the program of a version in another folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The installation of a version manager. Its shims start the programs below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Installation {
    /// The folder with the versions.
    pub(super) root: PathBuf,
    /// The variables that name it. Without them, a shim searches below HOME, which the agent has for itself.
    pub(super) variables: Vec<(&'static str, PathBuf)>,
}

/// Managers with a folder `shims` beside a file that identifies them.
const WITH_SHIMS: [(&str, &[&str]); 6] = [
    ("libexec/pyenv", &["PYENV_ROOT"]),
    ("libexec/rbenv", &["RBENV_ROOT"]),
    ("libexec/nodenv", &["NODENV_ROOT"]),
    ("libexec/goenv", &["GOENV_ROOT"]),
    ("bin/asdf", &["ASDF_DIR", "ASDF_DATA_DIR"]),
    // Both asdf and mise. mise has its program elsewhere.
    ("installs", &["ASDF_DATA_DIR", "MISE_DATA_DIR"]),
];

/// The installation of a version manager to which a folder of programs belongs.
pub(super) fn installation(folder: &Path) -> Option<Installation> {
    let beside = folder.parent()?;
    if folder.ends_with("shims") {
        let (_, names) = WITH_SHIMS
            .into_iter()
            .find(|(marker, _)| beside.join(marker).exists())?;
        return Some(Installation {
            root: beside.to_owned(),
            variables: names
                .iter()
                .map(|name| (*name, beside.to_owned()))
                .collect(),
        });
    }
    if !folder.ends_with("bin") {
        return None;
    }
    if folder.join("volta-shim").exists() {
        return Some(Installation {
            root: beside.to_owned(),
            variables: vec![("VOLTA_HOME", beside.to_owned())],
        });
    }
    let toolchains = beside.with_file_name(".rustup");
    (folder.join("rustup").exists() && toolchains.is_dir()).then(|| Installation {
        variables: vec![("RUSTUP_HOME", toolchains.clone())],
        root: toolchains,
    })
}

/// Adds variables that the environment does not have.
pub(super) fn add_variables(env: &mut Vec<(OsString, OsString)>, installation: &Installation) {
    for (name, root) in &installation.variables {
        if env.iter().all(|(known, _)| known != name) {
            env.push(((*name).into(), root.clone().into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str], folder: &str) -> Option<(PathBuf, Vec<&'static str>)> {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let path = home.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = installation(&home.path().join(folder))?;
        let names = found.variables.iter().map(|(name, _)| *name).collect();
        let root = found.root.strip_prefix(home.path()).unwrap();
        Some((root.to_owned(), names))
    }

    #[test]
    fn folder_of_shims_names_its_manager() {
        for (files, folder, root, name) in [
            (
                &[".pyenv/libexec/pyenv"][..],
                ".pyenv/shims",
                ".pyenv",
                "PYENV_ROOT",
            ),
            (&[".asdf/bin/asdf"], ".asdf/shims", ".asdf", "ASDF_DIR"),
            (
                &["share/mise/installs/node/file"],
                "share/mise/shims",
                "share/mise",
                "MISE_DATA_DIR",
            ),
            (
                &[".volta/bin/volta-shim"],
                ".volta/bin",
                ".volta",
                "VOLTA_HOME",
            ),
            (
                &[".cargo/bin/rustup", ".rustup/settings.toml"],
                ".cargo/bin",
                ".rustup",
                "RUSTUP_HOME",
            ),
        ] {
            let (found, names) = found(files, folder).expect(folder);
            assert_eq!(found, Path::new(root));
            assert!(names.contains(&name), "{names:?}");
        }
    }

    #[test]
    fn other_folders_of_programs_need_nothing() {
        assert_eq!(found(&["tools/bin/program"], "tools/bin"), None);
        assert_eq!(found(&["tools/shims/program"], "tools/shims"), None);
        assert_eq!(found(&[".cargo/bin/rustup"], ".cargo/bin"), None);
    }

    #[test]
    fn variable_of_the_entry_has_precedence() {
        let installation = Installation {
            root: "/home/u/.pyenv".into(),
            variables: vec![("PYENV_ROOT", "/home/u/.pyenv".into())],
        };
        let mut env = vec![("PYENV_ROOT".into(), "/other".into())];
        add_variables(&mut env, &installation);
        assert_eq!(env, [("PYENV_ROOT".into(), "/other".into())]);
    }
}
