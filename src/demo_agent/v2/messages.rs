//! Replacement of messages.

use agent_client_protocol_schema::v1::MessageId;
use agent_client_protocol_schema::v2::{AgentMessage, SessionUpdate};

use super::super::turn::{Step, Turn};
use super::updates::message_id;

impl Turn {
    /// Replaces the whole text of a message.
    pub(in super::super) async fn replace(&mut self, message: &MessageId, text: &str) -> Step {
        self.check()?;
        self.record().history.replace(message, text);
        let whole = AgentMessage::new(message_id(message)).content(vec![text.into()]);
        self.send_v2(SessionUpdate::AgentMessage(whole)).await;
        Ok(())
    }
}
