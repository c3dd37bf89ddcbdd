//! The life of a prompt. In v1 its answer is the end of the turn. In v2 the answer follows the message of the
//! user, and a state update ends the work.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use crate::types::Ids;

use super::client::Client;
use super::scenes;
use super::session::{Running, Session};
use super::turn::Turn;

/// The context in which the turns of a session run.
pub(super) struct PromptTask {
    pub(super) client: Client,
    pub(super) ids: Ids,
    pub(super) session: Arc<Session>,
}

impl PromptTask {
    /// Plays a prompt and answers its request. Without a begun turn, waits for the end of the agent's own work.
    pub(super) async fn play(
        self,
        begun: Option<(Running, DropGuard)>,
        id: &RawValue,
        prompt: &[Value],
        meta: &Value,
    ) {
        let begun = if begun.is_some() {
            begun
        } else {
            self.session.background_work_ended().await;
            self.session.begin(Some(id))
        };
        let Some((running, answered)) = begun else {
            let error = Error::invalid_request().data("a turn is already running in this session");
            return self.client.answer(id, Err(error)).await;
        };
        let mut turn = self.turn(running);
        let (number, message) = match turn.begin(prompt) {
            Ok(begun) => begun,
            Err(error) => return self.client.answer(id, Err(error)).await,
        };
        if self.client.is_v2() {
            self.client
                .answer(id, Ok(json!({ "messageId": message })))
                .await;
            let user =
                json!({ "sessionUpdate": "user_message", "messageId": message, "content": prompt });
            turn.show(user).await;
            turn.show_state("running").await;
        }
        let outcome = scenes::play(&mut turn, prompt, number, meta).await;
        let (late_updates, wake_after) = (
            std::mem::take(&mut turn.late_updates),
            turn.background_work_after,
        );
        // The turn ends before the client reads so, because the client may send the next prompt at once.
        drop(turn);
        if self.client.is_v2() {
            self.report_idle(outcome).await;
        } else {
            let result =
                outcome.map(|(reason, usage)| json!({ "stopReason": reason, "usage": usage }));
            self.client.answer(id, result).await;
        }
        for update in late_updates {
            self.client.update(&self.session.id, update).await;
        }
        drop(answered);
        if let Some(time) = wake_after {
            self.work_without_prompt(time).await;
        }
    }

    /// Works after a time, unless a client has sent a prompt meanwhile.
    async fn work_without_prompt(&self, time: Duration) {
        tokio::select! {
            () = self.session.wait_retired() => return,
            () = tokio::time::sleep(time) => {}
        }
        let Some((running, answered)) = self.session.begin(None) else {
            return;
        };
        let mut turn = self.turn(running);
        turn.show_state("running").await;
        let outcome = scenes::play_background_work(&mut turn).await;
        self.report_idle(outcome).await;
        // Dropped only now, so that the end of this work is not mistaken for the end of the next prompt.
        drop(turn);
        drop(answered);
    }

    fn turn(&self, running: Running) -> Turn {
        Turn::new(running, self.client.clone(), self.ids.clone())
    }

    async fn report_idle(&self, outcome: Result<(&'static str, Value), Error>) {
        let mut update = match outcome {
            Ok((reason, usage)) => json!({ "stopReason": reason, "usage": usage }),
            Err(error) => json!({ "stopReason": "error", "error": error }),
        };
        update["sessionUpdate"] = json!("state_update");
        update["state"] = json!("idle");
        self.client.update(&self.session.id, update).await;
    }
}
