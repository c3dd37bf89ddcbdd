//! The report of a starting child over its control socket, one line per event:
//!
//! | line | meaning |
//! | --- | --- |
//! | `exec PID` | the program starts next, which closes the socket; without a further line the start succeeded |
//! | `refused ERRNO` | the kernel could not execute the program |
//! | `nofolder ERRNO` | the working directory could not be entered |
//! | `folder JSON` | a folder of the session cannot be used, with its [`FolderError`] |
//! | `broken TEXT` | an earlier step failed |

use std::fmt;

use rustix::process::WaitStatus;

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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => writeln!(f, "exec {pid}"),
            Self::ExecFailed(errno) => writeln!(f, "refused {errno}"),
            Self::NoDirectory(errno) => writeln!(f, "nofolder {errno}"),
            // The paths of a confinement are text, because it is JSON too.
            Self::Folder(error) => match serde_json::to_string(error) {
                Ok(json) => writeln!(f, "folder {json}"),
                Err(_) => Self::SetupFailed(error.to_string()).fmt(f),
            },
            Self::SetupFailed(text) => writeln!(f, "broken {}", text.replace('\n', " ")),
        }
    }
}

pub(super) fn parse_folder(line: &str) -> Option<FolderError> {
    serde_json::from_str(line.trim_end().strip_prefix("folder ")?).ok()
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

/// How the program of a terminal or of a PID namespace ended, one line over the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Killed(i32),
    /// The child did not end, or not in time.
    Unknown,
}

impl From<Option<WaitStatus>> for Ended {
    fn from(status: Option<WaitStatus>) -> Self {
        let Some(status) = status else {
            return Self::Unknown;
        };
        let exited = || status.exit_status().map_or(Self::Unknown, Self::Exited);
        let killed = status.terminating_signal();
        killed.map_or_else(exited, Self::Killed)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => writeln!(f, "exited {code}"),
            Self::Killed(signal) => writeln!(f, "killed {signal}"),
            Self::Unknown => writeln!(f, "unknown"),
        }
    }
}

impl Ended {
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.trim_end().split_once(' ')? {
            ("exited", code) => Some(Self::Exited(code.parse().ok()?)),
            ("killed", signal) => Some(Self::Killed(signal.parse().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_known_line_decides() {
        let lines =
            |reports: &[Report]| -> String { reports.iter().map(ToString::to_string).collect() };
        let parsed = |reports: &[Report]| parse(lines(reports).as_bytes());
        assert_eq!(parsed(&[Report::Started(12)]), Report::Started(12));
        assert_eq!(
            parsed(&[Report::Started(12), Report::ExecFailed(2)]),
            Report::ExecFailed(2)
        );
        assert_eq!(
            parsed(&[Report::SetupFailed("a\nb".to_owned())]),
            Report::SetupFailed("a b".to_owned())
        );
        let error = FolderError::Replaced {
            folder: "/a b\n".into(),
        };
        assert_eq!(
            parsed(&[Report::Folder(error.clone())]),
            Report::Folder(error)
        );
        assert!(matches!(parse(b""), Report::SetupFailed(_)));
        assert!(matches!(parse(b"nonsense\n"), Report::SetupFailed(_)));
    }

    #[test]
    fn lines_of_the_init_process_are_parsed() {
        for ended in [Ended::Exited(3), Ended::Killed(9)] {
            assert_eq!(Ended::parse(&ended.to_string()), Some(ended));
        }
        assert_eq!(Ended::parse(&Ended::Unknown.to_string()), None);
        assert_eq!(Ended::parse(""), None);
    }
}
