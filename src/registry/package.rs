//! Packages of npm and of PyPI, each in a folder of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::index::is_version;
use base::types::Isolation;
use children::{ChildIsolation, ChildSpec, ResolveError, SpawnError, Spawner, resolve};

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
    #[error("could not read the installed package {0}")]
    Read(String, #[source] std::io::Error),
}

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
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let part = |part: &str| {
            let begins = part.starts_with(|first: char| first.is_ascii_alphanumeric());
            begins && part.len() <= 128 && part.bytes().all(is_valid)
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
        Err(PackageError::Version {
            name: self.name.clone(),
            found: found.to_owned(),
            wanted: self.version.clone(),
        })
    }

    pub(super) async fn install_npm(
        &self,
        programs: &Programs,
        folder: &Path,
        allow_scripts: bool,
    ) -> Result<PathBuf, PackageError> {
        let spec = format!("{}@{}", self.name, self.version);
        let prefix = folder.to_string_lossy();
        let scripts = format!("--ignore-scripts={}", !allow_scripts);
        let options = ["--no-audit", "--no-fund", "--omit=dev", &scripts];
        let start = ["install", "--prefix", &prefix];
        let arguments = [&start[..], &options, &["--", &spec]].concat();
        programs.run(Path::new("npm"), &arguments, folder).await?;
        let modules = folder.join("node_modules");
        let read = |error| PackageError::Read(self.name.clone(), error);
        let manifest = modules.join(&self.name).join("package.json");
        let manifest = std::fs::read(manifest).map_err(read)?;
        let manifest = serde_json::from_slice(&manifest);
        let manifest: Manifest = manifest.map_err(|error| read(std::io::Error::other(error)))?;
        self.check(&manifest.version)?;
        let unscoped = self.name.rsplit('/').next().unwrap_or(&self.name);
        let program = manifest.program(unscoped);
        let program = program.ok_or_else(|| PackageError::NoProgram(self.name.clone()))?;
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
        let target = environment.to_string_lossy();
        let interpreter = python.to_string_lossy();
        // A source distribution runs its build script.
        let binary = ["--only-binary", ":all:"];
        let binary = if allow_scripts { &[][..] } else { &binary[..] };
        if programs.has("uv") {
            let uv = Path::new("uv");
            programs.run(uv, &["venv", &target], folder).await?;
            let pip = ["pip", "install", "--python", &*interpreter];
            let install = [&pip[..], binary, &["--", &*spec]].concat();
            programs.run(uv, &install, folder).await?;
        } else {
            let venv = ["-m", "venv", &*target];
            programs.run(Path::new("python3"), &venv, folder).await?;
            let pip = [
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
            ];
            let install = [&pip[..], binary, &["--", &*spec]].concat();
            programs.run(&python, &install, folder).await?;
        }
        let version =
            "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
        let arguments = ["-I", "-c", version, &self.name];
        let found = programs.run(&python, &arguments, folder).await?;
        self.check(found.trim())?;
        let program = environment.join("bin").join(&self.name);
        if !program.is_file() {
            return Err(PackageError::NoProgram(self.name.clone()));
        }
        Ok(program)
    }
}

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

/// The time for one program. An installation downloads its packages.
const TIMEOUT: Duration = Duration::from_mins(10);
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{0}: {1}; install it, or choose another distribution with --kind")]
    Missing(String, #[source] ResolveError),
    #[error("could not start {0}")]
    Spawn(String, #[source] SpawnError),
    #[error("{} did not end within {} minutes", .0, TIMEOUT.as_secs() / 60)]
    Timeout(String),
    #[error("{0} failed: {1}")]
    Failed(String, String),
}

#[derive(Debug, Clone)]
pub struct Programs {
    pub spawner: Spawner,
    /// The environment of the programs, without variables of the gateway and without keys of agents.
    pub env: Vec<(OsString, OsString)>,
    pub path: OsString,
    pub home: PathBuf,
}

impl Programs {
    pub(super) fn has(&self, program: &str) -> bool {
        resolve(program.as_ref(), &self.path).is_ok()
    }

    pub(super) async fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<String, ProgramError> {
        let name = program.display().to_string();
        let resolved = resolve(program.as_os_str(), &self.path);
        let resolved = resolved.map_err(|error| ProgramError::Missing(name.clone(), error))?;
        let spec = ChildSpec {
            program: resolved,
            args: arguments.iter().map(Into::into).collect(),
            env: self.env.clone(),
            home: self.home.clone(),
            cwd: Some(folder.to_owned()),
            secrets: Vec::new(),
            isolation: ChildIsolation {
                level: Isolation::Off,
                ..ChildIsolation::default()
            },
        };
        let spawned = self.spawner.spawn(spec).await;
        let mut child = spawned.map_err(|error| ProgramError::Spawn(name.clone(), error))?;
        let mut stdout = child.take_stdout().expect("a new child has its stdout");
        let mut output = String::new();
        let ended = timeout(TIMEOUT, async {
            let mut kept = (&mut stdout).take(MAX_OUTPUT_BYTES);
            let _ = kept.read_to_string(&mut output).await;
            // The program waits if its output is not read.
            let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
            child.exited().await
        });
        let Ok(exit) = ended.await else {
            child.kill().await;
            return Err(ProgramError::Timeout(name));
        };
        if exit.code == Some(0) {
            return Ok(output);
        }
        let tail = child.stderr.tail();
        let output = if tail.trim().is_empty() { output } else { tail };
        Err(ProgramError::Failed(name, output.trim().to_owned()))
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
