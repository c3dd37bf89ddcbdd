//! Answers to permission requests from chat clients, which know only yes and no.

use crate::session::{Answer, AnswerError, SessionHandle};
use crate::surface::authorized::{AccessError, Authorized, CanPrompt};
use crate::surface::rest::ApiError;
use crate::types::{RequestId, Scope};

/// The answer of a person.
#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) request: RequestId,
    pub(crate) approved: bool,
    /// The id of an option of the agent, or any text.
    pub(crate) reason: Option<String>,
}

/// Passes an answer to the agent. An answer to a request that was already resolved has no effect.
///
/// A bare yes selects an option that permits the call once, never one that permits all later calls. A no never selects an
/// option that permits the call, also if its text is the id of one.
pub(crate) async fn answer(
    by: &Authorized<CanPrompt>,
    session: &SessionHandle,
    approval: &Approval,
) -> Result<(), ApiError> {
    if !by.scopes.contains(Scope::Approve) {
        return Err(AccessError::MissingScope(Scope::Approve).into());
    }
    let pending = match session.pending(approval.request).await {
        Ok(pending) => pending,
        Err(AnswerError::NotFound(_) | AnswerError::Resolved(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let view = crate::acp::parse_permission(&pending.params)
        .map_err(|_| ApiError::invalid("", "the request is not a permission request"))?;
    let named = approval
        .reason
        .as_deref()
        .and_then(|reason| view.option(reason));
    let named = named.filter(|option| approval.approved || !option.kind.starts_with("allow"));
    let of_kind = |kind: &str| view.options.iter().find(|option| option.kind == kind);
    let option = match (named, approval.approved) {
        (Some(option), _) => Some(option.option_id.to_string()),
        (None, true) => of_kind("allow_once").map(|option| option.option_id.to_string()),
        (None, false) => of_kind("reject_once")
            .or_else(|| of_kind("reject_always"))
            .map(|option| option.option_id.to_string()),
    };
    let answer = match (option, approval.approved) {
        (Some(option), _) => Answer::Option(option),
        (None, false) => Answer::Cancelled,
        (None, true) => {
            let ids: Vec<&str> = view
                .options
                .iter()
                .map(|option| &*option.option_id)
                .collect();
            let detail = format!(
                "the agent offers no single approval; name one of these options: {}",
                ids.join(", ")
            );
            return Err(ApiError::invalid("", detail));
        }
    };
    match session
        .answer(&by.author(), None, approval.request, answer)
        .await
    {
        Ok(()) | Err(AnswerError::Resolved(_) | AnswerError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
