//! Ids in paths. What is no id names nothing, so it is 404 like an id that names nothing.

use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use uuid::Uuid;

use crate::http::error::ApiError;
use crate::types::{AgentName, PromptId, RequestId, SessionId, TerminalId};

#[derive(Debug)]
pub(crate) struct AgentPath(pub(crate) AgentName);
#[derive(Debug)]
pub(crate) struct SessionPath(pub(crate) SessionId);
#[derive(Debug)]
pub(crate) struct PromptPath(pub(crate) SessionId, pub(crate) PromptId);
#[derive(Debug)]
pub(crate) struct RequestPath(pub(crate) SessionId, pub(crate) RequestId);
/// A sign-in of an agent.
#[derive(Debug)]
pub(crate) struct SignInPath(pub(crate) AgentName, pub(crate) Uuid);
#[derive(Debug)]
pub(crate) struct TerminalPath(pub(crate) SessionId, pub(crate) TerminalId);
/// An option's id is the agent's own.
#[derive(Debug)]
pub(crate) struct OptionPath(pub(crate) SessionId, pub(crate) String);

/// A file's path, decoded. What it may be is for the session's folders to say.
#[derive(Debug)]
pub(crate) struct FilePath(pub(crate) SessionId, pub(crate) String);
/// A tool call's id is the agent's own.
#[derive(Debug)]
pub(crate) struct ToolCallPath(pub(crate) SessionId, pub(crate) String);
/// The id of one of the agent's own terminals.
#[derive(Debug)]
pub(crate) struct AgentTerminalPath(pub(crate) SessionId, pub(crate) String);

struct Segments(RawPathParams);

impl Segments {
    async fn from_parts<G: Send + Sync>(parts: &mut Parts, state: &G) -> Result<Self, ApiError> {
        RawPathParams::from_request_parts(parts, state).await.map(Self).map_err(|_| ApiError::not_found())
    }

    fn get<T: FromStr>(&self, name: &str) -> Result<T, ApiError> {
        let segment = self.0.iter().find(|(segment, _)| *segment == name);
        segment.and_then(|(_, text)| text.parse().ok()).ok_or_else(ApiError::not_found)
    }
}

macro_rules! paths {
    ($($path:ident($($segment:literal),*);)*) => {$(
        impl<G: Send + Sync> FromRequestParts<G> for $path {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &G) -> Result<Self, ApiError> {
                let segments = Segments::from_parts(parts, state).await?;
                Ok(Self($(segments.get($segment)?),*))
            }
        }
    )*};
}

paths! {
    AgentPath("agent");
    SessionPath("session");
    PromptPath("session", "prompt");
    RequestPath("session", "request");
    TerminalPath("session", "terminal");
    OptionPath("session", "option");
    FilePath("session", "path");
    SignInPath("agent", "signIn");
    ToolCallPath("session", "toolCall");
    AgentTerminalPath("session", "agentTerminal");
}
