//! What a starting child says to the gateway over its control socket, one line for each word.
//!
//! `exec PID` right before the program takes over, which closes the socket: that end is the good news.
//! `refused ERRNO` when the program could not be executed, `nofolder ERRNO` when its folder could not be
//! entered, `broken TEXT` when a step before it failed.

use rustix::process::WaitStatus;

use super::Exit;

/// How a start went, read to the end of the socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program runs, with this pid.
    Started(i32),
    /// The kernel refused to execute the program.
    ExecFailed(i32),
    /// The folder that the program should stand in cannot be entered.
    NoDirectory(i32),
    /// The keeper could not do its part.
    SetupFailed(String),
}

pub(super) fn exec_line(pid: i32) -> String {
    format!("exec {pid}\n")
}

pub(super) fn exec_failed_line(errno: i32) -> String {
    format!("refused {errno}\n")
}

pub(super) fn no_directory_line(errno: i32) -> String {
    format!("nofolder {errno}\n")
}

pub(super) fn setup_failed_line(text: &str) -> String {
    format!("broken {}\n", text.replace('\n', " "))
}

/// The last line that we know decides: `exec` is withdrawn by a `refused` after it.
pub(super) fn parse(bytes: &[u8]) -> Report {
    String::from_utf8_lossy(bytes)
        .lines()
        .rev()
        .find_map(|line| match line.split_once(' ')? {
            ("exec", pid) => Some(Report::Started(pid.parse().ok()?)),
            ("refused", errno) => Some(Report::ExecFailed(errno.parse().ok()?)),
            ("nofolder", errno) => Some(Report::NoDirectory(errno.parse().ok()?)),
            ("broken", text) => Some(Report::SetupFailed(text.to_owned())),
            _ => None,
        })
        .unwrap_or_else(|| Report::SetupFailed("the keeper ended before the program began".to_owned()))
}

/// How a terminal's program ended, said over the line on which the terminal is held.
pub(super) fn exit_line(status: WaitStatus) -> String {
    match status.terminating_signal() {
        Some(signal) => format!("killed {signal}\n"),
        None => format!("exited {}\n", status.exit_status().unwrap_or_default()),
    }
}

pub(super) fn parse_exit(line: &str) -> Option<Exit> {
    match line.trim_end().split_once(' ')? {
        ("exited", code) => Some(Exit { code: Some(code.parse().ok()?), signal: None }),
        ("killed", signal) => Some(Exit::killed_by(signal.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_known_line_decides() {
        assert_eq!(parse(exec_line(12).as_bytes()), Report::Started(12));
        assert_eq!(parse((exec_line(12) + &exec_failed_line(2)).as_bytes()), Report::ExecFailed(2));
        assert_eq!(parse(setup_failed_line("a\nb").as_bytes()), Report::SetupFailed("a b".to_owned()));
        assert!(matches!(parse(b""), Report::SetupFailed(_)));
        assert!(matches!(parse(b"nonsense\n"), Report::SetupFailed(_)));
    }
}
