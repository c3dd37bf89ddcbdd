//! Attacks by paths on a workspace: nothing outside the roots is read, written, made or deleted.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use tempfile::TempDir;
use workspace::{FileError, LineRange, Precondition, Workspace, Workspaces};

const MAX: u64 = 1 << 20;
const SECRET: &str = "a secret outside";
const ROUNDS: usize = 10_000;

/// `root/w` is a session's folder. `root-secret` and `root/w-secret` are outside it.
struct Ground {
    dir: TempDir,
    workspaces: Workspaces,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for folder in ["root/w/sub", "root/w-secret", "root-secret", "root/more"] {
            std::fs::create_dir_all(dir.path().join(folder)).expect("the folder is ours");
        }
        for file in [
            "root-secret/file",
            "root/w-secret/file",
            "root/w/sub/file",
            "root/w/file",
        ] {
            let text = if file.contains("secret") {
                SECRET
            } else {
                "inside"
            };
            std::fs::write(dir.path().join(file), text).expect("the folder is ours");
        }
        let workspaces = Workspaces::new(&dir.path().join("root"), &[]).expect("the root is there");
        Self { dir, workspaces }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("it is there")
            .join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name)
            .to_str()
            .expect("a temporary folder has a plain name")
            .to_owned()
    }

    fn open(&self) -> Workspace {
        self.workspaces
            .open(&self.path("root/w"), &[self.path("root/more")])
            .expect("its folders are there")
    }
}

fn read(workspace: &Workspace, path: &str) -> Result<String, FileError> {
    let bytes = workspace.open_file(path)?.read(MAX)?;
    Ok(String::from_utf8(bytes).expect("tests write text"))
}

fn write(workspace: &Workspace, path: &str, text: &str) -> Result<(), FileError> {
    let mut upload = workspace.begin(path, Precondition::default(), MAX)?;
    upload.write(text.as_bytes())?;
    upload.finish().map(drop)
}

/// Every operation rejects the path in the same way, and files outside do not change.
#[track_caller]
fn refused(ground: &Ground, workspace: &Workspace, path: &str, fits: fn(&FileError) -> bool) {
    let outcomes = [
        read(workspace, path).map(drop),
        write(workspace, path, "overwritten"),
        workspace.delete(path, &Precondition::default()),
    ];
    for (what, outcome) in ["read", "write", "delete"].into_iter().zip(outcomes) {
        let Err(error) = outcome else {
            panic!("{what} of {path:?} passed")
        };
        assert!(fits(&error), "{what} of {path:?}: {error:?}");
    }
    untouched(ground);
}

#[track_caller]
fn untouched(ground: &Ground) {
    for folder in ["root-secret", "root/w-secret"] {
        let names: Vec<_> = std::fs::read_dir(ground.path(folder))
            .expect("it is there")
            .collect();
        assert_eq!(names.len(), 1, "something came or went in {folder}");
        let text = std::fs::read_to_string(ground.path(folder).join("file")).expect("it is there");
        assert_eq!(text, SECRET);
    }
}

#[test]
fn files_inside_the_roots_are_served() {
    let ground = Ground::new();
    let workspace = ground.open();
    assert_eq!(read(&workspace, "file").expect("a file"), "inside");
    assert_eq!(read(&workspace, "./sub//file").expect("a file"), "inside");
    assert_eq!(
        read(&workspace, &ground.text("root/w/sub/file")).expect("a file"),
        "inside"
    );
    write(&workspace, "new/folders/file", "new").expect("a new file");
    write(&workspace, &ground.text("root/more/file"), "more").expect("a new file");
    assert_eq!(
        std::fs::read_to_string(ground.path("root/w/new/folders/file")).expect("a file"),
        "new"
    );
    assert_eq!(
        std::fs::read_to_string(ground.path("root/more/file")).expect("a file"),
        "more"
    );
    let window = LineRange {
        line: Some(1),
        limit: None,
    };
    assert!(matches!(
        workspace.read_text("file", window, MAX),
        Err(FileError::Relative)
    ));
    workspace
        .delete("new/folders/file", &Precondition::default())
        .expect("it is there");
    workspace
        .delete("new/folders", &Precondition::default())
        .expect("it is empty");
    assert!(matches!(
        workspace.delete("sub", &Precondition::default()),
        Err(FileError::NotEmpty)
    ));
}

#[test]
fn dot_dot() {
    let ground = Ground::new();
    let workspace = ground.open();
    for path in [
        "../w-secret/file",
        "sub/../../w-secret/file",
        "..",
        "sub/..",
        "/..",
        "../../root-secret/file",
    ] {
        refused(&ground, &workspace, path, |error| {
            matches!(error, FileError::Malformed)
        });
    }
    let up = format!("{}/../../root-secret/file", ground.text("root/w"));
    refused(&ground, &workspace, &up, |error| {
        matches!(error, FileError::Malformed)
    });
}

