//! Extractors of request parts. Each fails with the problem that describes the wrong part.

mod authorized;
mod headers;
mod json;
mod path;
mod query;

pub(crate) use authorized::{Authorized, CanAdmin, CanApprove, CanFiles, CanPrompt, CanRead, HasKey};
pub use headers::{Conditions, IdempotencyHeader, IfMatch, LastEventId, PreferWait};
pub(crate) use headers::{IfNoneMatch, Trace};
pub(crate) use json::{JsonBody, to_one_line};
pub(crate) use path::{
    AgentPath, AgentTerminalPath, FilePath, OptionPath, PromptPath, RequestPath, SessionPath, SignInPath,
    TerminalPath, ToolCallPath,
};
pub(crate) use query::NoQuery;
pub use query::Params;
