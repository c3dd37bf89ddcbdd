use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::baseline::Baseline;
use super::walk::walk_order;
use super::*;
use crate::{EntityTags, FileError, Precondition, Workspace, Workspaces};
use base::types::{Ids, Timestamp};

/// A working folder, and the folder of its baselines.
struct Ground {
    dir: tempfile::TempDir,
    workspace: Workspace,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/w")).unwrap();
        let root = dir.path().join("root").canonicalize().unwrap();
        let workspace = Workspaces::new(&root, &[])
            .unwrap()
            .open(&root.join("w"), &[])
            .unwrap();
        Self { dir, workspace }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("root/w").join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn make_fifo(&self, name: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, self.path(name), kind, mode, 0).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join("baselines").join(name)
    }

    fn take_with(
        &self,
        name: &str,
        previous: Option<&str>,
        since: Timestamp,
        bounds: &ChangeBounds,
    ) -> u64 {
        let folder = self.folder(name);
        let previous = previous.map(|name| self.folder(name));
        let capture = Capture {
            folder: &folder,
            pack: name,
            previous: previous.as_deref(),
            since,
        };
        take_baseline(&self.workspace, capture, bounds).unwrap()
    }

    fn take(&self) {
        self.take_with("a", None, Ids::system().now(), &ChangeBounds::default());
    }

    fn compare(&self) -> FolderChanges {
        compare(&self.workspace, &self.folder("a"), &ChangeBounds::default()).unwrap()
    }

    /// The changes as short texts.
    fn changes(&self) -> Vec<String> {
        self.compare().files.iter().map(short).collect()
    }

    fn text_of(&self, path: &str) -> Result<ChangedText, FileError> {
        text_of(
            &self.workspace,
            &self.folder("a"),
            path,
            &ChangeBounds::default(),
        )
    }

    fn revert(&self, path: &str, expected: &Precondition) -> Result<Option<String>, FileError> {
        revert(&self.workspace, &self.folder("a"), path, expected)
    }
}

fn short(file: &ChangedFile) -> String {
    let kind = match file.kind {
        ChangeKind::Added => "A",
        ChangeKind::Modified => "M",
        ChangeKind::Deleted => "D",
    };
    let lines = file
        .lines
        .map(|(added, deleted)| format!(" +{added} -{deleted}"))
        .unwrap_or_default();
    let flags = [(file.binary, " binary"), (file.too_large, " large")];
    let flags: String = flags
        .iter()
        .filter(|(set, _)| *set)
        .map(|(_, text)| *text)
        .collect();
    format!("{kind} {}{lines}{flags}", file.path)
}

/// A time after which every file of a test counts as old.
fn later() -> Timestamp {
    Ids::system().now().after(Duration::from_mins(1))
}

#[test]
fn every_kind_of_change_is_found() {
    let ground = Ground::new();
    for (name, text) in [
        ("same", "same\n"),
        ("edited", "one\ntwo\nthree\n"),
        ("gone", "x\n"),
        ("old-name", "moved\n"),
        ("sub/deep/file", "a\n"),
        ("sub/gone/file", "b\n"),
        ("replaced", "c\n"),
        ("empty", ""),
    ] {
        ground.write(name, text);
    }
    ground.write("image", b"\x00\x01");
    ground.write("large", vec![b'x'; (1 << 20) + 1]);
    ground.take();
    assert_eq!(ground.changes(), [""; 0]);
    ground.write("edited", "one\n2\nthree\nfour\n");
    fs::remove_file(ground.path("gone")).unwrap();
    fs::rename(ground.path("old-name"), ground.path("new-name")).unwrap();
    fs::remove_dir_all(ground.path("sub/gone")).unwrap();
    fs::remove_file(ground.path("replaced")).unwrap();
    ground.write("replaced/inside", "d\n");
    ground.write("image", b"\x00\x02");
    ground.write("large", vec![b'y'; (1 << 20) + 1]);
    ground.write("sub/new", "e\n");
    ground.write("empty", "f");
    let expected = [
        "M edited +2 -1",
        "M empty +1 -0",
        "D gone +0 -1",
        "M image binary",
        "M large large",
        "A new-name +1 -0",
        "D old-name +0 -1",
        "D replaced +0 -1",
        "A replaced/inside +1 -0",
        "D sub/gone/file +0 -1",
        "A sub/new +1 -0",
    ];
    assert_eq!(ground.changes(), expected);
    let changes = ground.compare();
    assert_eq!((changes.incomplete, changes.more), (None, false));
}

