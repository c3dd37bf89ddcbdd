//! Extractors of request parts. Each fails with the problem that describes the wrong part.

mod by;
mod headers;
mod json;
mod path;
mod query;

pub(crate) use by::{By, CanAdmin, CanApprove, CanFiles, CanPrompt, CanRead, HasKey};
pub use headers::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Wait};
pub(crate) use headers::{IfNoneMatch, Trace};
pub(crate) use json::{JsonBody, raw};
pub(crate) use path::{
    AgentPath, AgentTerminalPath, FilePath, OptionPath, PromptPath, RequestPath, SessionPath, SignInPath,
    TerminalPath, ToolCallPath,
};
pub(crate) use query::NoQuery;
pub use query::Params;
