//! Paths of clients and agents in a real directory with links, compared with a walk in memory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;
use workspace::{FileError, LineRange, PageLimits, Pattern, Precondition, Workspace, Workspaces};

use super::input::Input;

/// The files of the test directory: path and content.
const GROUND: &[(&str, Node)] = &[
    ("secret", Node::Folder),
    ("secret/s.txt", Node::File),
    ("root", Node::Folder),
    ("root/r.txt", Node::File),
    ("root/w", Node::Folder),
    ("root/w/a.txt", Node::File),
    ("root/w/dir", Node::Folder),
    ("root/w/dir/b.txt", Node::File),
    ("root/w/dir/deep", Node::Folder),
    ("root/w/dir/deep/c.txt", Node::File),
    ("root/w/dir/back", Node::Link("../a.txt")),
    ("root/w/in", Node::Link("dir")),
    ("root/w/file", Node::Link("dir/b.txt")),
    ("root/w/self", Node::Link(".")),
    ("root/w/up", Node::Link("..")),
    ("root/w/out", Node::Link("../../secret")),
    (
        "root/w/outfile",
        Node::Link("in/deep/../../../../secret/s.txt"),
    ),
    ("root/w/round", Node::Link("../w/a.txt")),
    ("root/w/abs", Node::Link("/")),
    ("root/w/etc", Node::Link("/etc/passwd")),
    ("root/w/proc", Node::Link("/proc/self/root")),
    ("root/w/loop", Node::Link("loop")),
    ("root/w/none", Node::Link("nothing")),
    ("root/more", Node::Folder),
    ("root/more/m.txt", Node::File),
    ("root/more/cross", Node::Link("../w/a.txt")),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Folder,
    /// A file that contains its own path.
    File,
    Link(&'static str),
}

/// Path components that the fuzzer can select with one byte.
const WORDS: [&str; 40] = [
    "/", "/", "/", ".", "..", "../", "/..", "//", "./", "a.txt", "dir", "b.txt", "deep", "c.txt",
    "back", "in", "file", "self", "up", "out", "outfile", "round", "abs", "etc", "proc", "loop",
    "none", "w", "more", "m.txt", "cross", "secret", "s.txt", "root", "r.txt", "new", "%2e%2e",
    "\\", "~", "tmp",
];

struct Ground {
    _folder: TempDir,
    /// The canonical path of the directory.
    top: PathBuf,
    workspace: Workspace,
}

/// The meaning of a path in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    Malformed,
    Outside,
    Missing,
    /// The path relative to the test directory.
    Is(String, Node),
}

