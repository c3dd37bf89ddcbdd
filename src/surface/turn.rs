//! The start of a turn, as every surface performs it.

use super::state::Gateway;
use crate::eventlog::Start;
use crate::session::{AdmittedPrompt, PromptError, PromptRequest, SessionHandle};
use crate::stream::{Feed, Source, StreamGuard, TurnFilter};
use crate::types::{LimitExceeded, Principal};

/// A turn that a request has started.
#[derive(Debug)]
pub(super) struct NewTurn {
    pub(super) admitted: AdmittedPrompt,
    /// Counts the response as a stream.
    pub(super) guard: Option<StreamGuard>,
}

impl NewTurn {
    /// Checks the limits of the principal and starts the turn. The response of a `held` request is a stream or
    /// waits for the turn.
    pub(super) async fn begin<E: From<LimitExceeded> + From<PromptError>>(
        gateway: &Gateway,
        by: &Principal,
        session: &SessionHandle,
        request: PromptRequest,
        held: bool,
    ) -> Result<Self, E> {
        // Acquire the stream before the turn starts: if that failed later, the client would have neither the
        // stream nor the id of the turn.
        let guard = held.then(|| gateway.streams().acquire(by)).transpose()?;
        // A repetition of a request with an idempotency key begins no turn, so the rate does not apply to it.
        let (rates, principal) = (gateway.clone(), by.clone());
        let count = move || rates.rates().check_prompt(&principal);
        Ok(Self {
            admitted: session.prompt(by, request, count).await?,
            guard,
        })
    }
}

/// The events of a turn that the same request has started.
pub(super) fn turn_feed(
    gateway: &Gateway,
    session: SessionHandle,
    admitted: &AdmittedPrompt,
) -> Feed {
    let reader = session.log().reader(Start::After(admitted.first_seq - 1));
    let turn = TurnFilter {
        prompt: admitted.prompt.prompt_id,
        last_seq: admitted.last_seq,
    };
    Feed {
        turn: Some(turn),
        ..gateway.feed(Source::session(reader, session))
    }
}
