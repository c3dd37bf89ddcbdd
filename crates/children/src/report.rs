//! The report of a starting child over its control socket, one line per event:
//!
//! | line | meaning |
//! | --- | --- |
//! | `exec PID` | the program starts next, which closes the socket; without a further line the start succeeded |
//! | `refused ERRNO` | the kernel could not execute the program |
//! | `nofolder ERRNO` | the working directory could not be entered |
//! | `folder JSON` | a folder of the session cannot be used, with its [`FolderError`] |
//! | `broken TEXT` | an earlier step failed |

use rustix::process::WaitStatus;

use super::exit::Exit;
use base::types::FolderError;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program runs with this pid.
    Started(i32),
    /// The kernel refused to execute the program.
    ExecFailed(i32),
    /// The working directory of the program cannot be entered.
    NoDirectory(i32),
    /// A folder of the session cannot be used.
    Folder(FolderError),
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

pub(super) fn folder_line(error: &FolderError) -> String {
    // The paths of a confinement are text, because it is JSON too.
    match serde_json::to_string(error) {
        Ok(json) => format!("folder {json}\n"),
        Err(_) => setup_failed_line(&error.to_string()),
    }
}

pub(super) fn parse_folder(line: &str) -> Option<FolderError> {
    serde_json::from_str(line.trim_end().strip_prefix("folder ")?).ok()
}

pub(super) fn setup_failed_line(text: &str) -> String {
    format!("broken {}\n", text.replace('\n', " "))
}

/// Parses a report. The last known line decides: `refused` revokes an earlier `exec`.
pub(super) fn parse(bytes: &[u8]) -> Report {
    let text = String::from_utf8_lossy(bytes);
    let known = text
        .lines()
        .rev()
        .find_map(|line| match line.split_once(' ')? {
            ("exec", pid) => Some(Report::Started(pid.parse().ok()?)),
            ("refused", errno) => Some(Report::ExecFailed(errno.parse().ok()?)),
            ("nofolder", errno) => Some(Report::NoDirectory(errno.parse().ok()?)),
            ("folder", _) => Some(Report::Folder(parse_folder(line)?)),
            ("broken", text) => Some(Report::SetupFailed(text.to_owned())),
            _ => None,
        });
    let silent = "the supervisor ended before the program started";
    known.unwrap_or_else(|| Report::SetupFailed(silent.to_owned()))
}

/// How a terminal's program ended, as sent over the terminal's socket.
pub(super) fn exit_line(status: WaitStatus) -> String {
    match status.terminating_signal() {
        Some(signal) => format!("killed {signal}\n"),
        None => format!("exited {}\n", status.exit_status().unwrap_or_default()),
    }
}

pub(super) fn parse_exit(line: &str) -> Option<Exit> {
    match line.trim_end().split_once(' ')? {
        ("exited", code) => Some(Exit {
            code: Some(code.parse().ok()?),
            signal: None,
        }),
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
        assert_eq!(
            parse((exec_line(12) + &exec_failed_line(2)).as_bytes()),
            Report::ExecFailed(2)
        );
        assert_eq!(
            parse(setup_failed_line("a\nb").as_bytes()),
            Report::SetupFailed("a b".to_owned())
        );
        let error = FolderError::Replaced {
            folder: "/a b\n".into(),
        };
        assert_eq!(parse(folder_line(&error).as_bytes()), Report::Folder(error));
        assert!(matches!(parse(b""), Report::SetupFailed(_)));
        assert!(matches!(parse(b"nonsense\n"), Report::SetupFailed(_)));
    }
}
