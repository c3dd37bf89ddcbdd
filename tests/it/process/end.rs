//! How children end, and that nothing of them stays.

use std::fs;
use std::future::poll_fn;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use children::{Child, Limits, SpawnError, StopReason, sweep};
use rustix::process::{Signal, kill_process};
use tokio::runtime::Builder;

use super::{Bench, SOON, STEP, alive, code, line_of, pid, signal, soon, until};

/// Leaves a process in its own session whose parents have ended and that ignores TERM.
const RUNAWAY: &str = r#"
    (setsid sh -c 'trap "" TERM HUP INT; echo $$ >runaway; while :; do sleep 1; done' >/dev/null 2>&1 &)
    "#;

#[tokio::test]
async fn term_follows_the_end_of_stdin_and_can_be_handled() {
    let bench = Bench::with(Limits {
        stop_stdin_timeout: Duration::from_millis(50),
        ..Limits::default()
    });
    let child = bench
        .start("trap 'exit 9' TERM; echo >ready; while :; do sleep 0.05; done")
        .await;
    line_of(&bench.path("ready")).await;
    let exit = soon(child.stop()).await;
    assert_eq!(exit, code(9));
}

#[tokio::test]
async fn process_that_ignores_term_is_killed() {
    let bench = Bench::new();
    let child = bench
        .start("trap '' TERM; echo >ready; while :; do sleep 0.05; done")
        .await;
    line_of(&bench.path("ready")).await;
    let began = Instant::now();
    let exit = soon(child.stop()).await;
    let took = began.elapsed();
    assert_eq!(exit, signal("SIGKILL"));
    assert!(took >= STEP * 2, "no step was skipped: {took:?}");
    assert!(took < STEP * 2 + Duration::from_secs(6), "{took:?}");
}

#[tokio::test]
async fn a_drain_shortens_the_steps_of_a_stop_that_runs() {
    let long = SOON * 10;
    let drain = Limits {
        drain_stdin_timeout: STEP,
        drain_term_timeout: STEP,
        ..Limits::default()
    };
    let bench = Bench::with(Limits {
        stop_stdin_timeout: long,
        stop_term_timeout: long,
        ..drain
    });
    let child = bench
        .start("trap '' TERM; echo >ready; while :; do sleep 0.05; done")
        .await;
    line_of(&bench.path("ready")).await;
    let drain = async {
        tokio::task::yield_now().await;
        bench.shutdown.start_drain();
    };
    let (exit, ()) = soon(async { tokio::join!(child.stop(), drain) }).await;
    assert_eq!(exit, signal("SIGKILL"));
}

#[tokio::test]
async fn a_kill_overtakes_a_stop() {
    let bench = Bench::with(Limits {
        stop_stdin_timeout: SOON * 10,
        ..Limits::default()
    });
    let child = bench.start("exec sleep 60").await;
    let (stopped, killed) = soon(async { tokio::join!(child.stop(), child.kill()) }).await;
    assert_eq!(
        (&stopped, &killed),
        (&signal("SIGKILL"), &signal("SIGKILL"))
    );
}

#[tokio::test]
async fn a_runaway_grandchild_ends_with_the_stop() {
    let bench = Bench::new();
    let child = bench.start(&format!("{RUNAWAY} cat")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    assert!(alive(runaway));
    soon(child.stop()).await;
    assert!(!alive(runaway));
}

#[tokio::test]
async fn a_runaway_grandchild_ends_with_the_child() {
    let bench = Bench::new();
    let script = format!("{RUNAWAY} while ! [ -s runaway ]; do sleep 0.02; done; exit 4");
    let (_, exit) = bench.run(&script).await;
    assert_eq!(exit.code, Some(4));
    assert!(!alive(pid(&line_of(&bench.path("runaway")).await)));
}

#[tokio::test]
async fn a_whole_forest_ends() {
    let bench = Bench::new();
    let tree = "f() { [ $1 -gt 0 ] && { (f $(($1-1))) & (f $(($1-1))) & }; setsid sh -c 'trap \"\" TERM; echo $$ >>forest; exec sleep 300' & wait; }; f 3";
    let child = bench.start(tree).await;
    let forest = bench.path("forest");
    until("15 trees", || {
        fs::read_to_string(&forest).is_ok_and(|text| text.lines().count() == 15)
    })
    .await;
    soon(child.kill()).await;
    let left = fs::read_to_string(&forest)
        .unwrap()
        .lines()
        .filter(|line| alive(pid(line)))
        .count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn self_replacing_process_is_killed() {
    let bench = Bench::new();
    let roller = bench.path("roller");
    fs::write(
        &roller,
        "trap '' TERM\n[ -e rolling ] || echo >rolling\nsetsid sh \"$0\" &\nexit\n",
    )
    .unwrap();
    let child = bench
        .start(&format!("sh {} & exec sleep 60", roller.display()))
        .await;
    line_of(&bench.path("rolling")).await;
    let rolls = || {
        command_lines()
            .filter(|line| line.contains(roller.to_str().expect("plain")))
            .count()
    };
    until("a roll", || rolls() > 1).await;
    soon(child.kill()).await;
    assert_eq!(rolls(), 0);
}

fn command_lines() -> impl Iterator<Item = String> {
    fs::read_dir("/proc").expect("procfs").filter_map(|entry| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).into_owned())
    })
}

