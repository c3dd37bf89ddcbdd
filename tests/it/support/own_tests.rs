//! The tests of this crate, by the names that `cargo test` prints, read from the source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::places::project;

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("a folder of ours").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// `faults::process` for `process.rs` in the folder `faults`.
fn module(file: &Path, folder: &Path) -> String {
    let below = file
        .strip_prefix(folder)
        .expect("it lies there")
        .with_extension("");
    let parts: Vec<&str> = below
        .iter()
        .map(|part| part.to_str().expect("UTF-8"))
        .collect();
    let parts = match parts.as_slice() {
        [before @ .., "mod" | "lib" | "main"] => before,
        whole => whole,
    };
    parts.join("::")
}

/// Functions that are tests, as `module::name`. A test in `mod tests` of a file has the name that cargo uses.
pub(crate) fn own_tests() -> BTreeSet<String> {
    let root = project();
    let mut tests = BTreeSet::new();
    let crates = std::fs::read_dir(root.join("crates")).expect("crates/ can be listed");
    let crates = crates.map(|entry| entry.expect("an entry can be read").path().join("src"));
    let folders = ["src", "tests/it"].map(|folder| root.join(folder));
    for folder in folders.into_iter().chain(crates) {
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let module = module(&file, &folder);
            let source = std::fs::read_to_string(&file).expect("a file of ours");
            let mut marked = false;
            let mut inner = "";
            for line in source.lines() {
                if line == "mod tests {" {
                    inner = "::tests";
                }
                let line = line.trim();
                let name = line
                    .strip_prefix("async ")
                    .unwrap_or(line)
                    .strip_prefix("fn ");
                match name.and_then(|rest| rest.split_once('(')) {
                    Some((name, _)) => {
                        if std::mem::take(&mut marked) {
                            tests.insert(format!("{module}{inner}::{name}"));
                        }
                    }
                    None => marked |= line == "#[test]" || line.starts_with("#[tokio::test"),
                }
            }
        }
    }
    tests
}
