//! Answers to the questions of an agent, from chat clients that know only yes and no.
//!
//! A client sends the id of a question back with its answer. The id names everything that the gateway needs, so an answer
//! never depends on what else the client sends: an id of a conversation, a history, or an id of a message.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::chat_turn::{ChatTurn, steps_of};
use crate::surface::http::{ApiError, AppState, Authorized, CanPrompt, Result};
use base::types::ids::IdError;
use base::types::{PromptId, RequestId, Scope, SessionId};
use events::api::PendingRequest;
use sessions::projection::Step;
use sessions::session::{Answer, AnswerError, SessionHandle};
use wire::acp::RequestKind;

/// The id of a question: `<session>_<turn>_<request>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuestionId {
    pub(crate) session: SessionId,
    pub(crate) prompt: PromptId,
    pub(crate) request: RequestId,
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.session, self.prompt, self.request)
    }
}

impl FromStr for QuestionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut parts = text.splitn(3, '_');
        let mut next = || parts.next().ok_or(IdError);
        Ok(Self {
            session: next()?.parse()?,
            prompt: next()?.parse()?,
            request: next()?.parse()?,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Continued {
    pub(crate) turn: ChatTurn,
    /// The newest question that was answered. The client has the events up to it.
    pub(crate) question: RequestId,
    /// The number of permission requests of the turn up to this question.
    pub(crate) permissions: u32,
}

impl Continued {
    pub(crate) async fn with(
        app: &AppState,
        by: &Authorized<CanPrompt>,
        answers: &[Approval],
    ) -> Result<Self> {
        let questions = answers.iter().map(|answer| answer.question);
        let continued = Self::after(app, by, questions).await?;
        for approval in answers {
            answer(by, &continued.turn.session, approval).await?;
        }
        Ok(continued)
    }

    /// Finds the turn of these questions, which a client answers together.
    pub(crate) async fn after(
        app: &AppState,
        by: &Authorized<CanPrompt>,
        questions: impl Iterator<Item = QuestionId> + Clone,
    ) -> Result<Self> {
        let newest = questions.clone().max_by_key(|question| question.request);
        let newest = newest.ok_or_else(|| ApiError::invalid("", "expected an answer"))?;
        let is_of_turn = |question: QuestionId| {
            (question.session, question.prompt) == (newest.session, newest.prompt)
        };
        if !questions.clone().all(is_of_turn) {
            let detail = "the answers are to questions of several turns; send one request for each";
            return Err(ApiError::invalid("", detail));
        }
        let session = app.open_session(by, newest.session).await?;
        let range = session.query().prompt_range(newest.prompt).await?;
        let range = range.ok_or_else(ApiError::not_found)?;
        let mut permissions = 0;
        let mut asked = Vec::new();
        let each = |step: Step<'_>| {
            if let Step::Requested(request) = step
                && !asked.contains(&newest.request)
            {
                permissions += u32::from(request.kind == RequestKind::Permission);
                asked.push(request.id);
            }
        };
        steps_of(&session, newest.prompt, range, each).await?;
        if !questions
            .clone()
            .all(|question| asked.contains(&question.request))
        {
            return Err(ApiError::not_found());
        }
        Ok(Self {
            turn: ChatTurn::existing(app, by, session, newest.prompt, Vec::new()).await?,
            question: newest.request,
            permissions,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) question: QuestionId,
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
) -> Result<()> {
    by.require(Scope::Approve)?;
    let request = approval.question.request;
    let Some(pending) = open_request(session, request).await? else {
        return Ok(());
    };
    let view = wire::acp::parse_permission(&pending.params)
        .map_err(|_| ApiError::invalid("", "the request is not a permission request"))?;
    let reason = approval.reason.as_deref();
    let named = reason.and_then(|reason| view.option(reason));
    let named = named.filter(|option| approval.approved || !option.kind.starts_with("allow"));
    let of_kind = |kind: &str| view.options.iter().find(|option| option.kind == kind);
    let option = named.or_else(|| {
        if approval.approved {
            of_kind("allow_once")
        } else {
            of_kind("reject_once").or_else(|| of_kind("reject_always"))
        }
    });
    let answer = match option {
        Some(option) => Answer::Option(option.option_id.to_string()),
        None if !approval.approved => Answer::Cancelled,
        None => {
            let ids = view.options.iter().map(|option| &*option.option_id);
            let ids: Vec<&str> = ids.collect();
            let ids = ids.join(", ");
            let detail =
                format!("the agent offers no single approval; name one of these options: {ids}");
            return Err(ApiError::invalid("", detail));
        }
    };
    send_answer(by, session, request, answer).await
}

/// `None` if the request was resolved.
pub(crate) async fn open_request(
    session: &SessionHandle,
    request: RequestId,
) -> Result<Option<Arc<PendingRequest>>> {
    match session.pending(request).await {
        Ok(pending) => Ok(Some(pending)),
        Err(AnswerError::NotFound(_) | AnswerError::Resolved(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An answer to a request that was resolved meanwhile has no effect.
pub(crate) async fn send_answer(
    by: &Authorized<CanPrompt>,
    session: &SessionHandle,
    request: RequestId,
    answer: Answer,
) -> Result<()> {
    match session.answer(&by.author(), None, request, answer).await {
        Ok(()) | Err(AnswerError::Resolved(_) | AnswerError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_has_one_text() {
        let session = "01990000-0000-7000-8000-000000000000";
        let text = format!("{session}_p2_r3");
        let id: QuestionId = text.parse().expect("an id");
        assert_eq!((id.to_string(), id.request), (text, RequestId::new(3)));
        for wrong in ["r3", "p2_r3", "x_p2_r3", ""] {
            assert!(wrong.parse::<QuestionId>().is_err(), "{wrong}");
        }
        for wrong in ["_p2", "_p2_r3_4", "_r3_p2"] {
            assert!(format!("{session}{wrong}").parse::<QuestionId>().is_err());
        }
    }
}
