//! Children under a real supervisor: start, environment and descriptors, output and exit.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::shutdown::Shutdown;
use bytes::Bytes;
use children::{
    Child, ChildIsolation, ChildSpec, Exit, Limits, SpawnError, Spawner, StdinError, StopReason,
    resolve,
};
use rustix::process::Pid;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use crate::support::places::gateway_program;

mod end;
mod pty;
mod terminals;

const SOON: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(300);

/// A folder, a spawner that keeps its run files there, and the end of all that it starts.
struct Bench {
    dir: TempDir,
    shutdown: Shutdown,
    spawner: Spawner,
}

impl Bench {
    fn new() -> Self {
        Self::with(Limits {
            stop_stdin_timeout: STEP,
            stop_term_timeout: STEP,
            ..Limits::default()
        })
    }

    fn with(limits: Limits) -> Self {
        Self::within(&std::env::temp_dir(), limits)
    }

    fn within(parent: &Path, limits: Limits) -> Self {
        let dir = tempfile::tempdir_in(parent).expect("a temporary folder");
        let shutdown = Shutdown::new();
        let spawner = Spawner::new(
            PathBuf::from(gateway_program()),
            dir.path().join("run"),
            shutdown.clone(),
            Arc::new(limits),
        );
        Self {
            dir,
            shutdown,
            spawner,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn shell(&self, script: &str) -> ChildSpec {
        ChildSpec {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            home: self.dir.path().to_owned(),
            cwd: None,
            secrets: Vec::new(),
            isolation: ChildIsolation::default(),
        }
    }

    async fn start(&self, script: &str) -> Child {
        self.spawner
            .spawn(self.shell(script))
            .await
            .expect("the child starts")
    }

    /// Runs a script to its end, with an empty stdin.
    async fn run(&self, script: &str) -> (String, Exit) {
        self.finish(self.shell(script)).await
    }

    async fn finish(&self, spec: ChildSpec) -> (String, Exit) {
        let mut child = self.spawner.spawn(spec).await.expect("the child starts");
        let mut out = String::new();
        let mut stdout = child.take_stdout().expect("a new child has its stdout");
        stdout
            .read_to_string(&mut out)
            .await
            .expect("stdout is text");
        (out, soon(child.exited()).await)
    }

    fn run_files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path("run"))
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("an entry").path())
            .collect()
    }

    fn supervisor(&self) -> Pid {
        let [file] = self.run_files().try_into().expect("one supervisor runs");
        pid(file
            .file_name()
            .and_then(OsStr::to_str)
            .expect("a run file is named by the pid"))
    }
}

async fn soon<T>(outcome: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, outcome)
        .await
        .expect("it ends soon")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn pid(text: &str) -> Pid {
    text.trim()
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .unwrap_or_else(|| panic!("no pid: {text:?}"))
}

/// A zombie counts as dead, because its parent may reap it late.
fn alive(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()))
        .is_ok_and(|stat| !matches!(stat.rsplit(')').next().map(str::trim_start), Some(rest) if rest.starts_with(['Z', 'X'])))
}

