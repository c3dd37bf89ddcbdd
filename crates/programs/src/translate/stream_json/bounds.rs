//! The bounds of the state of one translation.
//!
//! All parts together retain at most [`TOTAL`] bytes of texts. Each part has a share, because a part that is full must not
//! affect another one. The numbers of items bound the memory beside the texts. A line can be larger than a share: the
//! translation passes it on, and keeps no copy.

/// The maximum size of all retained texts in bytes.
const TOTAL: usize = 4 << 20;

/// Permission requests without an answer. The answer repeats the input, so a request that does not fit is rejected.
pub(super) const PERMISSIONS: usize = 2 << 20;
/// Tool calls without a result: ids, names, and the members of inputs that the results need.
pub(super) const TOOLS: usize = 1 << 20;
pub(super) const SUBAGENTS: usize = 128 << 10;
/// Ids and text blocks of messages that are being streamed.
pub(super) const STREAMED: usize = 256 << 10;
/// Models and slash commands.
pub(super) const LISTED: usize = 256 << 10;

/// The maximum number of tasks. The agent can create more, but the plan does not show them.
pub(super) const MAX_TASKS: usize = 256;
/// The maximum size of the subject of a task. A longer one is cut.
pub(super) const MAX_SUBJECT: usize = 1024;
/// The maximum size of the id of a task. A task with a longer one is ignored. A longer status is cut.
pub(super) const MAX_TASK_WORD: usize = 64;

/// The maximum number of control requests without an answer.
pub(super) const MAX_CONTROLS: usize = 256;
/// The maximum size of the id of a mode or model, and of the kind of an error. A longer one is rejected or ignored.
pub(super) const MAX_NAME: usize = 256;

/// The maximum size of an error that is kept for a later answer. A longer one is cut.
pub(super) const MAX_ERROR: usize = 8 << 10;

const TASKS: usize = MAX_TASKS * (MAX_SUBJECT + 2 * MAX_TASK_WORD);
const CONTROLS: usize = MAX_CONTROLS * MAX_NAME;
/// The selected mode and model, the error of the model API, and the errors of a missing session and of a set-up.
const SINGLE: usize = 3 * MAX_NAME + 2 * MAX_ERROR;

const _: () = assert!(
    PERMISSIONS + TOOLS + SUBAGENTS + STREAMED + LISTED + TASKS + CONTROLS + SINGLE <= TOTAL
);