/// The input selects whether to write, and lists paths of words and letters.
pub fn paths(data: &[u8]) {
    static SHARED: OnceLock<Ground> = OnceLock::new();
    let mut input = Input::new(data);
    let writes = input.byte() & 3 == 3;
    let fresh;
    // A writing input gets its own directory.
    let ground = if writes {
        fresh = Ground::new();
        &fresh
    } else {
        SHARED.get_or_init(Ground::new)
    };
    let mut paths = 0;
    while paths < 16
        && let Some(spelled) = input.piece()
    {
        paths += 1;
        let path = ground.path(spelled);
        if writes {
            return ground.written(&path, spelled.len().is_multiple_of(2));
        }
        ground.read(&path);
    }
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the ground");
        let top = folder.path().canonicalize().expect("it is there");
        for (path, node) in GROUND {
            let at = top.join(path);
            match node {
                Node::Folder => fs::create_dir(at),
                Node::File => fs::write(at, path),
                Node::Link(target) => symlink(target, at),
            }
            .expect("the ground is laid");
        }
        let root = top.join("root");
        let workspaces = Workspaces::new(&root, &[]).expect("the root opens");
        let workspace = workspaces
            .open(&root.join("w"), &[root.join("more")])
            .expect("the folders open");
        Self {
            _folder: folder,
            top,
            workspace,
        }
    }

    /// A path from its bytes: some select words, one selects the top directory, the others are letters.
    fn path(&self, spelled: &[u8]) -> String {
        let mut path = Vec::new();
        for byte in spelled {
            match byte {
                0x80..=0xa7 => path.extend_from_slice(WORDS[usize::from(*byte - 0x80)].as_bytes()),
                0xa8 => path.extend_from_slice(self.top.as_os_str().as_encoded_bytes()),
                0xa9 => {
                    path.extend_from_slice(self.top.join("root/w").as_os_str().as_encoded_bytes());
                }
                0xaa => path
                    .extend_from_slice(self.top.join("root/more").as_os_str().as_encoded_bytes()),
                0xab => path.extend_from_slice("é".as_bytes()),
                0xac => path.extend_from_slice(&[b'x'; 300]),
                other => path.push(*other),
            }
        }
        String::from_utf8_lossy(&path).into_owned()
    }

    fn read(&self, path: &str) {
        let meaning = self.meaning(path);
        let file = match &meaning {
            Meaning::Is(real, Node::File) => Some(real),
            _ => None,
        };
        let opened = self
            .workspace
            .open_file(path)
            .and_then(|file| file.read(1 << 20));
        agree(
            path,
            &meaning,
            &opened,
            file.map(|real| real.clone().into_bytes()).as_ref(),
        );
        let real = self.workspace.open_real(path).map(|real| real.path);
        agree(
            path,
            &meaning,
            &real,
            file.map(|real| self.top.join(real)).as_ref(),
        );
        let text = self
            .workspace
            .read_text(path, LineRange::default(), 1 << 20);
        agree(
            path,
            &meaning,
            &text,
            file.filter(|_| path.starts_with('/')),
        );
        let folder = match &meaning {
            Meaning::Is(real, Node::Folder) => Some(self.top.join(real)),
            _ => None,
        };
        let found = self.workspace.real_directory(path);
        agree(
            path,
            &meaning,
            &found,
            folder.as_ref().filter(|_| path.starts_with('/')),
        );
        let listed = self.workspace.list(path, None, 100);
        let listed = listed.map(|page| {
            page.entries
                .into_iter()
                .map(|found| found.name)
                .collect::<Vec<_>>()
        });
        agree(
            path,
            &meaning,
            &listed,
            folder.as_deref().map(names).as_ref(),
        );
        let extent = PageLimits {
            max_entries: 1000,
            max_names: 1000,
        };
        let below = self
            .workspace
            .find(path, &Pattern::new(""), None, extent)
            .map(|page| page.entries.len());
        agree(
            path,
            &meaning,
            &below,
            folder.as_deref().map(count).as_ref(),
        );
    }

    /// Writes or deletes a file. Files outside the session's directories must not change.
    fn written(&self, path: &str, deletes: bool) {
        let before = self.outside();
        let meaning = self.meaning(path);
        if deletes {
            let gone = self
                .workspace
                .delete(path, &Precondition::default())
                .is_ok();
            let left = GROUND
                .iter()
                .filter(|(at, _)| self.top.join(at).symlink_metadata().is_ok())
                .count();
            assert_eq!(
                GROUND.len() - left,
                usize::from(gone),
                "{path:?}: one thing at most is deleted"
            );
        } else {
            let saved = self
                .workspace
                .begin(path, Precondition::default(), 100)
                .and_then(|mut upload| {
                    upload.write(b"written")?;
                    upload.finish()
                });
            match &meaning {
                Meaning::Is(real, Node::File) => {
                    assert!(saved.as_ref().is_ok_and(|saved| !saved.created), "{path:?}");
                    assert_eq!(
                        fs::read(self.top.join(real)).expect("it is there"),
                        b"written"
                    );
                }
                Meaning::Missing => {
                    assert!(
                        saved.as_ref().is_ok_and(|saved| saved.created) || saved.is_err(),
                        "{path:?}"
                    );
                }
                _ => assert!(saved.is_err(), "{path:?} is {meaning:?}"),
            }
            if saved.is_ok() {
                let again = self
                    .workspace
                    .open_file(path)
                    .and_then(|file| file.read(100));
                assert_eq!(
                    again.expect("what was written is read"),
                    b"written",
                    "{path:?}"
                );
            }
        }
        assert_eq!(self.outside(), before, "{path:?}");
        assert!(drafts(&self.top).is_empty(), "{path:?}: no draft is left");
    }

    /// All files outside the session's directories, with their content.
    fn outside(&self) -> BTreeMap<PathBuf, Option<String>> {
        let folders = ["", "secret", "root"].map(|folder| self.top.join(folder));
        let entries = folders
            .iter()
            .flat_map(|folder| fs::read_dir(folder).expect("it is there"));
        entries
            .map(|entry| entry.expect("it is read").path())
            .map(|path| (path.clone(), fs::read_to_string(path).ok()))
            .collect()
    }

    fn meaning(&self, path: &str) -> Meaning {
        if path.is_empty() || path.contains('\0') || path.split('/').any(|name| name == "..") {
            return Meaning::Malformed;
        }
        let names: Vec<&str> = path
            .split('/')
            .filter(|name| !matches!(*name, "" | "."))
            .collect();
        let top: Vec<&str> = self
            .top
            .to_str()
            .expect("it is text")
            .split('/')
            .filter(|n| !n.is_empty())
            .collect();
        if !path.starts_with('/') {
            return walk("root/w", &names);
        }
        match names.strip_prefix(&top[..]) {
            Some(["root", "w", rest @ ..]) => walk("root/w", rest),
            Some(["root", "more", rest @ ..]) => walk("root/more", rest),
            _ => Meaning::Outside,
        }
    }
}