/// Waits until a script wrote a whole line into a file, and returns it.
async fn line_of(file: &Path) -> String {
    until(&format!("a line in {}", file.display()), || {
        fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    fs::read_to_string(file)
        .expect("it was there")
        .trim_end()
        .to_owned()
}

fn code(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
    }
}

fn signal(signal: &str) -> Exit {
    Exit {
        code: None,
        signal: Some(signal.to_owned()),
    }
}

#[tokio::test]
async fn the_exit_code_passes() {
    let bench = Bench::new();
    for number in [0, 1, 7, 127, 255] {
        let (_, exit) = bench.run(&format!("exit {number}")).await;
        assert_eq!(exit, code(number));
    }
}

#[tokio::test]
async fn the_signal_passes() {
    let bench = Bench::new();
    for name in ["TERM", "KILL", "SEGV", "ABRT", "PIPE", "QUIT", "HUP"] {
        let (_, exit) = bench.run(&format!("kill -{name} $$; sleep 60")).await;
        assert_eq!(exit, signal(&format!("SIG{name}")));
    }
}

#[tokio::test]
async fn stdin_stdout_and_end_of_file_pass() {
    let bench = Bench::with(Limits::default());
    let mut child = bench.start("cat; echo done; exit 3").await;
    assert!(alive(pid(&child.pid.to_string())));
    let big = Bytes::from(format!("{}\n", "x".repeat(1 << 20)));
    child.stdin.send(Bytes::from_static(b"one\n")).unwrap();
    child.stdin.send(big.clone()).unwrap();
    let mut stdout = child.take_stdout().unwrap();
    let stop = child.stop();
    let mut out = Vec::new();
    let (exit, read) = soon(async { tokio::join!(stop, stdout.read_to_end(&mut out)) }).await;
    read.unwrap();
    assert_eq!(exit, code(3));
    assert_eq!(out, [b"one\n", &big[..], b"done\n"].concat());
    assert_eq!(
        child.stdin.send(Bytes::from_static(b"late\n")),
        Err(StdinError::Closed)
    );
}

#[tokio::test]
async fn supervisor_does_not_keep_the_pipes_open() {
    let bench = Bench::with(Limits::default());
    let mut child = bench.start("exec >&- 2>&-; read -r end; exit 8").await;
    let mut out = String::new();
    let mut stdout = child.take_stdout().unwrap();
    soon(stdout.read_to_string(&mut out)).await.unwrap();
    assert_eq!(child.exit(), None, "only stdout was closed");
    assert_eq!(child.stop_reason(), None);
    assert_eq!(soon(child.stop()).await, code(8));
    assert_eq!(child.stop_reason(), Some(StopReason::Requested));
}

#[tokio::test]
async fn environment_is_exactly_the_specified_one() {
    let bench = Bench::new();
    let mut spec = bench.shell("");
    spec.program = PathBuf::from("/usr/bin/env");
    spec.args = Vec::new();
    spec.env = vec![("A".into(), "1".into()), ("KEY".into(), "two words".into())];
    let (out, _) = bench.finish(spec).await;
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A=1", "KEY=two words"]);
}

#[tokio::test]
async fn arguments_pass_untouched_however_they_look() {
    let bench = Bench::new();
    let mut spec = bench.shell("");
    let args = [
        "--",
        "--config",
        "supervisor",
        "-h",
        "--help",
        "--version",
        "--data=x",
        "",
        "two words",
        "-",
    ];
    spec.program = PathBuf::from("/usr/bin/printf");
    spec.args = ["<%s>\\n"]
        .iter()
        .chain(&args)
        .map(OsString::from)
        .collect();
    let (out, exit) = bench.finish(spec).await;
    let shown: Vec<String> = args.iter().map(|arg| format!("<{arg}>")).collect();
    assert_eq!(
        (out.lines().collect::<Vec<_>>(), exit),
        (shown.iter().map(String::as_str).collect(), code(0))
    );
}

#[tokio::test]
async fn the_environment_shows_in_no_command_line() {
    let bench = Bench::new();
    let mut spec = bench.shell("cat");
    spec.env.push(("KEY".into(), "canary".into()));
    let child = bench.spawner.spawn(spec).await.unwrap();
    for pid in [
        bench.supervisor().as_raw_pid().to_string(),
        child.pid.to_string(),
    ] {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(line.len() > 6 && !line.windows(6).any(|bytes| bytes == b"canary"));
    }
    soon(child.stop()).await;
}

#[tokio::test]
async fn the_child_is_confined() {
    let bench = Bench::new();
    let script =
        "pwd; umask; ulimit -c; ulimit -Hc; grep NoNewPrivs /proc/self/status; cat /proc/$$/stat";
    let (out, _) = bench.run(script).await;
    let lines: Vec<&str> = out.lines().collect();
    let folder = bench.dir.path().to_str().unwrap();
    assert_eq!(lines[..5], [folder, "0077", "0", "0", "NoNewPrivs:\t1"]);
    let (pid, rest) = lines[5].split_once(' ').unwrap();
    let fields: Vec<&str> = rest
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let [_, parent, group, session, terminal, ..] = fields[..] else {
        panic!("{out}")
    };
    assert_eq!(group, pid, "it leads a group");
    assert_eq!(session, parent, "the supervisor leads the session");
    assert_eq!(terminal, "0");
}

#[tokio::test]
async fn no_descriptor_but_the_three_is_inherited() {
    let bench = Bench::new();
    let leak = fs::File::create(bench.path("leak")).unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let script = "for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done";
    let (out, _) = bench.run(script).await;
    assert_eq!(out.lines().collect::<Vec<_>>(), ["0", "1", "2"]);
    drop(leak);
}

#[tokio::test]
async fn stderr_is_drained_bounded_and_without_secrets() {
    let limits = Limits {
        max_stderr_bytes: 4096,
        ..Limits::default()
    };
    let bench = Bench::with(limits);
    let mut spec = bench.shell(
        "head -c 3000000 /dev/zero | tr '\\0' 'x' >&2; printf 'the key is s3c' >&2; sleep 0.1; \
         printf 'r3t-value, bye' >&2; exit 5",
    );
    spec.secrets = vec!["s3cr3t-value".to_owned()];
    let child = bench.spawner.spawn(spec).await.unwrap();
    assert_eq!(soon(child.exited()).await.code, Some(5));
    let text = child.stderr.tail();
    assert!(
        text.ends_with("xthe key is [secret], bye"),
        "{}",
        &text[text.len() - 60..]
    );
    assert!((4000..=4096).contains(&text.len()), "{}", text.len());
}

#[tokio::test]
async fn exec_failure_is_a_typed_error() {
    let bench = Bench::new();
    let mut spec = bench.shell("");
    spec.program = PathBuf::from("/nowhere/agent");
    let missing = soon(bench.spawner.spawn(spec.clone())).await.unwrap_err();
    let SpawnError::Program { program, source } = missing else {
        panic!("{missing:?}")
    };
    assert_eq!(
        (program, source.kind()),
        (spec.program, io::ErrorKind::NotFound)
    );

    spec.program = bench.path("plain");
    fs::write(&spec.program, "text").unwrap();
    let plain = soon(bench.spawner.spawn(spec.clone())).await.unwrap_err();
    assert!(
        matches!(&plain, SpawnError::Program { source, .. } if source.kind() == io::ErrorKind::PermissionDenied),
        "{plain:?}"
    );

    spec.home = bench.path("missing");
    let folder = soon(bench.spawner.spawn(spec)).await.unwrap_err();
    assert!(matches!(folder, SpawnError::Directory { .. }), "{folder:?}");
    assert_eq!(bench.run_files(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn run_file_exists_as_long_as_its_supervisor() {
    let bench = Bench::new();
    let child = bench.start("cat").await;
    let [file] = bench.run_files().try_into().unwrap();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        fs::metadata(bench.path("run"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    soon(child.stop()).await;
    assert!(!file.exists());
}

#[tokio::test]
async fn supervisor_without_its_gateway_starts_nothing() {
    let bench = Bench::new();
    let file = bench.path("started");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test starts the supervisor itself"
    )]
    let output = tokio::process::Command::new(gateway_program())
        .args(["supervisor", "watch", "1", "/bin/sh", "-c"])
        .arg(format!("echo >{}", file.display()))
        .stdin(Stdio::null())
        .output();
    assert_eq!(soon(output).await.unwrap().status.code(), Some(125));
    assert!(!file.exists());
}

#[tokio::test]
async fn a_name_is_found_where_only_we_can_write() {
    let found = resolve(OsStr::new("sh"), OsStr::new("bin:/usr/bin:/bin")).unwrap();
    assert!(found.is_absolute());
    let bench = Bench::new();
    let mut spec = bench.shell("");
    spec.program = found;
    spec.args = vec![OsString::from("-c"), OsString::from("exit 6")];
    assert_eq!(bench.finish(spec).await.1.code, Some(6));
}