#[test]
fn sibling_prefix() {
    let ground = Ground::new();
    let workspace = ground.open();
    for path in ["root/w-secret/file", "root-secret/file"] {
        refused(&ground, &workspace, &ground.text(path), |error| {
            matches!(error, FileError::OutsideRoots)
        });
    }
    let outside = ground.workspaces.open(&ground.path("root-secret"), &[]);
    assert!(
        matches!(outside, Err(FileError::OutsideRoots)),
        "a root is none by the letters that it begins with"
    );
    assert!(matches!(
        ground
            .workspaces
            .resolve_directory(&ground.text("root-secret")),
        Err(FileError::OutsideRoots)
    ));
}

#[test]
fn absolute() {
    let ground = Ground::new();
    let workspace = ground.open();
    for path in [
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "/nowhere",
        "/proc/self/environ",
    ] {
        refused(&ground, &workspace, path, |error| {
            matches!(error, FileError::OutsideRoots)
        });
    }
}

#[test]
fn nul_and_invalid_names_are_rejected() {
    let ground = Ground::new();
    let workspace = ground.open();
    for path in ["", "file\0", "\0", "sub\0/../../w-secret/file"] {
        refused(&ground, &workspace, path, |error| {
            matches!(error, FileError::Malformed)
        });
    }
    refused(&ground, &workspace, &"n".repeat(300), |error| {
        matches!(error, FileError::Malformed)
    });
    refused(&ground, &workspace, &"n/".repeat(4000), |error| {
        matches!(error, FileError::Malformed)
    });
}

#[test]
fn links_are_followed_inside_and_not_out() {
    let ground = Ground::new();
    let workspace = ground.open();
    let link = |to: &str, at: &str| symlink(to, ground.path("root/w").join(at)).expect("a link");
    link("sub/file", "inside");
    link("sub", "folder");
    assert_eq!(read(&workspace, "inside").expect("a file"), "inside");
    write(&workspace, "inside", "through").expect("a file");
    assert!(ground.path("root/w/inside").is_symlink(), "the link stays");
    assert_eq!(read(&workspace, "folder/file").expect("a file"), "through");
    link("../w-secret", "out");
    link(&ground.text("root-secret"), "absolute");
    for path in ["out/file", "absolute/file", "out/new", "absolute/new"] {
        refused(&ground, &workspace, path, |error| {
            matches!(error, FileError::OutsideRoots)
        });
    }
    link("../w-secret/file", "file-out");
    let read_out = read(&workspace, "file-out");
    assert!(
        matches!(read_out, Err(FileError::OutsideRoots)),
        "{read_out:?}"
    );
    assert!(matches!(
        write(&workspace, "file-out", "x"),
        Err(FileError::OutsideRoots)
    ));
    workspace
        .delete("file-out", &Precondition::default())
        .expect("the link itself is inside");
    untouched(&ground);
    link("../w-secret/new", "dangling");
    assert!(write(&workspace, "dangling", "x").is_err());
    untouched(&ground);
}

#[test]
fn a_loop_of_links_leads_nowhere() {
    let ground = Ground::new();
    let workspace = ground.open();
    symlink("b", ground.path("root/w/a")).expect("a link");
    symlink("a", ground.path("root/w/b")).expect("a link");
    assert!(matches!(read(&workspace, "a"), Err(FileError::Missing)));
    assert!(matches!(
        read(&workspace, "a/file"),
        Err(FileError::Missing)
    ));
    assert!(write(&workspace, "a", "x").is_err());
    assert!(ground.path("root/w/a").is_symlink());
}

#[test]
fn magic_links_are_not_followed() {
    let ground = Ground::new();
    let workspaces = Workspaces::new(Path::new("/proc"), &[]).expect("a root");
    let itself = format!("/proc/{}", std::process::id());
    let workspace = workspaces
        .open(Path::new(&itself), &[])
        .expect("its folder");
    let secret = std::fs::File::open(ground.path("root-secret/file")).expect("it is there");
    let number = std::os::fd::AsRawFd::as_raw_fd(&secret);
    assert!(read(&workspace, &format!("fd/{number}")).is_err());
    assert!(read(&workspace, "root/etc/passwd").is_err());
    assert!(read(&workspace, "cwd/Cargo.toml").is_err());
}

#[test]
fn fifo_and_socket() {
    let ground = Ground::new();
    let workspace = ground.open();
    let pipe = ground.path("root/w/pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    let _socket =
        std::os::unix::net::UnixListener::bind(ground.path("root/w/socket")).expect("a socket");
    let began = Instant::now();
    for path in ["pipe", "socket"] {
        let outcome = read(&workspace, path);
        assert!(
            matches!(outcome, Err(FileError::NotAFile)),
            "{path}: {outcome:?}"
        );
        assert!(matches!(
            write(&workspace, path, "x"),
            Err(FileError::NotAFile)
        ));
    }
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it waited for the other end"
    );
    assert!(
        std::fs::metadata(&pipe)
            .expect("it is there")
            .file_type()
            .is_fifo()
    );
}

