//! What handlers take from a request, each with its problem when it is not there as it should be.

mod by;
mod headers;
mod json;
mod path;
mod query;

pub(crate) use by::{By, CanAdmin, CanApprove, CanPrompt, CanRead, HasKey};
pub(crate) use headers::{IdempotencyHeader, IfMatch, LastEventId, Trace, Wait};
pub(crate) use json::{JsonBody, raw};
pub(crate) use path::{
    AgentPath, AgentTerminalPath, OptionPath, PromptPath, RequestPath, SessionPath, SignInPath, ToolCallPath,
};
pub(crate) use query::{NoQuery, Params};