#[test]
fn a_rewrite_with_the_same_size_is_found_at_once() {
    let ground = Ground::new();
    for name in 0..50 {
        ground.write(&format!("f{name}"), "old");
    }
    ground.take();
    for name in 0..50 {
        ground.write(&format!("f{name}"), "new");
    }
    assert_eq!(ground.changes().len(), 50);
    for name in 0..50 {
        ground.write(&format!("f{name}"), "old");
    }
    assert_eq!(ground.changes(), [""; 0], "the same content is no change");
}

#[test]
fn ignored_files_are_omitted_unless_they_were_part_of_the_start() {
    let ground = Ground::new();
    ground.write(".gitignore", "*.log\ntarget/\n.env\n");
    ground.write("sub/.gitignore", "!keep.log\nlocal\n");
    for name in [
        "a.log",
        "sub/keep.log",
        "sub/local",
        "target/out",
        ".env",
        "src/main",
        "target2/x",
    ] {
        ground.write(name, "1\n");
    }
    ground.write(".git/config", "1\n");
    ground.take();
    for name in [
        "a.log",
        "b.log",
        "sub/keep.log",
        "sub/local",
        "sub/new.log",
        "target/out",
        "target/new",
        ".env",
        ".git/config",
        ".git/hooks/x",
        "sub/.git",
    ] {
        ground.write(name, "2\n");
    }
    assert_eq!(ground.changes(), ["M sub/keep.log +1 -1"]);
    // The agent cannot hide changes of files that were part of the start.
    ground.write(".gitignore", "*\n");
    ground.write("src/main", "2\n");
    ground.write("src/new", "2\n");
    fs::remove_file(ground.path("target2/x")).unwrap();
    assert_eq!(
        ground.changes(),
        [
            "M .gitignore +1 -3",
            "M src/main +1 -1",
            "M sub/keep.log +1 -1",
            "D target2/x +0 -1"
        ]
    );
    // A file that was ignored at the start existed before. Its revert would delete it.
    fs::remove_file(ground.path(".gitignore")).unwrap();
    fs::remove_file(ground.path("sub/.gitignore")).unwrap();
    let changes = ground.changes();
    for absent in [
        "A a.log",
        "A .env",
        "A target/out",
        "A target/new",
        "A sub/local",
    ] {
        assert!(
            !changes.iter().any(|change| change.starts_with(absent)),
            "{absent}: {changes:?}"
        );
    }
    assert!(changes.contains(&"A b.log +1 -0".to_owned()), "{changes:?}");
    for name in [
        "a.log",
        ".env",
        "target/out",
        "target/new",
        ".git/config",
        ".git/hooks/x",
    ] {
        assert!(
            ground.text_of(name).is_err() && ground.revert(name, &Precondition::default()).is_err()
        );
        assert!(ground.path(name).exists(), "{name}");
    }
}

#[test]
fn links_are_never_followed() {
    let ground = Ground::new();
    let outside = ground.dir.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "secret\n").unwrap();
    for name in ["was-file", "folder/file", "inside"] {
        ground.write(name, "1\n");
    }
    symlink("inside", ground.path("was-link")).unwrap();
    symlink(outside.join("secret"), ground.path("to-secret")).unwrap();
    symlink(&outside, ground.path("to-folder")).unwrap();
    ground.take();
    let baseline = Baseline::load(&ground.folder("a")).unwrap();
    assert_eq!(
        baseline.files.keys().collect::<Vec<_>>(),
        ["folder/file", "inside", "was-file"]
    );
    fs::remove_file(ground.path("was-file")).unwrap();
    symlink(outside.join("secret"), ground.path("was-file")).unwrap();
    fs::remove_dir_all(ground.path("folder")).unwrap();
    symlink(&outside, ground.path("folder")).unwrap();
    fs::write(outside.join("file"), "outside\n").unwrap();
    fs::remove_file(ground.path("was-link")).unwrap();
    ground.write("was-link", "now a file\n");
    assert_eq!(
        ground.changes(),
        [
            "D folder/file +0 -1",
            "D was-file +0 -1",
            "M was-link large"
        ]
    );
    for path in [
        "to-secret",
        "to-folder/secret",
        "folder/secret",
        "../outside/secret",
        "/etc/passwd",
    ] {
        assert!(ground.text_of(path).is_err(), "{path}");
        assert!(
            ground.revert(path, &Precondition::default()).is_err(),
            "{path}"
        );
    }
    assert_eq!(ground.text_of("was-file").unwrap().new, None);
    assert!(matches!(
        ground.text_of("was-link"),
        Err(FileError::NotStored)
    ));
    // The revert replaces the link, and not its target. It does not write through a link to a folder.
    assert!(
        ground
            .revert("was-file", &Precondition::default())
            .unwrap()
            .is_some()
    );
    assert!(
        !ground
            .path("was-file")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
    assert_eq!(ground.text("was-file"), "1\n");
    assert!(
        ground
            .revert("folder/file", &Precondition::default())
            .is_err()
    );
    assert_eq!(
        fs::read_to_string(outside.join("secret")).unwrap(),
        "secret\n"
    );
    assert_eq!(
        fs::read_to_string(outside.join("file")).unwrap(),
        "outside\n"
    );
}

