//! The life of a prompt: the answer follows its message, and a state update ends its work.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{self, Error, PromptRequest, Usage};
use agent_client_protocol_schema::v2::{
    self, ErrorStopReason, IdleStateUpdate, PromptResponse, RequiresActionStateUpdate, RunningStateUpdate,
    SessionUpdate, StateUpdate, StopReason, UserMessage,
};
use serde_json::value::RawValue;

use super::super::agent::{Agent, parse};
use super::super::client_support::ClientSupport;
use super::super::peer::Peer;
use super::super::scenes;
use super::super::session::Session;
use super::super::turn::Turn;
use super::super::version::Version;
use super::updates::{convert, message_id};
use crate::types::Ids;

impl Agent {
    pub(super) fn prompt_v2(&mut self, id: &RawValue, params: &RawValue) -> Result<(), Error> {
        let request: PromptRequest = parse(params)?;
        self.sign_in.check()?;
        let session = self.sessions.get(&request.session_id)?;
        let stage = PromptTask { peer: self.peer.clone(), ids: self.ids.clone(), offer: self.offer, session };
        let id = id.to_owned();
        drop(self.shutdown.spawn(async move { stage.play(&id, &request).await }));
        Ok(())
    }
}

/// The context in which the turns of a session run.
struct PromptTask {
    peer: Peer,
    ids: Ids,
    offer: ClientSupport,
    session: Arc<Session>,
}

impl PromptTask {
    async fn play(&self, id: &RawValue, request: &PromptRequest) {
        self.session.background_work_ended().await;
        let Some((running, answered)) = self.session.begin(Some(id)) else {
            return self.peer.answer::<()>(id, Err(Turn::already_running())).await;
        };
        let mut turn = Turn::new(running, self.peer.clone(), self.ids.clone(), self.offer);
        let (number, message) = match turn.begin(&request.prompt) {
            Ok((number, message)) => (number, message_id(&message)),
            Err(error) => return self.peer.answer::<()>(id, Err(error)).await,
        };
        self.peer.answer(id, Ok(PromptResponse::new(message.clone()))).await;
        turn.send_v2(SessionUpdate::UserMessage(
            UserMessage::new(message).content(convert::<_, Vec<_>>(&request.prompt)),
        ))
        .await;
        turn.send_state(false).await;
        let outcome = scenes::play(&mut turn, &request.prompt, number, request.meta.as_ref()).await;
        // The turn ends before the state update, so the client may prompt again as soon as it has read the update.
        let afterword = turn.finish();
        self.idle(outcome).await;
        for update in afterword.updates {
            self.peer.update(&self.session.id, update).await;
        }
        drop(answered);
        if let Some(time) = afterword.background_work_after {
            self.wake(time).await;
        }
    }

    /// Works without a prompt, unless a client has sent one meanwhile.
    async fn wake(&self, time: Duration) {
        tokio::select! {
            () = self.session.wait_retired() => return,
            () = tokio::time::sleep(time) => {}
        }
        let Some((running, answered)) = self.session.begin(None) else { return };
        let mut turn = Turn::new(running, self.peer.clone(), self.ids.clone(), self.offer);
        turn.send_state(false).await;
        let outcome = scenes::play_background_work(&mut turn).await;
        self.idle(outcome).await;
        // Dropped only now, so that the end of this work is not mistaken for the end of the next prompt.
        drop(turn);
        drop(answered);
    }

    async fn idle(&self, outcome: Result<(v1::StopReason, Usage), Error>) {
        let state = match outcome {
            Ok((reason, usage)) => {
                IdleStateUpdate::new().stop_reason(stop_reason(reason)).usage(convert::<_, v2::Usage>(&usage))
            }
            Err(error) => {
                let error = ErrorStopReason::new().error(convert::<_, v2::Error>(&error));
                IdleStateUpdate::new().stop_reason(StopReason::Error(error))
            }
        };
        let update = SessionUpdate::StateUpdate(StateUpdate::Idle(state));
        self.peer.update_v2(&self.session.id, update).await;
    }
}

fn stop_reason(reason: v1::StopReason) -> StopReason {
    match reason {
        v1::StopReason::MaxTokens => StopReason::MaxTokens,
        v1::StopReason::MaxTurnRequests => StopReason::MaxTurnRequests,
        v1::StopReason::Refusal => StopReason::Refusal,
        v1::StopReason::Cancelled => StopReason::Cancelled,
        _ => StopReason::EndTurn,
    }
}

impl Turn {
    /// Reports that the turn runs or waits for a person. v1 has no such update.
    pub(in super::super) async fn send_state(&self, waits: bool) {
        if self.version() == Version::V1 {
            return;
        }
        let state = if waits {
            StateUpdate::RequiresAction(RequiresActionStateUpdate::new())
        } else {
            StateUpdate::Running(RunningStateUpdate::new())
        };
        self.send_v2(SessionUpdate::StateUpdate(state)).await;
    }
}
