//! Commands that affect the process: its end, its children, its environment, its stderr.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::script::Command;
use super::turn::{End, Step, Turn};

pub(crate) fn stderr(bytes: &[u8]) {
    // A test may have closed stderr.
    let _ = std::io::stderr().write_all(bytes);
}

/// Replaces the default action by a handler that does nothing.
pub(crate) fn ignore_term() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a small runtime");
    let _entered = runtime.enter();
    let _ = signal(SignalKind::terminate()).expect("TERM can be handled");
}

pub(crate) fn exit_after(time: Duration) {
    let end = move || {
        std::thread::sleep(time);
        std::process::exit(7);
    };
    std::thread::Builder::new()
        .spawn(end)
        .expect("the machine has room for a thread");
}

/// Sets up a new HOME, which takes `time`. Fails if another instance does the same at the same time.
#[expect(clippy::disallowed_methods, reason = "an agent reads its environment")]
pub(crate) fn set_up_home(time: Duration) {
    let home = std::path::PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let done = home.join("initialized");
    let lock = home.join("initializing");
    if done.exists() {
        return;
    }
    if std::fs::File::create_new(&lock).is_err() {
        stderr(b"failed to initialize state\n");
        std::process::exit(1);
    }
    std::thread::sleep(time);
    std::fs::File::create(done).expect("HOME is writable");
    std::fs::remove_file(lock).expect("this instance created it");
}

/// Whether the process stopped reading stdin.
static STDIN_STOPPED: AtomicBool = AtomicBool::new(false);

/// Stdin that returns at most one more line after the process stopped reading. The reader may have been in a
/// read at that moment, so one line is unavoidable.
#[derive(Default)]
pub(crate) struct PausableStdin {
    shut: bool,
}

impl Read for PausableStdin {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.shut {
            loop {
                std::thread::sleep(Duration::from_hours(1));
            }
        }
        let read = rustix::io::read(rustix::stdio::stdin(), &mut *buffer)?;
        self.shut = STDIN_STOPPED.load(Ordering::Relaxed);
        if !self.shut {
            return Ok(read);
        }
        let line = buffer[..read].iter().position(|byte| *byte == b'\n');
        Ok(line.map_or(read, |end| end + 1))
    }
}

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    match command.name {
        "crash" => crash(turn, command),
        "fork" => {
            let pid = fork(
                command.number("seconds", 300),
                command.text("stdout", "no") == "yes",
            );
            turn.say(
                &pid.map_or_else(|error| format!("fork: {error}"), |pid| format!("pid={pid}")),
            );
        }
        "stderr" => match command.text("text", "") {
            "" => stderr(
                "a line of stderr\n"
                    .repeat(1 + command.number("bytes", 100_000) / 17)
                    .as_bytes(),
            ),
            text => stderr(format!("{text}\n").as_bytes()),
        },
        "deaf" => STDIN_STOPPED.store(true, Ordering::Relaxed),
        "freeze" => kill_process(getpid(), Signal::STOP).expect("a process may stop itself"),
        "close-stdout" => return Some(close_stdout(turn)),
        "pid" => turn.say(&format!("pid={}", std::process::id())),
        "cwd" => turn.say(
            &std::env::current_dir()
                .unwrap_or_default()
                .display()
                .to_string(),
        ),
        "env" => {
            let mut lines: Vec<String> = std::env::vars_os()
                .map(|(name, value)| format!("{}={}\n", name.display(), value.display()))
                .collect();
            lines.sort();
            turn.say(&lines.concat());
        }
        _ => return None,
    }
    Some(Ok(()))
}

fn crash(turn: &Turn, command: &Command<'_>) {
    for number in 0..command.number("chunks", 3) {
        turn.say(&format!("chunk {number} "));
    }
    stderr(b"boom\n");
    let signal = match command.text("signal", "") {
        "KILL" => Some(Signal::KILL),
        "TERM" => Some(Signal::TERM),
        "ABRT" => Some(Signal::ABORT),
        "SEGV" => Some(Signal::SEGV),
        _ => None,
    };
    if let Some(signal) = signal {
        kill_process(getpid(), signal).expect("a process may end itself");
        std::thread::sleep(Duration::from_secs(5));
    }
    std::process::exit(command.number("code", 42));
}

/// Leaves behind a process in a separate session that ignores TERM: the shell that starts it ends at once.
/// The process holds no pipe, or only stdout.
#[expect(
    clippy::disallowed_methods,
    reason = "an agent starts its tools itself, and the test checks that the gateway finds them"
)]
fn fork(seconds: u32, holds_stdout: bool) -> std::io::Result<String> {
    let (kept, stdout) = if holds_stdout {
        ("2>&1", Stdio::inherit())
    } else {
        (">/dev/null 2>&1", Stdio::null())
    };
    let script = format!(
        r#"setsid sh -c 'trap "" TERM HUP INT; echo $$ >&2; exec sleep {seconds} </dev/null {kept}' &"#
    );
    let mut shell = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()?;
    let mut pid = String::new();
    if let Some(stderr) = shell.stderr.take() {
        BufReader::new(stderr).read_line(&mut pid)?;
    }
    shell.wait()?;
    Ok(pid.trim().to_owned())
}

fn close_stdout(turn: &Turn) -> Step {
    turn.say("bye");
    let null = std::fs::File::create("/dev/null")
        .map_err(|error| End::Error(-32603, error.to_string()))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| End::Error(-32603, error.to_string()))?;
    turn.cancel.wait_for_ever();
    Err(End::NoAnswer)
}
