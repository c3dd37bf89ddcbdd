//! Files for a session's agent and its clients, and the terminals of the agent.
//!
//! This module owns the handles of a session's root directories, the resolution of every path beneath them, and the
//! output of terminals. It does not know what a session is. Paths outside of the roots are inaccessible.
//!
//! A path is never resolved from the root of the file system. The operator's roots are opened once. A
//! session's directories are opened below them name by name, without links. Every path of a client or an
//! agent is resolved beneath these handles by the crate `cap-std`: with one `openat2` call with
//! `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS`, or with a handle for each name if the kernel or a sandbox does
//! not support it. Therefore an attacker has no time between a check and its use to insert a link. A relative
//! link that stays inside is followed. A path that leads out of the root, and an absolute link, are refused.
//!
//! `canonicalize` with a comparison of prefixes is not safe: the agent runs in the same folders and can insert a link
//! after the check. A session's directories are opened with `O_NOFOLLOW` for each name: their stored path was real, so
//! a link in it was added later.
//!
//! Reading order: [`roots`], [`stat`], [`error`], then [`read`] with [`text`], [`write`], [`tree`]
//! with [`pattern`], [`browse`], [`changes`], [`terminal`] with [`scrollback`], then [`agent_files`] and
//! [`agent_terminals`].

mod agent_files;
mod agent_terminals;
mod browse;
mod changes;
mod error;
mod pattern;
mod read;
mod roots;
mod scrollback;
mod stat;
mod terminal;
mod text;
mod tree;
mod write;

pub use agent_files::{FileRequestError, check_file_request, serve_file_request};
pub use agent_terminals::{AgentTerminals, DEFAULT_TERMINAL_BYTES, TerminalRequest};
pub use browse::FolderPage;
pub use changes::{
    Capture, ChangeBounds, ChangeKind, ChangedFile, ChangedText, FolderChanges, compare,
    has_baseline, own_bytes, revert, take_baseline, text_of,
};
pub use children::Exit;
pub use error::FileError;
pub use pattern::Pattern;
pub use read::{OpenFile, RealFile};
pub use roots::{Workspace, Workspaces};
pub use scrollback::{Scrollback, ScrollbackBudget};
pub use stat::{EntityTags, EntryKind, FileStat, Precondition};
pub use terminal::{
    OutputEvent, StartError, StartedTerminal, Terminal, TerminalEvent, start_terminal,
};
pub use text::{LineRange, media_type, text};
pub use tree::{ListEntry, Page, PageLimits};
pub use write::{Upload, WriteOutcome};