#[test]
fn texts_of_a_change_are_those_of_the_start_and_now() {
    let ground = Ground::new();
    for (name, text) in [("edited", "old\n"), ("gone", "old\n"), ("same", "same\n")] {
        ground.write(name, text);
    }
    ground.write("binary", b"\xff");
    ground.write("large", "small at the start");
    ground.take();
    ground.write("edited", "new\n");
    ground.write("added", "new\n");
    ground.write("binary", b"\xfe");
    ground.write("large", vec![b'x'; (1 << 20) + 1]);
    fs::remove_file(ground.path("gone")).unwrap();
    for (path, kind, old, new) in [
        ("edited", ChangeKind::Modified, Some("old\n"), Some("new\n")),
        ("added", ChangeKind::Added, None, Some("new\n")),
        ("./gone", ChangeKind::Deleted, Some("old\n"), None),
    ] {
        let text = ground.text_of(path).unwrap();
        assert_eq!(
            (text.kind, text.old.as_deref(), text.new.as_deref()),
            (kind, old, new),
            "{path}"
        );
        assert_eq!(text.etag.is_some(), new.is_some());
        if new.is_some() {
            assert_eq!(
                text.etag.unwrap(),
                ground.workspace.open_file(path).unwrap().stat.etag,
                "{path}"
            );
        }
    }
    assert!(matches!(ground.text_of("same"), Err(FileError::Unchanged)));
    assert!(matches!(ground.text_of("missing"), Err(FileError::Missing)));
    assert!(matches!(ground.text_of("binary"), Err(FileError::NotText)));
    assert!(matches!(
        ground.text_of("large"),
        Err(FileError::TooLarge(_))
    ));
}

