//! The events of a turn up to now, for responses that are not a stream.

use crate::eventlog::{Item, Start};
use crate::projection::{Step, TurnProjector};
use crate::session::{PromptRange, SessionHandle};
use crate::surface::rest::ApiError;
use crate::types::PromptId;

/// Calls `each` for the steps of a turn: to its end, or to the last event that exists.
pub(crate) async fn steps_of(
    session: &SessionHandle,
    (prompt, range): (PromptId, PromptRange),
    mut each: impl FnMut(Step<'_>),
) -> Result<(), ApiError> {
    let mut projector = TurnProjector::default();
    let mut reader = session.log().reader(Start::After(range.first_seq - 1));
    let last = range.last_seq.unwrap_or(u64::MAX);
    loop {
        match reader.next().await? {
            Item::Run(run) => {
                let events = run.events().filter(|event| event.seq() <= last && event.is_of(prompt));
                events.for_each(|event| projector.event(&event, &mut each));
                if run.last_seq >= last {
                    return Ok(());
                }
            }
            Item::Ready { .. } => return Ok(()),
            Item::Reset { .. } | Item::End => return Err(ApiError::not_found()),
        }
    }
}
