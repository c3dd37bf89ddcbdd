//! The journals of scripted agents (`--journal`): every line that each process read and wrote.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

/// Of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    /// `<pid>.<start>`.
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
    /// Ids of its requests that were open when these lines began.
    pub(crate) open: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) to_client: bool,
    pub(crate) text: Box<str>,
}

/// The members of a line that the rules check.
#[derive(Debug, Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) params: Option<&'a RawValue>,
}

impl Line {
    /// The parsed line. `None` if it is not an object.
    pub(crate) fn message(&self) -> Option<Message<'_>> {
        serde_json::from_str(&self.text).ok()
    }
}

impl Journal {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let line = |line: &str| {
            let to_client = line.starts_with("> ");
            Some(Line {
                to_client,
                text: line.get(2..)?.into(),
            })
        };
        Self {
            name: name.to_owned(),
            lines: text.lines().filter_map(line).collect(),
            open: Vec::new(),
        }
    }
}

/// A process by the name of its journal: its pid, and when it started as `/proc` counts it.
pub(crate) fn process(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.split_once('.')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// A folder of journals, read piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    folder: PathBuf,
    read: HashMap<String, u64>,
}

impl Journals {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            read: HashMap::new(),
        }
    }

    /// Every process that there was since the files of dead ones were removed.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Complete lines since the last call.
    pub(crate) fn take(&mut self) -> Vec<Journal> {
        let mut journals = Vec::new();
        for name in self.names() {
            let path = self.folder.join(&name);
            let from = self.read.entry(name.clone()).or_default();
            let mut file = std::fs::File::open(path).expect("the folder is the test's");
            file.seek(SeekFrom::Start(*from))
                .expect("a file can be read from anywhere");
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).expect("a file can be read");
            let whole = bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            *from += u64::try_from(whole).expect("it fits");
            if whole > 0 {
                journals.push(Journal::new(
                    &name,
                    &String::from_utf8_lossy(&bytes[..whole]),
                ));
            }
        }
        journals
    }

    /// Removes the read journals of processes that have ended.
    pub(crate) fn forget(&mut self, ended: impl Fn(u32, u64) -> bool) {
        for name in self.names() {
            if process(&name).is_some_and(|(pid, start)| ended(pid, start)) {
                self.read.remove(&name);
                std::fs::remove_file(self.folder.join(&name)).expect("the folder is the test's");
            }
        }
    }
}
