//! Whether the output of this process is recorded: by the journal, by the log of a container, or in a file.
//!
//! A key in a recorded output stays readable after the start. A terminal or the pipe of another program is not
//! recorded.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The outputs of process 1. In a container they are its log.
const INIT_OUTPUTS: [&str; 2] = ["/proc/1/fd/1", "/proc/1/fd/2"];

/// The place that keeps an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorder {
    Journal,
    ContainerLog,
    File,
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Journal => "the journal",
            Self::ContainerLog => "the log of the container",
            Self::File => "a file",
        })
    }
}

impl Recorder {
    /// The recorder of stdout or stderr; `None` if only their readers see them. `journal_stream` is the value of
    /// `JOURNAL_STREAM`.
    pub(super) fn of_process(journal_stream: Option<&str>) -> Option<Self> {
        let (stdout, stderr) = (Output::of(&io::stdout()), Output::of(&io::stderr()));
        Self::of(stdout, stderr, journal_stream, &Init::read())
    }

    fn of(
        stdout: Option<Output>,
        stderr: Option<Output>,
        journal_stream: Option<&str>,
        init: &Init,
    ) -> Option<Self> {
        let any = |is_recorded: &dyn Fn(FileId) -> bool| {
            [stdout, stderr]
                .into_iter()
                .flatten()
                .any(|output| is_recorded(output.id))
        };
        if journal_stream
            .and_then(FileId::parse)
            .is_some_and(|journal| any(&|id| id == journal))
        {
            return Some(Self::Journal);
        }
        let is_container_log = match init {
            Init::Outputs(log) => any(&|id| log.contains(&id)),
            Init::Hidden { same_session } => *same_session,
        };
        if is_container_log {
            return Some(Self::ContainerLog);
        }
        // The link is on stdout. The log may be in a file.
        stdout
            .is_some_and(|stdout| stdout.is_file)
            .then_some(Self::File)
    }
}

/// The identity of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
        }
    }

    /// Parses `device:inode`.
    fn parse(text: &str) -> Option<Self> {
        let (device, inode) = text.split_once(':')?;
        Some(Self {
            device: device.parse().ok()?,
            inode: inode.parse().ok()?,
        })
    }
}

/// An output of this process.
#[derive(Debug, Clone, Copy)]
struct Output {
    id: FileId,
    is_file: bool,
}

impl Output {
    /// Returns `None` for a device that discards its input, and for an output that cannot be examined.
    fn of(output: &(impl AsFd + IsTerminal)) -> Option<Self> {
        let found = metadata(output.as_fd()).ok()?;
        let discards = found.file_type().is_char_device() && !output.is_terminal();
        (!discards).then(|| Self {
            id: FileId::of(&found),
            is_file: found.is_file(),
        })
    }
}

fn metadata(output: BorrowedFd<'_>) -> io::Result<Metadata> {
    File::from(output.try_clone_to_owned()?).metadata()
}

/// Process 1, as this process sees it.
#[derive(Debug)]
enum Init {
    Outputs(Vec<FileId>),
    /// Its outputs are closed to this process. In a container without a process of another session, this
    /// process has the session and the outputs of process 1. On a host, no other process is in that session.
    Hidden {
        same_session: bool,
    },
}

impl Init {
    fn read() -> Self {
        let outputs: io::Result<Vec<FileId>> = INIT_OUTPUTS
            .iter()
            .map(|path| fs::metadata(path).map(|found| FileId::of(&found)))
            .collect();
        if let Ok(outputs) = outputs {
            return Self::Outputs(outputs);
        }
        let ours = session_of("self");
        Self::Hidden {
            same_session: ours.is_some() && ours == session_of("1"),
        }
    }
}

/// The id of a process's session. `None` if the session began outside this PID namespace, where its id reads
/// as 0: processes of several such sessions cannot be told apart. Container runtimes begin a session inside.
fn session_of(process: &str) -> Option<u32> {
    parse_session(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse_session(stat: &str) -> Option<u32> {
    // The name of the program can contain parentheses. Then follow the state, the parent and the group.
    let (_, fields) = stat.rsplit_once(')')?;
    fields
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()
        .filter(|session| *session != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(inode: u64, is_file: bool) -> Output {
        Output {
            id: FileId { device: 9, inode },
            is_file,
        }
    }

    #[test]
    fn session_is_read_from_proc() {
        assert_eq!(
            session_of("self"),
            session_of(&std::process::id().to_string())
        );
        assert_eq!(session_of("0"), None);
        assert_eq!(parse_session("7 (a) b) S 1 6 5 0 -1"), Some(5));
        assert_eq!(parse_session("7 (a) S 0 0 0 0 -1"), None);
    }

    #[test]
    fn only_a_journal_a_container_log_and_a_file_record() {
        let host = Init::Hidden {
            same_session: false,
        };
        let container = Init::Outputs([3, 4].map(|inode| FileId { device: 9, inode }).to_vec());
        let hidden = Init::Hidden { same_session: true };
        let (pipe, other, file) = (
            Some(output(1, false)),
            Some(output(2, false)),
            Some(output(5, true)),
        );
        for (stdout, stderr, journal, init, recorder) in [
            (pipe, other, None, &host, None),
            (pipe, file, None, &host, None),
            (None, None, Some("9:1"), &host, None),
            (pipe, other, Some("9:7"), &host, None),
            (pipe, other, Some("8:1"), &host, None),
            (pipe, other, Some("9"), &host, None),
            (pipe, other, Some("9:1"), &host, Some(Recorder::Journal)),
            (pipe, other, Some("9:2"), &host, Some(Recorder::Journal)),
            (pipe, other, None, &container, None),
            (
                Some(output(3, false)),
                other,
                None,
                &container,
                Some(Recorder::ContainerLog),
            ),
            (
                pipe,
                Some(output(4, false)),
                None,
                &container,
                Some(Recorder::ContainerLog),
            ),
            (pipe, other, None, &hidden, Some(Recorder::ContainerLog)),
            (file, pipe, None, &host, Some(Recorder::File)),
        ] {
            assert_eq!(
                Recorder::of(stdout, stderr, journal, init),
                recorder,
                "{stdout:?} {stderr:?} {journal:?} {init:?}"
            );
        }
    }
}