#[test]
fn device() {
    // /dev is a root here, since only the superuser can make a device elsewhere.
    let workspaces = Workspaces::new(Path::new("/dev"), &[]).expect("a root");
    let workspace = workspaces.open(Path::new("/dev"), &[]).expect("its folder");
    for device in ["zero", "null", "tty"] {
        let outcome = read(&workspace, device);
        assert!(outcome.is_err(), "{device} was read");
        assert!(
            write(&workspace, device, "x").is_err(),
            "{device} was written"
        );
    }
    assert!(
        std::fs::metadata("/dev/null")
            .expect("it is there")
            .file_type()
            .is_char_device()
    );
}

#[test]
fn a_folder_is_no_file() {
    let ground = Ground::new();
    let workspace = ground.open();
    for path in ["sub", ".", "sub/"] {
        assert!(
            matches!(read(&workspace, path), Err(FileError::NotAFile)),
            "{path}"
        );
        assert!(write(&workspace, path, "x").is_err(), "{path}");
    }
    assert!(workspace.delete(".", &Precondition::default()).is_err());
    assert!(matches!(
        read(&workspace, "file/below"),
        Err(FileError::Missing)
    ));
    assert!(matches!(
        write(&workspace, "file/below", "x"),
        Err(FileError::NotADirectory)
    ));
}

#[test]
fn oversized_request_has_no_effect() {
    let ground = Ground::new();
    let workspace = ground.open();
    let mut upload = workspace
        .begin("file", Precondition::default(), 4)
        .expect("it begins");
    upload.write(b"1234").expect("it has room");
    assert!(matches!(upload.write(b"5"), Err(FileError::TooLarge(4))));
    drop(upload);
    let text = workspace.read_text(&ground.text("root/w/file"), LineRange::default(), 5);
    assert!(matches!(text, Err(FileError::TooLarge(5))));
    assert_eq!(read(&workspace, "file").expect("a file"), "inside");
    let names = std::fs::read_dir(ground.path("root/w"))
        .expect("it is there")
        .count();
    assert_eq!(names, 2, "file and sub");
}

#[test]
fn a_write_keeps_the_mode_and_does_not_overrule_it() {
    let ground = Ground::new();
    let workspace = ground.open();
    let script = ground.path("root/w/script");
    std::fs::write(&script, "old").expect("the folder is ours");
    for (mode, passes) in [(0o750, true), (0o600, true), (0o444, false)] {
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(mode))
            .expect("it is ours");
        assert_eq!(
            write(&workspace, "script", "new").is_ok(),
            passes,
            "{mode:o}"
        );
        let now = std::fs::metadata(&script)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(now & 0o777, mode);
    }
}

#[test]
fn the_parent_of_a_root_is_swapped_for_a_link() {
    let ground = Ground::new();
    let workspace = ground.open();
    let moved = ground.path("root/moved");
    let secret = ground.path("root-secret");
    std::fs::rename(ground.path("root/w"), &moved).expect("it is ours");
    symlink(&secret, ground.path("root/w")).expect("a link");
    // The handle still is the folder that it was; a new one is not had.
    assert_eq!(read(&workspace, "file").expect("a file"), "inside");
    write(&workspace, "new", "x").expect("a file");
    assert!(moved.join("new").exists());
    let again = ground.workspaces.open(&ground.path("root/w"), &[]);
    assert!(again.is_err(), "a link was taken for the folder");
    let below = ground.workspaces.open(&ground.path("root/w/sub"), &[]);
    assert!(below.is_err(), "a link above the folder was followed");
    untouched(&ground);
}

#[test]
fn link_swap_race_of_ten_thousand_rounds() {
    let ground = Ground::new();
    let workspace = ground.open();
    let over = AtomicBool::new(false);
    let swaps = AtomicUsize::new(0);
    let served = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    let name = ground.path("root/w/swap");
    let evil = ground.path("root/w/evil");
    std::fs::create_dir(&name).expect("the folder is ours");
    std::fs::write(name.join("file"), "inside").expect("the folder is ours");
    symlink("../../root-secret", &evil).expect("a link");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &name, CWD, &evil, RenameFlags::EXCHANGE)
                    .expect("both are ours");
                swaps.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        for round in 0..ROUNDS {
            let outcome = match round % 4 {
                0 | 1 => read(&workspace, "swap/file")
                    .map(|text| assert_ne!(text, SECRET, "round {round}")),
                2 => write(&workspace, "swap/file", "inside"),
                _ => workspace.delete("swap/gone", &Precondition::default()),
            };
            let count = if outcome.is_ok() { &served } else { &refused };
            count.fetch_add(1, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
    untouched(&ground);
    let served = served.into_inner();
    let refused = refused.into_inner();
    assert_eq!(served + refused, ROUNDS);
    assert!(
        served > 0 && refused > ROUNDS / 4,
        "both were met: {served} served, {refused} refused"
    );
    assert!(swaps.into_inner() > 10, "the link was swapped meanwhile");
}
