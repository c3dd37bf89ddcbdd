//! Ids in request paths. A malformed id is a 404, as an unknown id is.

use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use uuid::Uuid;

use crate::surface::rest::error::ApiError;
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
/// A configuration option. The agent chooses the id.
#[derive(Debug)]
pub(crate) struct OptionPath(pub(crate) SessionId, pub(crate) String);

/// A percent-decoded file path. The folders of the session decide whether it is valid.
#[derive(Debug)]
pub(crate) struct FilePath(pub(crate) SessionId, pub(crate) String);
/// A tool call. The agent chooses the id.
#[derive(Debug)]
pub(crate) struct ToolCallPath(pub(crate) SessionId, pub(crate) String);
/// A terminal that the agent runs itself. The agent chooses the id.
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
