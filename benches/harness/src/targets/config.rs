//! The configuration files that builds of the gateway read.
//!
//! A flavor is a template with the keys of some range of versions. Each build gets the first flavor that its `check`
//! command accepts, so that one run can measure builds with different keys. To rename keys, add a template.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::Outcome;

/// The level of isolation of the gateway's default configuration.
pub(crate) const DEFAULT_ISOLATION: &str = "private";

/// The templates, the newest first.
pub(super) const FLAVORS: &[ConfigFlavor] = &[
    ConfigFlavor {
        name: "isolation",
        template: include_str!("configs/isolation.toml"),
    },
    ConfigFlavor {
        name: "sections",
        template: include_str!("configs/sections.toml"),
    },
    ConfigFlavor {
        name: "flat limits",
        template: include_str!("configs/flat_limits.toml"),
    },
];

/// The keys of some range of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConfigFlavor {
    pub(super) name: &'static str,
    /// TOML with the placeholders `@COMMAND@`, `@PROCESSES@` and, from the first build that isolates agents, `@ISOLATION@`.
    pub(super) template: &'static str,
}

impl ConfigFlavor {
    /// Returns the first flavor that the program accepts.
    ///
    /// # Errors
    ///
    /// The program accepts none. The message has the answer to each flavor.
    pub(super) fn detect(program: &Path, folder: &Path, flavors: &[Self]) -> Outcome<Self> {
        let path = folder.join("flavor.toml");
        let mut answers = String::new();
        for flavor in flavors {
            fs::write(&path, flavor.render(program, 1, DEFAULT_ISOLATION))?;
            let output = Command::new(program)
                .args(["check", "--config"])
                .arg(&path)
                .arg("--data")
                .arg(folder.join("data"))
                .env_clear()
                .env("HOME", folder)
                .stdin(Stdio::null())
                .output()
                .map_err(|error| format!("{}: {error}", program.display()))?;
            if output.status.success() {
                fs::remove_file(&path)?;
                return Ok(*flavor);
            }
            let answer = String::from_utf8_lossy(&output.stderr);
            write!(answers, "\n{}: {}", flavor.name, answer.trim())?;
        }
        Err(format!(
            "{} accepts no configuration of the harness:{answers}",
            program.display()
        )
        .into())
    }

    /// The file for an agent with at most this many processes and this level of isolation.
    pub(super) fn render(self, command: &Path, processes: usize, isolation: &str) -> String {
        self.template
            .replace("@COMMAND@", &json!(command).to_string())
            .replace("@PROCESSES@", &processes.to_string())
            .replace("@ISOLATION@", &json!(isolation).to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;
    use crate::server::Scratch;

    const OLD: ConfigFlavor = ConfigFlavor {
        name: "old",
        template: "max = @PROCESSES@\n",
    };
    const NEW: ConfigFlavor = ConfigFlavor {
        name: "new",
        template: "max_size = @PROCESSES@\n",
    };

    /// A program whose `check` accepts only files with this key.
    fn build(folder: &Path, name: &str, key: &str) -> PathBuf {
        let path = folder.join(name);
        let script = format!(
            "#!/bin/sh\n[ \"$1 $2\" = 'check --config' ] || exit 2\n\
             read -r line < \"$3\"\ncase \"$line\" in \"{key} = \"*) exit 0 ;; esac\n\
             echo \"unknown key in $line\" >&2\nexit 1\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn each_build_gets_the_flavor_that_it_accepts() {
        let scratch = Scratch::new(&std::env::temp_dir(), "acp-gateway-bench-flavors").unwrap();
        let folder = scratch.path();
        let detect = |name: &str, key: &str| {
            ConfigFlavor::detect(&build(folder, name, key), folder, &[NEW, OLD])
                .map_err(|error| error.to_string())
        };
        assert_eq!(detect("current", "max_size"), Ok(NEW));
        assert_eq!(detect("previous", "max"), Ok(OLD));
        let error = detect("other", "processes").unwrap_err();
        assert!(
            error.contains("new: unknown key in max_size = 1\nold: unknown key in max = 1"),
            "{error}"
        );
    }

    #[test]
    fn a_rendered_file_has_no_placeholder() {
        for flavor in FLAVORS {
            let text = flavor.render(Path::new("/a \"b\""), 256, "off");
            assert!(
                text.contains(r#"= "/a \"b\"""#) && text.contains("256"),
                "{text}"
            );
            assert!(!text.contains('@'), "{text}");
        }
    }
}
