//! The protocols of child processes.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::ToSchema;

/// The file of this program, also in a sandbox that hides its folder. A path on disk could belong to another version later.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// The protocol of an agent. Agents on other hosts use ACP.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, VariantArray, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum AgentDialect {
    /// The Agent Client Protocol.
    #[default]
    Acp,
    /// The protocol of the Claude Code CLI.
    StreamJson,
    /// The protocol of agents that were written before version 1 of ACP.
    EarlyAcp,
}

impl AgentDialect {
    /// Whether a process serves one session, for which it starts.
    pub const fn has_one_session(self) -> bool {
        matches!(self, Self::StreamJson | Self::EarlyAcp)
    }

    /// The command that speaks ACP for a program that speaks this dialect: the program itself, or this program in front of it
    /// (`acp-gateway translate`). `resume` is the session that the client will restore.
    pub fn command(
        self,
        program: PathBuf,
        args: Vec<OsString>,
        resume: Option<&str>,
        max_line_bytes: usize,
    ) -> (PathBuf, Vec<OsString>) {
        let from = match self {
            Self::Acp => return (program, args),
            Self::StreamJson => "stream-json",
            Self::EarlyAcp => "early-acp",
        };
        let mut translation: Vec<OsString> =
            vec!["translate".into(), format!("--from={from}").into()];
        translation.extend(resume.map(|id| format!("--resume={id}").into()));
        translation.push(format!("--max-line-bytes={max_line_bytes}").into());
        translation.push("--pass-environment".into());
        translation.push("--".into());
        translation.push(program.into());
        translation.extend(args);
        (OWN_PROGRAM.into(), translation)
    }
}
