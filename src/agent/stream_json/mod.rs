//! The dialect of the Claude Code CLI: `--input-format stream-json --output-format stream-json`.
//!
//! The module translates between the lines of the CLI and messages of ACP v1. It has no I/O and no time. A process serves
//! one session, for which it starts: the launcher adds [`arguments`] to the command of the entry.
//!
//! Reading order: [`translator`] (the state, and messages of the gateway),
//! [`incoming`] (lines of the CLI), [`conversation`] with [`streamed`], [`tool`], [`open_tools`], [`subagents`] and
//! [`plan`], [`permission`], [`prompt`], [`session`] with [`calls`], [`settings`], [`turn`]. [`bounds`] has the limits of the
//! state.

use std::sync::{Mutex, MutexGuard, PoisonError};

use self::translator::Translator;
use super::dialect::{Decoded, Dialect, Encoded, Line, Outgoing};
use crate::acp::AcpVersion;

mod bounds;
mod calls;
mod conversation;
mod incoming;
mod open_tools;
mod permission;
mod plan;
mod prompt;
mod session;
mod settings;
mod streamed;
mod subagents;
mod tool;
mod translator;
mod turn;

pub(super) use incoming::initialize_result;
pub(super) use session::StartedSession;

/// The arguments of every process.
const ARGUMENTS: [&str; 9] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
];

/// The length of a version. The rules of semantic versions have no limit.
const MAX_VERSION: usize = 64;

/// The arguments that select the protocol and the session. Ids of sessions are UUIDs.
pub(super) fn arguments(session: &StartedSession) -> Vec<String> {
    let id = session.id.as_ref().map(|id| {
        let option = if session.restores {
            "--resume"
        } else {
            "--session-id"
        };
        [option.to_owned(), id.clone()]
    });
    ARGUMENTS
        .map(str::to_owned)
        .into_iter()
        .chain(id.into_iter().flatten())
        .collect()
}

/// The version in the output of `--version`: `2.1.197 (Claude Code)`.
pub(super) fn version(output: &str) -> Option<String> {
    let word = output.split_whitespace().next()?;
    let is_version = word.starts_with(|first: char| first.is_ascii_digit())
        && word.len() <= MAX_VERSION
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte));
    is_version.then(|| word.to_owned())
}

/// The translation for one process.
#[derive(Debug)]
pub(super) struct StreamJson(Mutex<Translator>);

impl StreamJson {
    pub(super) fn new(session: StartedSession) -> Self {
        Self(Mutex::new(Translator::new(session)))
    }

    /// A panic while a line is decoded ends the reader, and with it this process only. Until then, the state still encodes.
    fn translator(&self) -> MutexGuard<'_, Translator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dialect for StreamJson {
    fn version(&self) -> AcpVersion {
        AcpVersion::V1
    }

    fn has_replies(&self) -> bool {
        true
    }

    fn encode(&self, message: Outgoing<'_>) -> Encoded {
        self.translator().encode(&message)
    }

    fn decode(&self, line: Line<'_>, messages: &mut Vec<Decoded>) {
        let bytes = &line.block[line.range.clone()];
        let translated = self.translator().line(bytes, line.max_json_depth, messages);
        if let Err(error) = translated {
            tracing::debug!(%error, bytes = line.range.len(), "invalid line of the Claude Code CLI");
            messages.push(Decoded::Invalid);
        }
    }
}

#[cfg(test)]
mod tests;
