//! What a session's agent and its clients may touch of the file system, and the terminals that it runs there.
//!
//! It owns the handles of a session's root folders, every path that is resolved beneath them, and the output of
//! terminals. It does not know what a session is, and nothing outside the roots is within its reach.
//!
//! A path is never resolved from the top of the file system. The operator's roots are opened once; a session's folders
//! are opened below them name by name, without links; and every path of a client or an agent is resolved beneath
//! those handles by the crate `cap-std`: one `openat2` call with `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS`, or, where
//! a kernel or a sandbox has none, a walk with a handle for each name. So there is no moment between a check and its
//! use in which a link could be put in the way. A link that stays inside is followed if it is a relative one; what
//! leads out of the root, or is absolute, is refused. `docs/adr/0007-files-beneath-handles.md` has the reasons.

mod error;
mod media;
mod path;
mod pattern;
mod read;
mod roots;
mod scrollback;
mod stat;
mod terminal;
mod text;
mod tree;
mod utf8;
mod write;

pub use error::FileError;
pub use media::{media_type, text};
pub use pattern::Pattern;
pub use read::{OpenFile, RealFile};
pub use roots::{Workspace, Workspaces};
pub use scrollback::{ScrollbackBudget, Scrollback};
pub use stat::{Precondition, EntryKind, FileStat, EntityTags};
pub use terminal::{OutputEvent, StartError, StartedTerminal, Terminal, TerminalEvent, terminal_spec, start_terminal};
pub use text::LineRange;
pub use tree::{PageLimits, ListEntry, Page};
pub use write::{WriteOutcome, Upload};
