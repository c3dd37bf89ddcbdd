//! The disk of a process under test: its writes in order, and the calls that fail or are slow.

use std::cell::Cell;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::gateway::command;
use crate::support::places::{project, scratch};

/// `errno` of a full disk, and of one that fails.
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EIO: i32 = 5;

/// One call, as `tests/store_faults/disk.c` wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// The last part of the file's path.
    pub(crate) name: String,
    /// When it had its effect, on the monotonic clock.
    pub(crate) time: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Unlink,
    Rename { to: String },
    Write { at: usize, bytes: Vec<u8> },
    Truncate { size: usize },
    SyncBegins,
    Synced,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    prefix: PathBuf,
    generation: Cell<u64>,
    _made: Option<TempDir>,
}

impl Disk {
    /// The files whose paths start with `prefix`, which is absolute and without links.
    pub(crate) fn of(prefix: &Path) -> Self {
        let made = tempfile::tempdir().expect("a temporary folder");
        let folder = made.path().to_owned();
        Self {
            folder,
            prefix: prefix.to_owned(),
            generation: Cell::new(0),
            _made: Some(made),
        }
    }

    /// The disk of this process itself: `folder` is that of its parent's.
    pub(crate) fn own(folder: &str) -> Self {
        Self {
            folder: folder.into(),
            prefix: PathBuf::new(),
            generation: Cell::new(0),
            _made: None,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The environment of a process that uses this disk.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", library().into()),
            ("DISK_PREFIX", self.prefix.clone().into()),
            ("DISK_JOURNAL", self.journal_path().into()),
            ("DISK_CONTROL", self.control().into()),
        ]
    }

    fn journal_path(&self) -> PathBuf {
        self.folder.join("journal")
    }

    fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// From now on these of the calls of `kinds` fail.
    pub(crate) fn fail(&self, kinds: &str, errno: i32, calls: RangeInclusive<u64>) {
        self.order(&calls, errno, kinds, Duration::ZERO);
    }

    /// From now on the files of the folder may have so many bytes together.
    pub(crate) fn limit_to(&self, bytes: u64) {
        self.order(&(bytes..=u64::MAX), ENOSPC, "q", Duration::ZERO);
    }

    /// From now on each call of `kinds` lasts this long.
    pub(crate) fn slow(&self, kinds: &str, each: Duration) {
        self.order(&(1..=u64::MAX), 0, kinds, each);
    }

    fn order(&self, calls: &RangeInclusive<u64>, errno: i32, kinds: &str, wait: Duration) {
        self.generation.set(self.generation.get() + 1);
        let generation = self.generation.get();
        let first = calls.start();
        let last = calls.end();
        let line = format!(
            "{generation} {first} {last} {errno} {kinds} {}\n",
            wait.as_millis()
        );
        let new = self.folder.join("control.new");
        std::fs::write(&new, line)
            .and_then(|()| std::fs::rename(&new, self.control()))
            .expect("it is ours");
    }

    /// Everything works again.
    pub(crate) fn heal(&self) {
        match std::fs::remove_file(self.control()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    /// The journal begins anew.
    pub(crate) fn forget(&self) {
        std::fs::write(self.journal_path(), "").expect("it is ours");
    }

    /// Whether a call has failed by us.
    pub(crate) fn has_failed(&self) -> bool {
        self.journal().iter().any(|call| call.kind == Kind::Failed)
    }

    /// The calls so far.
    pub(crate) fn journal(&self) -> Vec<Call> {
        parse(&std::fs::read(self.journal_path()).expect("something was done"))
    }
}

fn parse(mut rest: &[u8]) -> Vec<Call> {
    let mut calls = Vec::new();
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let head = std::str::from_utf8(&rest[..end]).expect("a line of text");
        let words: Vec<&str> = head.split(' ').collect();
        let [op, name, at, size, time] = words[..] else {
            panic!("no record: {head}")
        };
        let number = |word: &str| word.parse::<usize>().expect("a number");
        let Some(bytes) = rest.get(end + 1..end + 1 + number(size)) else {
            break;
        };
        let kind = match op {
            "c" => Kind::Create,
            "u" => Kind::Unlink,
            "r" => Kind::Rename {
                to: String::from_utf8(bytes.to_vec()).expect("a name"),
            },
            "w" => Kind::Write {
                at: number(at),
                bytes: bytes.to_vec(),
            },
            "t" => Kind::Truncate { size: number(at) },
            "S" => Kind::SyncBegins,
            "s" => Kind::Synced,
            "F" => Kind::Failed,
            _ => panic!("no record: {head}"),
        };
        let time = Duration::from_nanos(time.parse().expect("a time"));
        calls.push(Call {
            kind,
            name: name.to_owned(),
            time,
        });
        rest = &rest[end + 1 + bytes.len()..];
    }
    calls
}

/// The shim, compiled once in a run of the tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = scratch();
        let new = folder.join(format!("disk.{}.so", std::process::id()));
        let done = folder.join("disk.so");
        let source = project().join("tests/store_faults/disk.c");
        let flags = [
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o",
        ];
        let made = command("cc")
            .args(flags)
            .arg(&new)
            .arg(source)
            .output()
            .expect("a C compiler is there");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        std::fs::rename(&new, &done).expect("it was made");
        done
    })
}
