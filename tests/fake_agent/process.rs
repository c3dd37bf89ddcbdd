//! Commands about the process itself: its end, its children, its environment, its stderr.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::script::Command;
use super::turn::{End, Step, Turn};

pub(crate) fn stderr(bytes: &[u8]) {
    // A test may have closed it.
    drop(std::io::stderr().write_all(bytes));
}

/// A handler of its own takes the place of the default action, and does nothing.
pub(crate) fn ignore_term() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a small runtime");
    let _entered = runtime.enter();
    drop(signal(SignalKind::terminate()).expect("TERM can be handled"));
}

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    match command.name {
        "crash" => crash(turn, command),
        "fork" => {
            let pid = fork(command.number("seconds", 300));
            turn.say(&pid.map_or_else(|error| format!("fork: {error}"), |pid| format!("pid={pid}")));
        }
        "stderr" => match command.text("text", "") {
            "" => stderr("a line of stderr\n".repeat(1 + command.number("bytes", 100_000) / 17).as_bytes()),
            text => stderr(format!("{text}\n").as_bytes()),
        },
        "close-stdout" => return Some(close_stdout(turn)),
        "pid" => turn.say(&format!("pid={}", std::process::id())),
        "cwd" => turn.say(&std::env::current_dir().unwrap_or_default().display().to_string()),
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
        std::thread::sleep(std::time::Duration::from_secs(5));
    }
    std::process::exit(command.number("code", 42));
}

/// A shell that ends at once leaves behind a process in a session of its own that ignores TERM and holds no pipe.
#[expect(
    clippy::disallowed_methods,
    reason = "an agent starts its tools itself; that they are found is what is tested"
)]
fn fork(seconds: u32) -> std::io::Result<String> {
    let script = format!(
        r#"setsid sh -c 'trap "" TERM HUP INT; echo $$; exec sleep {seconds} </dev/null >/dev/null 2>&1' &"#
    );
    let mut shell = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut pid = String::new();
    if let Some(stdout) = shell.stdout.take() {
        BufReader::new(stdout).read_line(&mut pid)?;
    }
    shell.wait()?;
    Ok(pid.trim().to_owned())
}

fn close_stdout(turn: &Turn) -> Step {
    turn.say("bye");
    let null = std::fs::File::create("/dev/null").map_err(|error| End::Error(-32603, error.to_string()))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| End::Error(-32603, error.to_string()))?;
    turn.cancel.wait_for_ever();
    Err(End::Silence)
}
