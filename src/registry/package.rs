//! Packages of npm and of PyPI, each in a folder of its own.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::index::is_version;
use super::program::{ProgramError, Programs};

#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("{0:?} is not a package with an exact version: name@version")]
    Spec(String),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("the package manager installed version {found} of {name}, not {wanted}")]
    Version {
        name: String,
        found: String,
        wanted: String,
    },
    #[error("the package {0} has no program, or several and none with its name")]
    NoProgram(String),
    #[error("could not read the installed package {name}")]
    Read {
        name: String,
        source: std::io::Error,
    },
}

/// A package and its exact version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageSpec {
    name: String,
    version: String,
}

impl PackageSpec {
    pub(super) fn parse(text: &str) -> Result<Self, PackageError> {
        let wrong = || PackageError::Spec(text.to_owned());
        // The `@` of a scope is the first character.
        let at = text.rfind('@').filter(|at| *at > 0);
        let (name, version) = match (at, text.split_once("==")) {
            (Some(at), _) => (&text[..at], &text[at + 1..]),
            (None, Some((name, version))) => (name, version),
            (None, None) => return Err(wrong()),
        };
        let part = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && part.len() <= 128
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        let is_name = match name.strip_prefix('@').map(|scoped| scoped.split_once('/')) {
            None => part(name),
            Some(Some((scope, name))) => part(scope) && part(name),
            Some(None) => false,
        };
        if !is_name || !is_version(version) {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
        })
    }

    fn check(&self, found: &str) -> Result<(), PackageError> {
        if found == self.version {
            return Ok(());
        }
        let (name, found, wanted) = (self.name.clone(), found.to_owned(), self.version.clone());
        Err(PackageError::Version {
            name,
            found,
            wanted,
        })
    }

    /// Installs the package with npm. Returns its program.
    pub(super) async fn install_npm(
        &self,
        programs: &Programs,
        folder: &Path,
        allow_scripts: bool,
    ) -> Result<PathBuf, PackageError> {
        let spec = format!("{}@{}", self.name, self.version);
        let prefix = folder.to_string_lossy();
        let scripts = if allow_scripts {
            "--ignore-scripts=false"
        } else {
            "--ignore-scripts"
        };
        let arguments = [
            "install",
            "--prefix",
            &prefix,
            "--no-audit",
            "--no-fund",
            "--omit=dev",
            scripts,
            "--",
            &spec,
        ];
        programs.run(Path::new("npm"), &arguments, folder).await?;
        let modules = folder.join("node_modules");
        let read = |source| PackageError::Read {
            name: self.name.clone(),
            source,
        };
        let manifest =
            std::fs::read(modules.join(&self.name).join("package.json")).map_err(read)?;
        let manifest: Manifest = serde_json::from_slice(&manifest)
            .map_err(|error| read(std::io::Error::other(error)))?;
        self.check(&manifest.version)?;
        let unscoped = self.name.rsplit('/').next().unwrap_or(&self.name);
        let program = manifest
            .program(unscoped)
            .ok_or_else(|| PackageError::NoProgram(self.name.clone()))?;
        Ok(modules.join(".bin").join(program))
    }

    /// Installs the package into a virtual environment, with uv or with pip. Returns its program.
    pub(super) async fn install_python(
        &self,
        programs: &Programs,
        folder: &Path,
        allow_scripts: bool,
    ) -> Result<PathBuf, PackageError> {
        let spec = format!("{}=={}", self.name, self.version);
        let environment = folder.join("venv");
        let python = environment.join("bin/python");
        let (target, interpreter) = (environment.to_string_lossy(), python.to_string_lossy());
        // A source distribution runs its build script.
        let binary = if allow_scripts {
            &[][..]
        } else {
            &["--only-binary", ":all:"][..]
        };
        if programs.has("uv") {
            programs
                .run(Path::new("uv"), &["venv", &target], folder)
                .await?;
            let install = [
                &["pip", "install", "--python", &interpreter],
                binary,
                &["--", &spec],
            ]
            .concat();
            programs.run(Path::new("uv"), &install, folder).await?;
        } else {
            programs
                .run(Path::new("python3"), &["-m", "venv", &target], folder)
                .await?;
            let pip = [
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
            ];
            let install = [&pip[..], binary, &["--", &spec]].concat();
            programs.run(&python, &install, folder).await?;
        }
        let version =
            "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
        let found = programs
            .run(&python, &["-I", "-c", version, &self.name], folder)
            .await?;
        self.check(found.trim())?;
        let program = environment.join("bin").join(&self.name);
        if program.is_file() {
            Ok(program)
        } else {
            Err(PackageError::NoProgram(self.name.clone()))
        }
    }
}

/// The members of `package.json` that an installation needs.
#[derive(Debug, Deserialize)]
struct Manifest {
    version: String,
    #[serde(default)]
    bin: Value,
}

impl Manifest {
    /// The name of the program, as npx selects it.
    fn program(&self, unscoped: &str) -> Option<String> {
        match &self.bin {
            Value::String(_) => Some(unscoped.to_owned()),
            Value::Object(programs) if programs.contains_key(unscoped) => Some(unscoped.to_owned()),
            Value::Object(programs) if programs.len() == 1 => programs.keys().next().cloned(),
            _ => None,
        }
        .filter(|name| !name.contains('/') && name != "..")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_has_an_exact_version() {
        for (text, name, version) in [
            ("a@1.2.3", "a", "1.2.3"),
            ("@scope/a.b@1.0.0-rc.1", "@scope/a.b", "1.0.0-rc.1"),
            ("fast-agent==0.3.1", "fast-agent", "0.3.1"),
        ] {
            let spec = PackageSpec {
                name: name.to_owned(),
                version: version.to_owned(),
            };
            assert_eq!(PackageSpec::parse(text).unwrap(), spec, "{text}");
        }
        for wrong in [
            "a",
            "@scope/a",
            "a@^1",
            "a@",
            "--x@1",
            "a b@1",
            "@/a@1",
            "../a@1",
            "git+https://x@1",
            "a@>=1",
        ] {
            assert!(PackageSpec::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn program_is_the_one_that_npx_selects() {
        let program = |bin: Value| {
            Manifest {
                version: String::new(),
                bin,
            }
            .program("a")
        };
        assert_eq!(program(serde_json::json!("x.js")), Some("a".to_owned()));
        assert_eq!(
            program(serde_json::json!({ "b": "x.js" })),
            Some("b".to_owned())
        );
        assert_eq!(
            program(serde_json::json!({ "b": "x.js", "a": "y.js" })),
            Some("a".to_owned())
        );
        for none in [
            serde_json::json!({ "b": "x", "c": "y" }),
            Value::Null,
            serde_json::json!({ "../x": "y" }),
        ] {
            assert_eq!(program(none), None);
        }
    }
}