#[test]
fn revert_restores_every_kind_of_change() {
    let ground = Ground::new();
    for name in ["edited", "gone/deep/file", "kept"] {
        ground.write(name, "old\n");
    }
    ground.write("binary", b"\xff\x00");
    fs::set_permissions(
        ground.path("gone/deep/file"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    ground.take();
    ground.write("edited", "new\n");
    ground.write("binary", b"\xfe");
    ground.write("new/file", "new\n");
    fs::remove_dir_all(ground.path("gone")).unwrap();
    let stale = ground.text_of("edited").unwrap().etag.unwrap();
    ground.write("edited", "newer\n");
    let only = |tag: &str| Precondition {
        if_match: Some(EntityTags::Listed(vec![tag.to_owned()])),
        ..Precondition::default()
    };
    assert!(matches!(
        ground.revert("edited", &only(&stale)),
        Err(FileError::Changed)
    ));
    assert!(matches!(
        ground.revert("new/file", &only(&stale)),
        Err(FileError::Changed)
    ));
    assert!(matches!(
        ground.revert("gone/deep/file", &only(&stale)),
        Err(FileError::Changed)
    ));
    assert!(
        !ground.path("gone").exists(),
        "a refused revert creates no folder"
    );
    assert_eq!(
        (ground.text("edited"), ground.text("new/file")),
        ("newer\n".into(), "new\n".into())
    );
    let fresh = ground.text_of("edited").unwrap().etag.unwrap();
    let etag = ground.revert("edited", &only(&fresh)).unwrap();
    assert_eq!(
        etag,
        Some(ground.workspace.open_file("edited").unwrap().stat.etag)
    );
    let new = Precondition {
        if_none_match: Some(EntityTags::Any),
        ..Precondition::default()
    };
    assert!(ground.revert("gone/deep/file", &new).unwrap().is_some());
    assert_eq!(
        fs::metadata(ground.path("gone/deep/file"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    assert!(matches!(
        ground.revert("binary", &new),
        Err(FileError::Exists)
    ));
    ground.revert("binary", &Precondition::default()).unwrap();
    assert_eq!(
        ground.revert("new/file", &Precondition::default()).unwrap(),
        None
    );
    assert_eq!(ground.changes(), [""; 0]);
    assert_eq!(fs::read(ground.path("binary")).unwrap(), b"\xff\x00");
    let left: Vec<_> = fs::read_dir(ground.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_str().unwrap().starts_with('.')),
        "{left:?}"
    );
}

#[test]
fn bounds_leave_no_false_changes() {
    let ground = Ground::new();
    for name in 0..40 {
        ground.write(&format!("d{}/f{name}", name % 4), "x\n");
    }
    let bounds = ChangeBounds {
        max_names: 15,
        ..ChangeBounds::default()
    };
    ground.take_with("a", None, Ids::system().now(), &bounds);
    let changes = ground.compare();
    assert_eq!(changes.files, []);
    assert!(changes.incomplete.is_some());
    // Known and unknown paths change.
    for name in ["d0/f0", "d0/new", "d3/f3", "d3/new"] {
        ground.write(name, "y\n");
    }
    assert_eq!(ground.changes(), ["M d0/f0 +1 -1", "A d0/new +1 -0"]);
    // The comparison has bounds too: what it does not reach is not deleted.
    ground.take();
    let few = ChangeBounds {
        max_names: 15,
        max_changes: 2,
        ..ChangeBounds::default()
    };
    let changes = compare(&ground.workspace, &ground.folder("a"), &few).unwrap();
    assert_eq!((changes.files.len(), changes.more), (0, false));
    assert!(changes.incomplete.is_some());
    for name in 0..5 {
        ground.write(&format!("d0/new{name}"), "x\n");
    }
    let changes = compare(&ground.workspace, &ground.folder("a"), &few).unwrap();
    assert_eq!((changes.files.len(), changes.more), (2, true));
}

#[test]
fn many_new_files_do_not_hide_changes_of_the_start() {
    let ground = Ground::new();
    for name in [
        "a/first",
        "z/edited",
        "z/gone",
        "z/same",
        "z/link",
        "y/gone/file",
    ] {
        ground.write(name, "old\n");
    }
    ground.take();
    for name in 0..30 {
        ground.write(&format!("b/flood{name}"), "x\n");
    }
    ground.write("z/edited", "new\n");
    for name in ["z/gone", "z/link"] {
        fs::remove_file(ground.path(name)).unwrap();
    }
    symlink("same", ground.path("z/link")).unwrap();
    fs::remove_dir_all(ground.path("y/gone")).unwrap();
    let few = ChangeBounds {
        max_names: 10,
        ..ChangeBounds::default()
    };
    let changes = compare(&ground.workspace, &ground.folder("a"), &few).unwrap();
    let known: Vec<String> = changes
        .files
        .iter()
        .map(short)
        .filter(|change| !change.contains("flood"))
        .collect();
    assert_eq!(
        known,
        [
            "D y/gone/file +0 -1",
            "M z/edited +1 -1",
            "D z/gone +0 -1",
            "D z/link +0 -1"
        ]
    );
    assert!(changes.incomplete.is_some());
}

#[test]
fn changes_are_listed_without_their_lines_after_the_deadline() {
    let ground = Ground::new();
    ground.write("file", "old\n");
    ground.write("large", vec![b'x'; (1 << 20) + 1]);
    ground.take();
    for name in ["file", "large", "added"] {
        ground.write(name, "new\n");
    }
    let bounds = ChangeBounds {
        count_time: Duration::ZERO,
        ..ChangeBounds::default()
    };
    let changes = compare(&ground.workspace, &ground.folder("a"), &bounds).unwrap();
    let short: Vec<String> = changes.files.iter().map(short).collect();
    assert_eq!(short, ["A added", "M file", "M large large"]);
}

#[test]
fn contents_beyond_the_bound_are_not_stored() {
    let ground = Ground::new();
    for name in ["a", "b", "c"] {
        ground.write(name, "12345\n");
    }
    let bounds = ChangeBounds {
        max_new_bytes: 13,
        ..ChangeBounds::default()
    };
    ground.take_with("a", None, Ids::system().now(), &bounds);
    for name in ["b", "c"] {
        ground.write(name, "1234567\n");
    }
    let changes = ground.compare();
    let short: Vec<String> = changes.files.iter().map(short).collect();
    assert_eq!(short, ["M b +1 -1", "M c large"]);
    assert!(changes.incomplete.is_some());
    assert!(matches!(ground.text_of("c"), Err(FileError::NotStored)));
    assert!(matches!(
        ground.revert("c", &Precondition::default()),
        Err(FileError::NotStored)
    ));
}

#[test]
fn baselines_of_one_folder_share_contents() {
    let ground = Ground::new();
    for name in ["one", "two", "three"] {
        ground.write(name, format!("{name}\n"));
    }
    let bounds = ChangeBounds::default();
    let first = ground.take_with("a", None, later(), &bounds);
    assert!(first > 0);
    let second = ground.take_with("b", Some("a"), later(), &bounds);
    assert!(
        second < first && !ground.folder("b").join("b.pack").exists(),
        "nothing is stored again"
    );
    assert_eq!(
        (
            own_bytes(&ground.folder("a")),
            own_bytes(&ground.folder("b"))
        ),
        (second, second)
    );
    ground.write("two", "changed\n");
    let third = ground.take_with("c", Some("b"), later(), &bounds);
    assert!(third > second && ground.folder("c").join("c.pack").exists());
    let packs = |name: &str| Baseline::load(&ground.folder(name)).unwrap().packs;
    assert_eq!(
        (packs("b"), packs("c")),
        (
            vec!["a.pack".into()],
            vec!["a.pack".into(), "c.pack".into()]
        )
    );
    // The contents remain as long as a baseline has them.
    fs::remove_dir_all(ground.folder("a")).unwrap();
    fs::remove_dir_all(ground.folder("b")).unwrap();
    for name in ["one", "two"] {
        ground.write(name, "x\n");
    }
    let old = |path| {
        text_of(&ground.workspace, &ground.folder("c"), path, &bounds)
            .unwrap()
            .old
            .unwrap()
    };
    assert_eq!(
        (old("one"), old("two")),
        ("one\n".to_owned(), "changed\n".to_owned())
    );
    // A folder that has gone, and one whose packs have gone, are not shared.
    ground.take_with("d", Some("a"), later(), &bounds);
    fs::remove_file(ground.folder("d").join("d.pack")).unwrap();
    ground.take_with("e", Some("d"), later(), &bounds);
    assert_eq!(packs("e"), ["e.pack"]);
}

#[test]
fn damaged_baseline_is_not_used() {
    let ground = Ground::new();
    ground.write("file", "old\n");
    ground.take();
    ground.write("file", "new\n");
    assert_eq!(
        ground.text_of("file").unwrap().old.as_deref(),
        Some("old\n")
    );
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    };
    flip(&ground.folder("a").join("a.pack"));
    assert!(ground.text_of("file").is_err());
    assert!(ground.revert("file", &Precondition::default()).is_err());
    assert_eq!(ground.changes(), ["M file large"]);
    flip(&ground.folder("a").join("baseline"));
    assert!(!has_baseline(&ground.folder("a")));
    assert!(matches!(
        compare(
            &ground.workspace,
            &ground.folder("a"),
            &ChangeBounds::default()
        ),
        Err(FileError::NotStored)
    ));
}

#[test]
fn special_and_unreadable_entries_do_not_block() {
    let ground = Ground::new();
    ground.write("file", "x\n");
    ground.make_fifo("fifo");
    ground.take();
    fs::remove_file(ground.path("file")).unwrap();
    ground.make_fifo("file");
    assert_eq!(ground.changes(), ["D file +0 -1"]);
    assert!(ground.revert("fifo", &Precondition::default()).is_err());
    assert!(ground.revert("file", &Precondition::default()).is_err());
}

#[test]
fn deep_folders_are_skipped_and_reported_only_when_they_appear() {
    let ground = Ground::new();
    let deep = vec!["d"; 80].join("/");
    ground.write(&format!("{deep}/file"), "x\n");
    ground.take();
    ground.write(&format!("{deep}/file"), "y\n");
    ground.write("d/new", "y\n");
    assert_eq!(ground.changes(), ["A d/new +1 -0"]);
    assert!(
        ground
            .revert(&format!("{deep}/file"), &Precondition::default())
            .is_err()
    );
}

#[test]
fn walk_order_is_the_order_of_names() {
    let mut paths = ["b", "a.rs", "a/x", "a", "a/x/y", "a/x.rs"];
    paths.sort_by(|a, b| walk_order(a, b));
    assert_eq!(paths, ["a", "a/x", "a/x/y", "a/x.rs", "a.rs", "b"]);
}
