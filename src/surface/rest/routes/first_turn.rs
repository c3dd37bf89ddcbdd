//! The settings and the first prompt in the request that creates a session.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::prompts::content_blocks;
use super::settings::checked_value;
use crate::acp::TraceContext;
use crate::api::{Attachment, CreateSession, Problem, Session};
use crate::session::{ClientCall, Created, IdempotencyKey, PromptRequest, SessionHandle};
use crate::surface::Gateway;
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::rest::error::ApiError;
use crate::surface::turn::NewTurn;
use crate::types::Scope;

const MAX_OPTIONS: usize = 64;

/// The settings and the first prompt of a new session.
#[derive(Debug)]
pub(super) struct FirstTurn {
    mode: Option<String>,
    options: Vec<(String, Box<RawValue>)>,
    prompt: Option<Box<RawValue>>,
    attachments: Vec<Attachment>,
    key: Option<IdempotencyKey>,
}

impl FirstTurn {
    /// Takes the members out of the request. `key`: that of the request.
    pub(super) fn take(
        request: &mut CreateSession,
        key: Option<&IdempotencyKey>,
    ) -> Result<Self, ApiError> {
        let attachments = std::mem::take(&mut request.attachments);
        let prompt = request.prompt.take().map(content_blocks).transpose()?;
        if prompt.is_none() && !attachments.is_empty() {
            return Err(ApiError::invalid(
                "/attachments",
                "attachments need a prompt",
            ));
        }
        let options = options(std::mem::take(&mut request.config))?;
        let route = |key: &IdempotencyKey| IdempotencyKey {
            route: format!("{} prompt", key.route),
            ..key.clone()
        };
        Ok(Self {
            mode: request.mode_id.take(),
            options,
            prompt,
            attachments,
            key: key.map(route),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mode.is_none() && self.options.is_empty() && self.prompt.is_none()
    }

    /// A mode or an option can allow actions that otherwise need a permission.
    pub(super) fn check_scope(&self, by: &Authorized<CanPrompt>) -> Result<(), ApiError> {
        let needs_approve = self.mode.is_some() || !self.options.is_empty();
        if needs_approve && !by.scopes.contains(Scope::Approve) {
            let detail = "modeId and config require the scope approve";
            return Err(Problem::missing_scope(Scope::Approve, detail).into());
        }
        Ok(())
    }

    /// Sets the mode and the options, and begins the turn. On failure, nothing of the session remains.
    pub(super) async fn begin(
        self,
        gateway: &Gateway,
        by: &Authorized<CanPrompt>,
        created: &Created,
        trace: Option<TraceContext>,
    ) -> Result<Session, ApiError> {
        let session = gateway
            .sessions
            .open(by, created.response.session_id)
            .await?;
        if let Err(error) = self.run(gateway, by, &session, trace).await {
            if !created.replayed {
                session.delete(by, None, None).await?;
            }
            return Err(error);
        }
        Ok(session.snapshot().await?)
    }

    async fn run(
        self,
        gateway: &Gateway,
        by: &Authorized<CanPrompt>,
        session: &SessionHandle,
        trace: Option<TraceContext>,
    ) -> Result<(), ApiError> {
        // A repeated request does not revert settings that changed after the first turn began.
        if session.query().prompts(None, 1).await?.prompts.is_empty() {
            if let Some(mode) = self.mode {
                session
                    .call(by, ClientCall::Mode(mode), trace.clone())
                    .await?;
            }
            for (option, value) in self.options {
                session
                    .call(by, ClientCall::Config { option, value }, trace.clone())
                    .await?;
            }
        }
        // With the key of the request, a repeated prompt gets the turn that it has.
        let Some(blocks) = self.prompt else {
            return Ok(());
        };
        let (attachments, key) = (self.attachments, self.key);
        let (acp_request, broadcast, serving) = (None, None, None);
        let prompt = PromptRequest {
            blocks,
            attachments,
            queue: true,
            key,
            trace,
            acp_request,
            broadcast,
            serving,
        };
        NewTurn::begin::<ApiError>(gateway, by, session, prompt, false).await?;
        Ok(())
    }
}

/// The options with checked values.
fn options(config: Map<String, Value>) -> Result<Vec<(String, Box<RawValue>)>, ApiError> {
    if config.len() > MAX_OPTIONS {
        return Err(ApiError::invalid(
            "/config",
            format!("expected at most {MAX_OPTIONS} options"),
        ));
    }
    let checked = |(id, value): (String, Value)| {
        let pointer = format!("/config/{}", id.replace('~', "~0").replace('/', "~1"));
        let value = checked_value(&pointer, to_raw_value(&value).map_err(ApiError::internal)?)?;
        Ok((id, value))
    };
    config.into_iter().map(checked).collect()
}