/// Not a test: the gateway's part of the next test, run in a second process of this binary. It reads the folder from
/// stdin, and returns if stdin is empty.
#[tokio::test]
#[ignore = "a part of the next test, which starts it"]
async fn gateway_that_will_be_killed() {
    let mut folder = String::new();
    io::stdin().lock().read_line(&mut folder).unwrap();
    let folder = Path::new(folder.trim_end());
    if !folder.is_absolute() {
        return;
    }
    let bench = Bench::within(folder, Limits::default());
    let mut spec = bench.shell(&format!(
        "{RUNAWAY} trap '' TERM; echo $$ >agent; while :; do sleep 0.05; done"
    ));
    spec.home = folder.to_owned();
    let child = bench.spawner.spawn(spec).await.unwrap();
    fs::write(
        folder.join("supervisor"),
        format!("{}\n", bench.supervisor().as_raw_pid()),
    )
    .unwrap();
    child.exited().await;
}

#[tokio::test]
async fn no_child_survives_a_kill_of_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "this process plays the gateway's parent"
    )]
    let mut gateway = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "process::end::gateway_that_will_be_killed",
            "--ignored",
            "--nocapture",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = gateway.stdin.take().unwrap();
    writeln!(stdin, "{}", dir.path().display()).unwrap();
    let mut pids = Vec::new();
    for name in ["supervisor", "agent", "runaway"] {
        pids.push(pid(&line_of(&dir.path().join(name)).await));
    }
    assert!(pids.iter().all(|pid| alive(*pid)));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    until("the end of supervisor, agent and runaway", || {
        !pids.iter().any(|pid| alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn first_term_to_the_supervisor_is_forwarded_and_a_second_kills() {
    let bench = Bench::new();
    let script = "trap 'echo got >term' TERM; echo >ready; while :; do sleep 0.05; done";
    let child = bench.start(&format!("{RUNAWAY} {script}")).await;
    line_of(&bench.path("ready")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    let supervisor = bench.supervisor();
    kill_process(supervisor, Signal::TERM).unwrap();
    assert_eq!(line_of(&bench.path("term")).await, "got");
    assert_eq!(child.exit(), None);
    kill_process(supervisor, Signal::TERM).unwrap();
    let exit = soon(child.exited()).await;
    assert_eq!(exit, signal("SIGKILL"));
    assert!(!alive(runaway));
}

#[tokio::test]
async fn suspended_supervisor_still_kills_all_descendants() {
    let bench = Bench::new();
    let child = bench.start(&format!("{RUNAWAY} exec sleep 60")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    kill_process(bench.supervisor(), Signal::STOP).unwrap();
    assert_eq!(soon(child.stop()).await.code, None);
    assert!(!alive(runaway));
}

/// The last resort would otherwise end only the supervisor, and leave its descendants.
#[tokio::test]
async fn descendant_that_suspends_the_supervisor_again_and_again_is_killed() {
    const SUSPEND: &str = r#"
        (setsid sh -c 'trap "" TERM HUP INT; echo $$ >runaway; while :; do kill -STOP '"$PPID"'; done' >/dev/null 2>&1 &)
        "#;
    let bench = Bench::new();
    let child = bench.start(&format!("{SUSPEND} exec sleep 60")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    assert_eq!(soon(child.stop()).await.code, None);
    until("the end of the descendant", || !alive(runaway)).await;
}

#[tokio::test]
async fn a_dropped_child_is_stopped() {
    let bench = Bench::new();
    let child = bench
        .start("trap '' TERM; while :; do sleep 0.05; done")
        .await;
    let end = child.watch();
    let program = pid(&child.pid.to_string());
    drop(child);
    assert_eq!(soon(end).await, signal("SIGKILL"));
    assert!(!alive(program));
}

#[tokio::test]
async fn the_hard_stop_ends_every_child_and_every_task() {
    let bench = Bench::new();
    let child = bench.start(&format!("{RUNAWAY} exec sleep 60")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    bench.shutdown.abort();
    assert_eq!(soon(child.exited()).await, signal("SIGKILL"));
    assert_eq!(child.stop_reason(), Some(StopReason::Shutdown));
    assert!(!alive(runaway));
    assert!(bench.shutdown.wait_for_tasks(SOON).await);
}

#[tokio::test]
async fn a_child_that_does_not_read_is_ended() {
    let limits = Limits {
        stdin_stall_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let bench = Bench::with(limits);
    let child = bench.start("exec sleep 60").await;
    child.stdin.send(Bytes::from(vec![b'x'; 1 << 20])).unwrap();
    let exit = soon(child.exited()).await;
    assert_eq!(
        (exit, child.stop_reason()),
        (signal("SIGTERM"), Some(StopReason::StdinStalled))
    );
}

/// A start of which all processes can be known by their command lines.
fn begin(bench: &Bench) -> Pin<Box<impl Future<Output = Result<Child, SpawnError>>>> {
    let spec = bench.shell(&format!("cat; : {}", bench.dir.path().display()));
    Box::pin(bench.spawner.spawn(spec))
}

/// Polls the future once, so that it starts its work.
async fn poll_once(start: &mut Pin<Box<impl Future<Output = Result<Child, SpawnError>>>>) {
    let waits = poll_fn(|context| Poll::Ready(start.as_mut().poll(context).is_pending())).await;
    assert!(waits, "a process does not start at once");
}

/// Waits for the end of every process of a start. Only the abandoned start has requested their end.
async fn assert_nothing_left(bench: &Bench) {
    assert!(
        bench.shutdown.wait_for_tasks(SOON).await,
        "a task of it goes on"
    );
    assert_eq!(bench.run_files(), Vec::<PathBuf>::new());
    let folder = bench.dir.path().to_str().expect("plain");
    let left: Vec<String> = command_lines()
        .filter(|line| line.contains(folder))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn start_abandoned_during_the_start_of_the_supervisor_has_no_effect() {
    let bench = Bench::new();
    let mut start = begin(&bench);
    poll_once(&mut start).await;
    until("a supervisor", || !bench.run_files().is_empty()).await;
    let supervisor = bench.supervisor();
    assert!(alive(supervisor));
    drop(start);
    assert_nothing_left(&bench).await;
    assert!(!alive(supervisor));
}

#[tokio::test]
async fn start_abandoned_at_any_time_has_no_effect() {
    for moment in 0..30 {
        let bench = Bench::new();
        let mut start = begin(&bench);
        poll_once(&mut start).await;
        // From before there is a process to where it has begun to run.
        std::thread::sleep(Duration::from_micros(100) * moment);
        drop(start);
        assert_nothing_left(&bench).await;
    }
}

#[test]
fn start_abandoned_before_its_turn_starts_nothing() {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let bench = Bench::new();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
        let before = bench.shutdown.spawn_blocking(move || released.recv());
        let mut start = begin(&bench);
        poll_once(&mut start).await;
        drop(start);
        drop(release);
        assert!(
            soon(before).await.unwrap().is_err(),
            "it has waited so long"
        );
        assert_nothing_left(&bench).await;
        assert!(!bench.path("run").exists(), "there was a supervisor");
    });
}

#[test]
fn a_panic_in_a_start_is_an_error() {
    // Without free descriptors, the pipes cannot be created.
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let bench = Bench::new();
        let error = soon(begin(&bench)).await.unwrap_err();
        let SpawnError::Supervisor(source) = error else {
            panic!("{error:?}")
        };
        assert!(source.to_string().contains("panicked"), "{source}");
        assert_nothing_left(&bench).await;
    });
}

#[tokio::test]
async fn sweep_ends_only_supervisors_with_a_matching_run_file() {
    let bench = Bench::new();
    let child = bench.start(&format!("{RUNAWAY} cat")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    let [file] = bench.run_files().try_into().unwrap();
    let mut named: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let left = bench.path("left");
    assert_eq!(
        sweep(&left, SOON).unwrap(),
        0,
        "a first life has left nothing"
    );

    for (member, wrong) in [
        ("start", serde_json::json!(1)),
        ("bootId", serde_json::json!("another boot")),
        ("pidNamespace", serde_json::json!("pid:[1]")),
        ("pid", serde_json::json!(std::process::id())),
    ] {
        let mut other = named.clone();
        other[member] = wrong;
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("1"), other.to_string()).unwrap();
        fs::write(left.join("2"), &file.to_string_lossy()[..4]).unwrap();
        assert_eq!(sweep(&left, SOON).unwrap(), 0, "{member}");
        assert_eq!(
            fs::read_dir(&left).unwrap().count(),
            0,
            "a file without a process is removed"
        );
    }
    assert_eq!(child.exit(), None);

    named["note"] = serde_json::json!("members of a later version are let pass");
    fs::write(left.join("1"), named.to_string()).unwrap();
    assert_eq!(sweep(&left, SOON).unwrap(), 1);
    assert_eq!(soon(child.exited()).await, signal("SIGKILL"));
    assert!(!alive(runaway));
}
