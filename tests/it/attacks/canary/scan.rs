//! A search for secrets in processes, files and texts.

use std::path::{Path, PathBuf};

use crate::support::procfs::descendants;

/// A secret, and the places that may hold it.
#[derive(Debug)]
pub(super) struct Canary {
    pub(super) name: &'static str,
    pub(super) text: String,
    /// Files below the folder of the test.
    pub(super) files: &'static [&'static str],
    /// Homes of the agents whose environment holds it.
    pub(super) agents: &'static [&'static str],
    /// The operator passed it in the environment of the gateway.
    pub(super) in_gateway: bool,
}

impl Canary {
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        memchr::memmem::find(bytes, self.text.as_bytes()).is_some()
    }
}

/// All canaries, and the allowed places in which the scan found them.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) canaries: Vec<Canary>,
    pub(super) found: Vec<(&'static str, PathBuf)>,
    leaks: Vec<String>,
}

impl Scan {
    pub(super) fn of(canaries: Vec<Canary>) -> Self {
        Self {
            canaries,
            found: Vec::new(),
            leaks: Vec::new(),
        }
    }

    /// Text that holds no canary. `but` names the exception.
    pub(super) fn text(&mut self, location: &str, bytes: &[u8], but: &[&str]) {
        for canary in self
            .canaries
            .iter()
            .filter(|canary| !but.contains(&canary.name))
        {
            if canary.is_in(bytes) {
                self.leaks.push(format!("{} in {location}", canary.name));
            }
        }
    }

    /// The command lines and environments of the gateway and its descendants.
    pub(super) fn processes(&mut self, gateway: u32) {
        let mut pids = descendants(gateway);
        pids.push(gateway);
        for pid in pids {
            let read =
                |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let line = read("cmdline");
            let environment = read("environ");
            let command = String::from_utf8_lossy(&line).replace('\0', " ");
            self.text(&format!("the command line of {command}"), &line, &[]);
            let home = environment
                .split(|byte| *byte == 0)
                .find_map(|word| word.strip_prefix(b"HOME="));
            let home =
                PathBuf::from(String::from_utf8_lossy(home.unwrap_or_default()).into_owned());
            for canary in &self.canaries {
                if !canary.is_in(&environment) {
                    continue;
                }
                let own = canary
                    .agents
                    .iter()
                    .any(|agent| home.ends_with(Path::new("homes/default").join(agent)));
                if own || (pid == gateway && canary.in_gateway) {
                    self.found
                        .push((canary.name, Path::new("environment").join(&home)));
                } else {
                    self.leaks
                        .push(format!("{} in the environment of {command}", canary.name));
                }
            }
        }
    }

    /// All files below a folder.
    pub(super) fn files(&mut self, folder: &Path) {
        let mut open = vec![folder.to_owned()];
        while let Some(next) = open.pop() {
            for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
                let kind = entry.file_type().expect("an entry has a type");
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() {
                    self.file(folder, &entry.path());
                }
            }
        }
    }

    fn file(&mut self, folder: &Path, file: &Path) {
        let bytes = std::fs::read(file).unwrap_or_default();
        let location = file.strip_prefix(folder).expect("it is below the folder");
        for canary in self.canaries.iter().filter(|canary| canary.is_in(&bytes)) {
            let location = location.to_str().expect("UTF-8");
            if canary
                .files
                .iter()
                .any(|allowed| location.starts_with(allowed))
            {
                self.found.push((canary.name, PathBuf::from(location)));
            } else {
                self.leaks
                    .push(format!("{} in the file {location}", canary.name));
            }
        }
    }

    #[track_caller]
    pub(super) fn assert_none_leaked(&self) {
        assert!(self.leaks.is_empty(), "{:#?}", self.leaks);
    }

    /// Whether the scan saw a canary at an allowed place. Otherwise it proves nothing.
    pub(super) fn saw(&self, name: &str, location: &str) -> bool {
        self.found
            .iter()
            .any(|(found, path)| *found == name && path.to_string_lossy().contains(location))
    }
}
