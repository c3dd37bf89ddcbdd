//! Recordings: the lines between this program and an agent, in both directions.
//!
//! A recording has one JSON object on each line: `dir` is `c2a` or `a2c` (client to agent, agent to client), and `msg` is the
//! line. A line that is not JSON is the text `raw` instead. The content of lines is not masked.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;

/// The maximum size of a recording. Further lines are not recorded.
const MAX_BYTES: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
#[error("could not create the recording {}", path.display())]
pub struct RecordingError {
    path: PathBuf,
    source: io::Error,
}

/// The direction of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Direction {
    /// Client to agent.
    #[serde(rename = "c2a")]
    ToAgent,
    /// Agent to client.
    #[serde(rename = "a2c")]
    ToClient,
}

/// One line of a recording.
#[derive(Debug, Serialize)]
struct Entry {
    dir: Direction,
    #[serde(skip_serializing_if = "Option::is_none")]
    msg: Option<Box<RawValue>>,
    /// A line that is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
}

impl Entry {
    fn new(dir: Direction, line: &[u8]) -> Self {
        let line = line.trim_ascii();
        match serde_json::from_slice::<&RawValue>(line) {
            Ok(message) => Self {
                dir,
                msg: Some(message.to_owned()),
                raw: None,
            },
            Err(_) => Self {
                dir,
                msg: None,
                raw: Some(String::from_utf8_lossy(line).into_owned()),
            },
        }
    }

    /// The entry as a line.
    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("an entry has string keys and serializes");
        line.push(b'\n');
        line
    }
}

/// Writes a recording.
#[derive(Debug)]
pub(super) struct Recorder {
    file: File,
    bytes: u64,
    has_stopped: bool,
}

impl Recorder {
    /// Creates the file, which must not exist. Only its owner can read it.
    pub(super) fn create(path: &Path) -> Result<Self, RecordingError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let file = file.map_err(|source| RecordingError {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            file,
            bytes: 0,
            has_stopped: false,
        })
    }

    /// Appends the lines in `lines`. A failure ends the recording and not the translation.
    pub(super) fn record(&mut self, dir: Direction, lines: &[u8]) {
        for line in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.trim_ascii().is_empty())
        {
            if self.has_stopped {
                return;
            }
            let line = Entry::new(dir, line).line();
            self.bytes += line.len() as u64;
            if self.bytes > MAX_BYTES {
                tracing::warn!("the recording ends: it is larger than {MAX_BYTES} bytes");
                self.has_stopped = true;
            } else if let Err(error) = self.file.write_all(&line) {
                tracing::warn!(%error, "the recording ends: could not write it");
                self.has_stopped = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_keeps_the_bytes_of_messages_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let mut recorder = Recorder::create(&path).unwrap();
        recorder.record(Direction::ToAgent, b"{\"a\":1.10}\n{\"t\":\"\\ud83d\"}\n");
        recorder.record(Direction::ToClient, b"hello\n");
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = concat!(
            r#"{"dir":"c2a","msg":{"a":1.10}}"#,
            "\n",
            r#"{"dir":"c2a","msg":{"t":"\ud83d"}}"#,
            "\n",
            r#"{"dir":"a2c","raw":"hello"}"#,
            "\n"
        );
        assert_eq!(text, expected);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Recorder::create(&path).is_err(), "it exists");
    }
}
