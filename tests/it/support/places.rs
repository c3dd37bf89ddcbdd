//! Where the project, its programs and the folders of the tests are. They are found when the tests run, so that one build can
//! be copied and tested in other folders (`scripts/test places`).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::process::geteuid;

/// The root of the project.
#[expect(
    clippy::disallowed_methods,
    reason = "cargo names the project to the tests that it runs"
)]
static PROJECT: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
});

/// The folder of the programs of this build. The test binary is in a folder of it.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let tests = std::env::current_exe().expect("the path of the tests");
    let folder = tests.parent().and_then(Path::parent);
    folder.expect("the folder of the build").to_owned()
});

static GATEWAY: LazyLock<String> = LazyLock::new(|| program("acp-gateway"));
static FAKE_AGENT: LazyLock<String> = LazyLock::new(|| program("fake-agent"));

/// The parent of the folders of tests that need a certain file system or place.
static SCRATCH: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PROGRAMS.with_file_name("tmp");
    std::fs::create_dir_all(&folder).expect("the build is ours");
    folder
});

fn program(name: &str) -> String {
    let path = PROGRAMS.join(name).into_os_string();
    path.into_string().expect("UTF-8")
}

pub(crate) fn project() -> &'static Path {
    &PROJECT
}

/// The gateway of this build.
pub(crate) fn gateway_program() -> &'static str {
    &GATEWAY
}

/// The scripted agent.
pub(crate) fn fake_agent() -> &'static str {
    &FAKE_AGENT
}

/// The scripted command with the protocol of the Claude Code CLI, for `python3`.
pub(crate) fn claude_cli() -> String {
    let path = PROJECT.join("tests/agents/claude_cli.py");
    path.into_os_string().into_string().expect("UTF-8")
}

/// A folder of the build for files of tests.
pub(crate) fn scratch() -> &'static Path {
    &SCRATCH
}

/// Folders that an isolated agent does not see as they are.
const CLOSED: [&str; 6] = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/home", "/root"];

/// Whether all users can reach a folder.
pub(crate) fn is_reachable(folder: &Path) -> bool {
    let permits = |folder: &Path| {
        let meta = std::fs::metadata(folder).expect("a folder of the tests");
        meta.permissions().mode() & 0o001 != 0
    };
    folder.ancestors().all(permits)
}

/// The parent of folders that each level of isolation shows: [`scratch`], or for root `/opt`. `None`: the user of the tests
/// can create no such folder.
pub(crate) fn open_parent() -> Option<&'static Path> {
    let scratch = scratch();
    let is_closed = CLOSED.iter().any(|closed| scratch.starts_with(closed));
    if !is_closed && is_reachable(scratch) {
        return Some(scratch);
    }
    geteuid().is_root().then_some(Path::new("/opt"))
}