/// Resolves names and links from a directory, without leaving it.
fn walk(from: &str, names: &[&str]) -> Meaning {
    let mut left: Vec<&str> = names.iter().rev().copied().collect();
    let mut at: Vec<&str> = Vec::new();
    let path_of = |at: &[&str]| [&[from], at].concat().join("/");
    let node = |at: &[&str]| {
        GROUND
            .iter()
            .find(|(path, _)| *path == path_of(at))
            .map(|(_, node)| *node)
    };
    let mut links = 0;
    while let Some(name) = left.pop() {
        if node(&at) != Some(Node::Folder) {
            return Meaning::Missing;
        }
        match name {
            ".." if at.is_empty() => return Meaning::Outside,
            ".." => drop(at.pop()),
            "." => {}
            name => {
                at.push(name);
                if let Some(Node::Link(target)) = node(&at) {
                    links += 1;
                    if target.starts_with('/') {
                        return Meaning::Outside;
                    }
                    if links > 40 {
                        return Meaning::Missing;
                    }
                    at.pop();
                    left.extend(target.split('/').rev());
                }
            }
        }
    }
    node(&at).map_or(Meaning::Missing, |node| Meaning::Is(path_of(&at), node))
}

/// Checks that the gateway returns a result exactly when the model does, and the same one.
fn agree<T: PartialEq + std::fmt::Debug>(
    path: &str,
    meaning: &Meaning,
    got: &Result<T, FileError>,
    expected: Option<&T>,
) {
    assert_eq!(
        got.as_ref().ok(),
        expected,
        "{path:?} is {meaning:?}: {got:?}"
    );
    if let Err(error) = got {
        assert!(
            !matches!(
                error,
                FileError::Io(_) | FileError::DiskFull | FileError::Changed
            ),
            "{path:?}: {error:?}"
        );
        if *meaning == Meaning::Missing {
            let explained = matches!(
                error,
                FileError::Missing | FileError::Malformed | FileError::Relative
            );
            assert!(explained, "{path:?}: {error:?}");
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("it is read")
                .file_name()
                .into_string()
                .expect("it is text")
        })
        .collect();
    names.sort();
    names
}

/// The number of entries below a directory, without following links.
fn count(folder: &Path) -> usize {
    let (name, _) = GROUND
        .iter()
        .find(|(path, _)| folder.ends_with(path))
        .expect("it is of the ground");
    GROUND
        .iter()
        .filter(|(path, _)| {
            path.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('/'))
        })
        .count()
}

/// Temporary files that a write left behind.
fn drafts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let entry = entry.expect("it is read");
        let kind = entry.file_type().expect("it has a type");
        if kind.is_dir() {
            found.extend(drafts(&entry.path()));
        } else if entry
            .file_name()
            .to_string_lossy()
            .starts_with(".acp-gateway-")
        {
            found.push(entry.path());
        }
    }
    found
}
